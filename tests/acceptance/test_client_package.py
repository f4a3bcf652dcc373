"""A machine that only uses a server: few packages, and nothing that only Linux has."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.wait_until import PATIENCE

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 25
# Modules of Python that Windows lacks.
POSIX = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")


def requirements(folder: str = ".") -> list[Requirement]:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return [Requirement(one) for one in project["dependencies"]]


def closure() -> set[str]:
    """The distributions that the client's requirements install."""
    found: set[str] = set()
    waiting = list(requirements("packages/client"))
    while waiting:
        wanted = waiting.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in found:
            continue
        found.add(name)
        for one in map(Requirement, distribution(name).requires or ()):
            extras = wanted.extras or {""}
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(one)
    return found


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the client's wheel and only the packages that it requires, lent by ours."""
    dist, folder = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("venv")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=ROOT / "packages" / "client", check=True, capture_output=True, timeout=PATIENCE)
    (wheel,) = dist.glob("toolcrib_client-*.whl")
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for name in closure():
        for top in {Path(file).parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(distribution(name).locate_file(top)))
    return folder / "bin" / "python"


def test_client_has_every_file_that_its_commands_open(client: Path) -> None:
    source, installed = ROOT / "src" / "toolcrib", client.parents[1].glob("lib/*/site-packages/toolcrib")
    [packed] = installed
    elsewhere = (source / "api" / "web", source / "storage" / "sql", source / "storage" / "migrations")
    wanted = {
        path.relative_to(source)
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not any(map(path.is_relative_to, elsewhere))
    }

    assert {path for path in wanted if not (packed / path).is_file()} == set()


def run(client: Path, *arguments: str, without: tuple[str, ...] = (), **environment: str) -> tuple[int, str]:
    """Run the command in the client's environment, without some modules. Returns its status and what it printed."""
    missing = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    ended = subprocess.run(
        [client, "-P", "-c", f"import sys; {missing}from toolcrib.cli.main import main; main()", *arguments],
        env={"PATH": os.defpath, "NO_COLOR": "1", "HOME": str(client.parent), **environment},
        cwd=client.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def on(server: Serving, ada: Someone, workspace: Workspace) -> dict[str, str]:
    return {"TOOLCRIB_SERVER": server.origin, "TOOLCRIB_TOKEN": ada.token, "TOOLCRIB_WORKSPACE": workspace.id}


def test_the_client_requires_what_every_system_gets() -> None:
    everywhere = {str(one) for one in requirements() if one.marker is None}
    elsewhere = [one for one in requirements() if one.marker is not None]

    assert {str(one) for one in requirements("packages/client")} == everywhere
    assert len(closure()) <= MOST_PACKAGES
    assert all(one.marker is not None and not one.marker.evaluate({"sys_platform": "win32"}) for one in elsewhere)
    assert all(one.marker is not None and not one.marker.evaluate({"sys_platform": "darwin"}) for one in elsewhere)


def test_commands_use_a_server(client: Path, server: Serving, ada: Someone, workspace: Workspace) -> None:
    remote = on(server, ada, workspace)

    wrote = run(client, "tool", "write", "--path", "/a.md", "--content", "From afar\n", without=POSIX, **remote)
    read = run(client, "tool", "read", "--path", "/a.md", without=POSIX, **remote)
    log = run(client, "log", without=POSIX, **remote)

    assert wrote[0] == 0, wrote[1]
    assert "From afar" in read[1]
    assert "write /a.md" in log[1]


def test_the_library_uses_a_server(client: Path, server: Serving, ada: Someone, workspace: Workspace) -> None:
    program = (
        "from toolcrib import Toolcrib\n"
        f"with Toolcrib(server={server.origin!r}, workspace={workspace.id!r}) as crib:\n"
        "    print([one.tool for one in crib.log()])\n"
    )
    workspace.call("write", path="/b.md", content="b")
    ended = subprocess.run(
        [client, "-P", "-c", program],
        env={"PATH": os.defpath, "TOOLCRIB_TOKEN": ada.token},
        cwd=client.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert "'write'" in ended.stdout, ended.stderr


@pytest.mark.parametrize("command", [["serve"], ["doctor"], ["chat", "--plain"], ["log"], ["db", "upgrade"]])
def test_what_needs_a_server_installation_says_so(client: Path, command: list[str]) -> None:
    status, said = run(client, *command)

    assert status == 2
    assert "This installation is a client" in said
    assert "--server" in said
    assert "pip install toolcrib" in said
    assert "Traceback" not in said


def test_help_shows_what_the_client_can_do(client: Path) -> None:
    status, said = run(client, "--help", without=POSIX)

    assert status == 0, said
    assert "approve" in said
    assert "serve" not in said
