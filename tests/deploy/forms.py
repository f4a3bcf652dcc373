"""The forms in which a release is deployed, each started as its documentation says, with a database of its own."""

import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx2

from tests.acceptance.local_machine import user_of_laptop
from tests.acceptance.serving import free_port
from tests.databases import new_database, urls_of
from tests.deploy.smoke import SECONDS, Deployment

ROOT: Final = Path(__file__).parents[2]
RELEASE: Final = ROOT / "build" / "release"
DEPLOY: Final = ROOT / "deploy"
BUILD_SECONDS: Final = 3_600.0


class NotPossible(Exception):
    """This machine cannot start this form; says why."""


def run(*command: str | Path, at: Path = ROOT, seconds: float = SECONDS, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return its output. Raises AssertionError with what it said if it fails."""
    ended = subprocess.run(command, cwd=at, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    assert ended.returncode == 0, f"{' '.join(map(str, command))[:300]}\n{(ended.stdout + ended.stderr)[-3000:]}"
    return ended.stdout


@contextmanager
def directory() -> Iterator[Path]:
    """A directory that an ordinary user can use, whoever runs this."""
    made = Path(tempfile.mkdtemp(prefix="toolcrib-deploy-", dir="/var/tmp"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel and the locked packages of a server into a clean environment. Returns its command."""
    run("/usr/bin/python3", "-m", "venv", folder)
    pip: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "server.txt", seconds=BUILD_SECONDS)
    run(*pip, wheel, seconds=BUILD_SECONDS)
    return folder / "bin" / "toolcrib"


def released_wheel() -> Path:
    (wheel,) = RELEASE.glob("toolcrib-*.whl")
    return wheel


def wheel_from_sdist(folder: Path) -> Path:
    """Build the wheel from the source distribution, as a distributor would, on a machine without Node."""
    (sdist,) = RELEASE.glob("toolcrib-*.tar.gz")
    shutil.unpack_archive(sdist, folder)
    (source,) = folder.iterdir()
    python = ROOT / ".local" / "release" / "bin" / "python"
    tools = {"PATH": str(python.parent), "HOME": str(folder)}
    run(python, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"), at=source, env=tools)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@dataclass(frozen=True)
class ServerSettings:
    """The settings of one server, as an operator has them in a file."""

    port: int
    environment: dict[str, str]

    @property
    def metrics_token(self) -> str:
        return self.environment["TOOLCRIB_METRICS_TOKEN"]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def settings(**more: str) -> Iterator[ServerSettings]:
    """A new database, secrets and a port."""
    with new_database() as name:
        urls, port = urls_of(name), free_port()
        yield ServerSettings(
            port,
            {
                "TOOLCRIB_DATABASE_URL": urls.app,
                "TOOLCRIB_SYSTEM_DATABASE_URL": urls.system,
                "TOOLCRIB_OWNER_DATABASE_URL": urls.owner,
                "TOOLCRIB_JWT_SECRET": secrets.token_urlsafe(48),
                "TOOLCRIB_AUDIT_SEAL_KEY": secrets.token_urlsafe(48),
                "TOOLCRIB_METRICS_TOKEN": secrets.token_urlsafe(48),
                "TOOLCRIB_PORT": str(port),
                "TOOLCRIB_NODE_NAME": name,
                # The model of the smoke test is on loopback.
                "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
                **more,
            },
        )


@contextmanager
def from_wheel(program: Path, folder: Path, **more: str) -> Iterator[Deployment]:
    """``toolcrib serve`` of a clean environment, as an ordinary user."""
    folder.mkdir()
    user = user_of_laptop()
    if user is not None:
        os.chown(folder, user, user)
    with settings(TOOLCRIB_DATA_DIR=str(folder / "data"), **more) as given:
        env = {"PATH": os.defpath, "HOME": str(folder), **given.environment}

        def command(*arguments: str) -> str:
            return run("/usr/bin/env", *_as_user(user), program, *arguments, at=folder, env=env)

        command("db", "upgrade")
        with process([*_as_user(user), str(program), "serve"], env, folder / "log", given.origin):
            yield Deployment(given.origin, command, (folder / "log").read_text, given.metrics_token)


@contextmanager
def behind_caddy(program: Path, folder: Path) -> Iterator[Deployment]:
    """A server of a wheel behind Caddy with the sample file, and TLS by Caddy's own authority."""
    require("caddy")
    port = free_port()
    with from_wheel(
        program, folder, TOOLCRIB_TRUSTED_PROXIES="127.0.0.1", TOOLCRIB_ALLOWED_HOSTS="localhost"
    ) as behind:
        # Only for tests: no changes to the machine's trusted authorities, no administration, no port 80.
        options = "{\n\tskip_install_trust\n\tadmin off\n\tauto_https disable_redirects\n}\n"
        (folder / "Caddyfile").write_text(options + f"import {DEPLOY / 'proxy' / 'Caddyfile'}\n")
        env = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "caddy"),
            "TOOLCRIB_DOMAIN": f"localhost:{port}",
            "TOOLCRIB_TLS": "tls internal",
            "TOOLCRIB_UPSTREAM": behind.origin.removeprefix("http://"),
        }
        caddy = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
        authority = folder / "caddy" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        with process(caddy, env, folder / "caddy.log", f"https://localhost:{port}"):
            tls = ssl.create_default_context(cafile=str(authority))
            yield replace(behind, origin=f"https://localhost:{port}", tls=tls)


