"""Start the release in every form that this machine allows, and play one smoke test against each. Prints a table.

Needs `make release`. Exits with 1 if a form fails; one that cannot be started here is named with the reason.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg

from tests.deploy import containers, forms
from tests.deploy.forms import NotPossible
from tests.deploy.smoke import Deployment, smoke

FAILED = "FAILED"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    options.add_argument("--only", action="append", help="the start of a form's name; repeat it for several")
    only = tuple(options.parse_args().only or [""])
    if not forms.RELEASE.is_dir():
        raise SystemExit("There is no release in build/release. Run `make release`.")
    with forms.directory() as base:
        chosen = {name: check for name, check in _forms(base).items() if name.startswith(only)}
        if not chosen:
            raise SystemExit(f"No form starts with {' or '.join(only)}. There are: {', '.join(_forms(base))}.")
        results = [(name, *_tried(name, check)) for name, check in chosen.items()]
    width = max(len(name) for name in chosen)
    print(f"\n{'form':{width}}  {'seconds':>7}  result")
    for name, result, seconds in results:
        print(f"{name:{width}}  {seconds:7.0f}  {result}")
    return 1 if any(result.startswith(FAILED) for _, result, _ in results) else 0


def _forms(base: Path) -> dict[str, Callable[[], str]]:
    release = base / "release"
    return {
        "wheel": lambda: _smoked(forms.from_wheel(_program(release), base / "one")),
        "wheel built from the sdist": lambda: _smoked(forms.from_wheel(_rebuilt(base), base / "two")),
        "image, by podman": lambda: _image(base),
        "compose, by podman-compose": lambda: _compose(base),
        "systemd unit": lambda: f"{_smoked(containers.by_systemd(base / 'systemd'))}, in a container with systemd",
        "behind Caddy with TLS": lambda: _smoked(forms.behind_caddy(_program(release), base / "caddy")),
        "behind nginx with TLS": lambda: _smoked(forms.behind_nginx(_program(release), base / "nginx")),
        "README's first command": lambda: _readme(base),
        "Helm chart": lambda: _unavailable("needs a cluster; `make campaigns ONLY=deploy` renders and validates it"),
        "image and compose, by Docker": lambda: _unavailable("needs a Docker daemon; podman runs the same files"),
    }


def _tried(name: str, check: Callable[[], str]) -> tuple[str, float]:
    """The result of a form, and the seconds that it took."""
    began = time.monotonic()
    try:
        result = check()
    except NotPossible as reason:
        result = f"not started: {reason}"
    except (AssertionError, OSError, ValueError, LookupError, subprocess.SubprocessError, psycopg.Error) as error:
        print(f"{name}:\n{error}", file=sys.stderr)
        result = f"{FAILED}: {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    print(f"{name}: {result}", file=sys.stderr, flush=True)
    return result, time.monotonic() - began


def _smoked(form: AbstractContextManager[Deployment]) -> str:
    with form as deployment:
        smoke(deployment)
    return "passed"


def _program(environment: Path) -> Path:
    program = environment / "bin" / "toolcrib"
    return program if program.exists() else forms.installed(forms.released_wheel(), environment)


def _rebuilt(base: Path) -> Path:
    return forms.installed(forms.wheel_from_sdist(base / "source"), base / "rebuilt")


def _image(base: Path) -> str:
    origin = containers.build_image()
    containers.require_doctor_in_image(base / "doctor")
    return f"{_smoked(containers.from_image(base / 'image'))}, on {origin}; doctor: namespaces"


def _compose(base: Path) -> str:
    containers.build_image()
    stores = containers.stores()
    return f"{_smoked(containers.by_compose(base / 'compose', stores))}, with {stores.origin}"


def _readme(base: Path) -> str:
    return f"passed, by pipx and by uv, in local mode: {containers.from_readme(base / 'readme')}"


def _unavailable(reason: str) -> str:
    raise NotPossible(reason)


if __name__ == "__main__":
    sys.exit(main())
