"""The forms that run in containers, by podman: the image, compose, and a new Debian for the unit and for the README."""

import errno
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.acceptance.serving import free_port
from tests.deploy.forms import (
    BUILD_SECONDS,
    DEPLOY,
    ROOT,
    process,
    released_wheel,
    require,
    run,
    settings,
    until_ready,
    within,
)
from tests.deploy.smoke import PERSON, SECONDS, Deployment, require_kept

BASE: Final = "debian:12-slim"
IMAGE: Final = "localhost/toolcrib:release-check"
STORES: Final = "localhost/toolcrib-stores:release-check"
MACHINE: Final = "localhost/toolcrib-machine:release-check"
# A label of the base says where it is from.
ORIGIN: Final = "toolcrib.origin"
SERVER: Final = "/opt/toolcrib/bin/toolcrib"
# What docs/operations/containers.md tells to use with podman.
CONFINED: Final = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")
SECCOMP: Final = f"--security-opt=seccomp={DEPLOY / 'seccomp.json'}"
UNMASKED: Final = "--security-opt=unmask=ALL"
NAMESPACES: Final = (SECCOMP, UNMASKED)
# Nested machines may not raise limits, and may lack what crun needs. The host's network is for the tests' database.
PODMAN: Final = ("podman", "--runtime=runc")
LIMITS: Final = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")
_PULL_SECONDS: Final = 60.0
_AUTHORITIES: Final = "/usr/local/share/authorities.pem"
_OF_PACKAGES: Final = ("cert", "find-links", "index-url", "extra-index-url", "trusted-host")
PODMAN_RUN: Final = (*PODMAN, "run", "--rm", "--network=host", *LIMITS)


def build_image() -> str:
    """Build the image from the release. Returns where its base is from."""
    base = base_image()
    _build(IMAGE, "--file=deploy/Dockerfile", str(ROOT))
    return base


def base_image() -> str:
    """Provide the base of the Dockerfile. Where no registry can be reached, debootstrap makes it."""
    require("podman", "runc")
    if _has_image(BASE):
        labels = json.loads(run("podman", "image", "inspect", "--format={{json .Labels}}", BASE)) or {}
        return f"a base by {labels[ORIGIN]}" if ORIGIN in labels else "the base that was here"
    if _pulled(BASE):
        return "the base of the registry"
    require("debootstrap")
    with tempfile.TemporaryDirectory(prefix="toolcrib-base-", dir="/var/tmp") as folder:
        run("debootstrap", "--variant=minbase", "bookworm", f"{folder}/root", seconds=BUILD_SECONDS)
        run("tar", "--create", f"--file={folder}/base.tar", f"--directory={folder}/root", ".", seconds=BUILD_SECONDS)
        made = (f"--change=LABEL={ORIGIN}=debootstrap", '--change=CMD=["bash"]')
        run("podman", "import", *made, f"{folder}/base.tar", BASE, seconds=BUILD_SECONDS)
    return "a base by debootstrap"