@contextmanager
def behind_nginx(program: Path, folder: Path) -> Iterator[Deployment]:
    """A server of a wheel behind nginx with the sample file, and TLS by an authority of our own."""
    require("nginx", "openssl")
    port = free_port()
    with from_wheel(
        program, folder, TOOLCRIB_TRUSTED_PROXIES="127.0.0.1", TOOLCRIB_ALLOWED_HOSTS="localhost"
    ) as behind:
        authority = _certify(folder)
        site = (DEPLOY / "proxy" / "nginx.conf").read_text()
        for sample, ours in (
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("server 127.0.0.1:3000", f"server {behind.origin.removeprefix('http://')}"),
            ("toolcrib.example.com", "localhost"),
            ("/etc/ssl/certs/toolcrib.pem", str(folder / "server.pem")),
            ("/etc/ssl/private/toolcrib.key", str(folder / "server.key")),
        ):
            assert sample in site, f"The sample has no {sample!r}."
            site = site.replace(sample, ours)
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = folder / "nginx.conf"
        config.write_text(
            f"daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
            f"http {{ access_log off; {temporary}\n{site}\n}}\n"
        )
        nginx = ["nginx", "-c", str(config), "-p", str(folder)]
        with process(nginx, {"PATH": f"{os.defpath}:/usr/sbin"}, folder / "nginx.log", f"https://localhost:{port}"):
            tls = ssl.create_default_context(cafile=str(authority))
            yield replace(behind, origin=f"https://localhost:{port}", tls=tls)


def _certify(folder: Path) -> Path:
    """Create an authority and a certificate for localhost. Returns the authority's certificate."""
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    run(*new, "-keyout", folder / "ca.key", "-out", folder / "ca.pem", "-subj", "/CN=Test authority")
    signed: list[str | Path] = [
        "-CA",
        folder / "ca.pem",
        "-CAkey",
        folder / "ca.key",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    signed += ["-addext", "basicConstraints=CA:FALSE"]
    run(*new, *signed, "-keyout", folder / "server.key", "-out", folder / "server.pem", "-subj", "/CN=localhost")
    return folder / "ca.pem"


def require(*programs: str) -> None:
    for program in programs:
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            raise NotPossible(f"{program} is not installed")


def _as_user(user: int | None) -> list[str]:
    return [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@contextmanager
def process(command: Sequence[str], env: Mapping[str, str], log: Path, origin: str) -> Iterator[None]:
    """Run a server until the block ends. Waits until it is ready."""
    with log.open("ab") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as started:

        def running() -> bool:
            return started.poll() is None

        try:
            until_ready(origin, log.read_text, running)
            yield
        finally:
            started.terminate()
            try:
                started.wait(SECONDS)
            except subprocess.TimeoutExpired:
                started.kill()


def until_ready(origin: str, logged: Callable[[], str], running: Callable[[], bool] = lambda: True) -> None:
    """Wait until a server is ready for requests. Raises AssertionError with what it logged if it does not get ready."""

    def ready() -> bool:
        assert running(), f"the server of {origin} ended:\n{logged()[-3000:]}"
        return _is_ready(origin)

    if not within(SECONDS, ready):
        raise AssertionError(f"{origin} is not ready after {SECONDS:.0f} s:\n{logged()[-3000:]}")


def within(seconds: float, happens: Callable[[], bool]) -> bool:
    """Whether something happens within this time."""
    tick = threading.Event()
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline:
            return False
        tick.wait(0.2)
    return True


def _is_ready(origin: str) -> bool:
    try:
        # The server answers only to names that it knows; each form knows this one.
        asked = httpx2.get(f"{origin}/readyz", headers={"Host": "localhost"}, verify=False, trust_env=False, timeout=5)
        return asked.status_code == 200
    except httpx2.HTTPError:
        return False