def doctor_in_image(*options: str) -> tuple[int, str]:
    """Run ``toolcrib doctor`` in the image with these options. Returns its status and output."""
    ended = subprocess.run(
        [*PODMAN_RUN, *CONFINED, *options, IMAGE, "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    # Podman itself warns on the standard error output.
    return ended.returncode, ended.stdout or ended.stderr


def require_doctor_in_image(folder: Path) -> None:
    """Require namespaces with the documented options, and without one of them its name in what doctor says."""
    folder.mkdir()
    status, said = doctor_in_image(*NAMESPACES)
    assert status == 0, f"doctor fails inside the image: {said}"
    assert json.loads(said)["level"] == "namespaces", said
    for options, missing, remedy in (
        # Podman's own profile refuses only the sandbox's host name; Docker's refuses all of them.
        (
            (f"--security-opt=seccomp={_profile_without_namespaces(folder)}", UNMASKED),
            "new-namespaces",
            "seccomp=seccomp.json",
        ),
        ((SECCOMP,), "new-proc", "unmask=ALL"),
    ):
        status, said = doctor_in_image(*options)
        assert status == 1, f"doctor passes with {options} only: {said}"
        gaps = {gap["name"]: gap["remedy"] for gap in json.loads(said)["gaps"] if gap["lowers_the_level"]}
        assert remedy in gaps.get(missing, ""), f"with {options} only, doctor does not name {missing}: {said}"


def _profile_without_namespaces(folder: Path) -> Path:
    """The profile of deploy/, but without the calls that it adds to Docker's own."""
    profile = json.loads((DEPLOY / "seccomp.json").read_text())
    added, *others = profile["syscalls"]
    assert {"clone", "unshare", "mount"} <= set(added["names"]), added
    # As Docker: processes and threads, but none in a new namespace, for which it looks at the flags of clone.
    no_new_namespace = {"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    processes = {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [no_new_namespace]}
    forbidden = [name for name in added["names"] if name not in ("clone", "clone3")]
    refused = {"names": forbidden, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    path = folder / "seccomp.json"
    path.write_text(json.dumps(profile | {"syscalls": [processes, refused, *others]}))
    return path


@contextmanager
def from_image(folder: Path) -> Iterator[Deployment]:
    """The image, with the documented options."""
    folder.mkdir()
    name = f"toolcrib-{secrets.token_hex(4)}"
    with settings(TOOLCRIB_HOST="127.0.0.1") as given:
        variables = [f"--env={key}={value}" for key, value in given.environment.items()]
        options = [*CONFINED, *NAMESPACES, f"--volume={name}:/data", *variables]

        def inside(*arguments: str) -> str:
            return run("podman", "exec", name, SERVER, *arguments)

        with _removed(name):
            run(*PODMAN_RUN, *options, IMAGE, "db", "upgrade")
            started = [*PODMAN_RUN, f"--name={name}", *options, IMAGE]
            with process(started, dict(os.environ), folder / "log", given.origin):
                _require_confined(name)
                # Its own health check, as podman runs it.
                run("podman", "healthcheck", "run", name)
                yield Deployment(given.origin, inside, (folder / "log").read_text, given.metrics_token)


def _require_confined(name: str) -> None:
    """Require that the server is not root, and that the root file system is read-only."""
    owner = run("podman", "exec", name, "stat", "--format=%u", "/proc/1").strip()
    assert owner == "10001", f"The server runs as user {owner}."
    written = subprocess.run(["podman", "exec", "--user=0", name, "touch", "/etc/x"], capture_output=True, check=False)
    assert b"Read-only file system" in written.stderr, f"The root file system can be written: {written.stderr!r}"


@contextmanager
def by_compose(folder: Path, stores: "Stores") -> Iterator[Deployment]:
    """``deploy/compose.yaml`` by podman-compose, with the secrets that its documentation generates."""
    require("podman", "runc", "podman-compose")
    folder.mkdir()
    port, metrics, project = free_port(), secrets.token_urlsafe(48), f"crib{secrets.token_hex(3)}"
    names = ("POSTGRES_PASSWORD", "TOOLCRIB_APP_PASSWORD", "TOOLCRIB_JWT_SECRET", "TOOLCRIB_AUDIT_SEAL_KEY")
    values = {name: secrets.token_hex(32) for name in (*names, "TOOLCRIB_CREDENTIALS_ENCRYPTION_KEY")}
    values |= {"TOOLCRIB_IMAGE": IMAGE, "TOOLCRIB_PUBLISH": f"127.0.0.1:{port}", **stores.images}
    values |= {"TOOLCRIB_ADMIN_EMAIL": PERSON["email"], "TOOLCRIB_ADMIN_PASSWORD": PERSON["password"]}
    # The model of the smoke test is on the machine itself.
    more = {"TOOLCRIB_METRICS_TOKEN": metrics, "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*"}
    (folder / "more.yaml").write_text(json.dumps({"services": {"toolcrib": {"environment": more}}}))
    (folder / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
    )
    # Debian's podman-compose has no --env-file.
    env = {**os.environ, **values, "CONTAINERS_CONF": str(folder / "containers.conf")}
    compose = ["podman-compose", f"--project-name={project}"]
    compose += [f"--file={DEPLOY / 'compose.yaml'}", f"--file={folder / 'more.yaml'}"]
    server, origin = f"{project}_toolcrib_1", f"http://127.0.0.1:{port}"

    def inside(*arguments: str) -> str:
        return run("podman", "exec", server, SERVER, *arguments)

    def logged() -> str:
        return subprocess.run(
            ["podman", "logs", server], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        ).stdout

    try:
        run(*compose, "up", "--detach", env=env, seconds=BUILD_SECONDS)
        until_ready(origin, logged)
        deployment = Deployment(origin, inside, logged, metrics, "host.containers.internal", has_administrator=True)
        yield deployment
        with _all_lost_but_a_backup(project, compose, env):
            until_ready(origin, logged)
            require_kept(deployment)
            inside("audit", "verify")
    finally:
        subprocess.run([*compose, "down", "--volumes"], env=env, capture_output=True, timeout=SECONDS, check=False)


@contextmanager
def _all_lost_but_a_backup(project: str, compose: list[str], env: dict[str, str]) -> Iterator[None]:
    """Back up by the commands of docs/operations/containers.md, remove the database and the files, and restore."""

    def migrate(*command: str) -> str:
        return run(*compose, "run", "--rm", "-T", "migrate", *command, env=env, seconds=BUILD_SECONDS)

    assert "Not included" in (said := migrate("backup", "/backups/monday")), said
    run(*compose, "down", env=env)
    run("podman", "volume", "rm", f"{project}_database", f"{project}_files")
    run(*compose, "up", "--detach", "postgres", env=env)
    accepts = ["podman", "exec", f"{project}_postgres_1", "pg_isready", "--host=127.0.0.1", "--dbname=toolcrib"]
    started = within(SECONDS, lambda: subprocess.run(accepts, capture_output=True, check=False).returncode == 0)
    assert started, "PostgreSQL has not started."
    said = migrate("restore", "--from", "/backups/monday")
    assert "first: 1 files and folders restored." in said, said
    run(*compose, "up", "--detach", env=env, seconds=BUILD_SECONDS)
    yield


@dataclass(frozen=True)
class Stores:
    """The images of PostgreSQL and Redis for compose, as its variables, and where they are from."""

    images: dict[str, str]
    origin: str


def stores() -> Stores:
    """Provide PostgreSQL and Redis. Where no registry can be reached, others stand in."""
    base_image()
    if all(_has_image(image) or _pulled(image) for image in ("postgres:17", "redis:7")):
        return Stores({}, "the images of PostgreSQL and Redis that it names")
    _build(STORES, f"--file={ROOT / 'tests' / 'deploy' / 'stores.Dockerfile'}", str(ROOT / "tests" / "deploy"))
    return Stores(
        {"POSTGRES_IMAGE": STORES, "REDIS_IMAGE": STORES}, "another PostgreSQL and Redis instead of their images"
    )


@contextmanager
def by_systemd(folder: Path) -> Iterator[Deployment]:
    """The unit in a new Debian with systemd, installed by the commands of docs/operations/install.md."""
    folder.mkdir()
    with settings() as given, _machine(folder, "/lib/systemd/systemd") as name:

        def inside(*command: str, seconds: float = SECONDS) -> str:
            return run("podman", "exec", name, *command, seconds=seconds)

        def as_service(*arguments: str) -> str:
            variables = ("TOOLCRIB_ENV_FILE=/etc/toolcrib/toolcrib.env", "TOOLCRIB_DATA_DIR=/var/lib/toolcrib")
            return run("podman", "exec", "--user=toolcrib", name, "env", *variables, SERVER, *arguments)

        def logged() -> str:
            return inside("journalctl", "--unit=toolcrib", "--output=cat", "--no-pager")

        (folder / "toolcrib.env").write_text("".join(f"{key}={value}\n" for key, value in given.environment.items()))
        for line in _service_commands():
            inside("sh", "-ec", line, seconds=BUILD_SECONDS)
        until_ready(given.origin, logged)
        found = json.loads(as_service("doctor", "--json"))
        assert found["level"] == "namespaces", found
        yield Deployment(given.origin, as_service, logged, given.metrics_token)


def _service_commands() -> list[str]:
    """The commands that docs/operations/install.md has for the unit, with the release instead of a published one."""
    page = (ROOT / "docs" / "operations" / "install.md").read_text()
    block = page.partition("## The service")[2].partition("```bash\n")[2].partition("```")[0]
    assert "systemctl enable --now toolcrib" in block, block
    wheel = f"/work/{released_wheel().name}"
    commands = block.replace("'toolcrib[server]'", f"'toolcrib[server] @ file://{wheel}'")
    commands = commands.replace("apt-get install", "apt-get install --yes")
    # The new schema comes before the first start.
    first, service = commands.rsplit("systemctl enable", 1)
    upgrade = f"env TOOLCRIB_ENV_FILE=/etc/toolcrib/toolcrib.env {SERVER} db upgrade"
    lines = f"{first.rstrip(' &')} && {upgrade} && systemctl enable{service}".replace("\\\n", " ").splitlines()
    return [f"cd /work && {line}" for line in lines]


def from_readme(folder: Path) -> str:
    """Install by the README's first command in a new Debian, and use local mode there. Returns what was installed."""
    folder.mkdir()
    block = (ROOT / "README.md").read_text().partition("## Install")[2].partition("```bash\n")[2].partition("```")[0]
    assert "pipx install toolcrib" in block, block
    wheel = f"/work/{released_wheel().name}"
    commands = block.replace("apt-get install", "apt-get install --yes").replace("install toolcrib", f"install {wheel}")
    with _machine(folder, "sleep", "infinity") as name:

        def typed(text: str) -> str:
            shell = ["podman", "exec", "--user=ada", "--env=HOME=/home/ada", "--workdir=/home/ada", name]
            return run(*shell, "bash", "-ec", text, seconds=BUILD_SECONDS)

        typed(commands)
        said = [_use_local_mode(typed, "~/.local/bin/toolcrib")]
        # Of pip's settings, uv reads none: an authority of this machine must be named to it.
        typed(
            f"pipx install uv; [ ! -e {_AUTHORITIES} ] || export SSL_CERT_FILE={_AUTHORITIES}; "
            f"UV_TOOL_BIN_DIR=~/by-uv ~/.local/bin/uv tool install {wheel}"
        )
        said.append(_use_local_mode(typed, "~/by-uv/toolcrib"))
    assert len(set(said)) == 1, said
    return said[0]


def _use_local_mode(typed: Callable[[str], str], program: str) -> str:
    """Isolation, a change, search, a command, undo. Returns the version."""
    found = json.loads(typed(f"{program} doctor --json"))
    assert found["level"] == "namespaces", found
    project = f"project-{secrets.token_hex(3)}"
    at = f"mkdir -p {project} && cd {project} && {program}"
    typed(f"{at} tool write --path /notes.md --content '# Notes'")
    assert "/notes.md" in typed(f"{at} tool grep --pattern Notes")
    typed(f"{at} tool bash --command 'hostname > where.txt'")
    assert typed(f"cat {project}/where.txt") == "sandbox\n"
    typed(f"{at} undo")
    assert typed(f"ls {project}") == "notes.md\n"
    return typed(f"{program} --version").strip()


@contextmanager
def _machine(folder: Path, *first: str) -> Iterator[str]:
    """A new Debian in a container, as far as one is like a machine. The release is in /work. Yields its name."""
    base_image()
    _build(MACHINE, f"--file={ROOT / 'tests' / 'deploy' / 'machine.Dockerfile'}", str(ROOT / "tests" / "deploy"))
    shutil.copy(released_wheel(), folder)
    shutil.copytree(DEPLOY, folder / "deploy")
    name = f"toolcrib-{secrets.token_hex(4)}"
    with _removed(name), _package_settings() as shared:
        start = [*PODMAN, "run", "--detach", "--network=host", *LIMITS, f"--name={name}", f"--volume={folder}:/work"]
        run(*start, "--privileged", *shared, MACHINE, *first)
        yield name


def _build(image: str, *arguments: str) -> None:
    with _package_settings() as shared:
        build = [*PODMAN, "build", "--network=host", "--ulimit=nofile=1024:1024", "--format=docker", *shared]
        run(*build, f"--tag={image}", *arguments, seconds=BUILD_SECONDS)


@contextmanager
def _package_settings() -> Iterator[list[str]]:
    """Options that give a container this machine's settings of pip, and the files that they name."""
    listed = run(ROOT / ".local" / "release" / "bin" / "python", "-m", "pip", "config", "list").splitlines()
    found = {line.partition("=")[0].rpartition(".")[2]: literal_eval(line.partition("=")[2]) for line in listed}
    with tempfile.TemporaryDirectory(prefix="toolcrib-packages-", dir="/var/tmp") as folder:
        options = [f"--volume={path}:{path}:ro" for path in _local_directories(found)]
        if "cert" in found:
            shutil.copy(found["cert"], f"{folder}/authorities.pem")
            found["cert"] = _AUTHORITIES
            options.append(f"--volume={folder}/authorities.pem:{found['cert']}:ro")
        given = [f"{name} = {found[name].strip().replace(chr(10), ' ')}" for name in _OF_PACKAGES if name in found]
        Path(folder, "pip.conf").write_text("\n".join(["[global]", *given, ""]))
        yield [*options, f"--volume={folder}/pip.conf:/etc/pip.conf:ro"]


def _local_directories(found: Mapping[str, str]) -> set[Path]:
    """The directories of this machine that pip's settings name. The files of an index are beside it."""
    links = {Path(path) for path in found.get("find-links", "").split() if path.startswith("/")}
    urls = f"{found.get('index-url', '')} {found.get('extra-index-url', '')}".split()
    return links | {Path(url.removeprefix("file://")).parent for url in urls if url.startswith("file://")}


def _has_image(image: str) -> bool:
    return subprocess.run(["podman", "image", "exists", image], check=False).returncode == 0


def _pulled(image: str) -> bool:
    pull = ["podman", "pull", "--quiet", image]
    try:
        return subprocess.run(pull, capture_output=True, timeout=_PULL_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@contextmanager
def _removed(name: str) -> Iterator[None]:
    """Remove this container and its volume of the same name at the end."""
    try:
        yield
    finally:
        for remove in (["rm", "--force", "--ignore", "--time=5"], ["volume", "rm", "--force"]):
            subprocess.run(["podman", *remove, name], capture_output=True, timeout=SECONDS, check=False)
