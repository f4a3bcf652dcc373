"""Runs the fenced blocks of a page in order: executes programs and commands, checks data.

``NOT_RUN`` lists each block that is not run, with the reason. There is no other exception.
"""

import configparser
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer.main

from tests.docs.blocks import Block, blocks_of
from tests.docs.docs_server import Stage
from tests.fakes.packages import DOCUMENT, package_of
from toolcrib import Toolcrib
from toolcrib.cli.main import command_line
from toolcrib.policy.agent_definition import parse_definition
from toolcrib.workspace.packages.package_archive import read_archive_parts

INSTALLS = "Installs from a package registry; the campaign `first-minute` installs the wheel into a clean environment."
PREPARES = "Prepares the machine that this test runs on, or is the gate that this test is part of."
DEPLOYS = "Needs root, or a container runtime or a cluster; `make release-check` starts what the machine allows."
CONTAINERS = "docs/operations/containers.md"
IN_COMPOSE = "docker compose --env-file toolcrib.env --file deploy/compose.yaml run --rm -T migrate"
PROXY = "docs/operations/proxy.md"
UPGRADE = "docs/operations/upgrade.md"
PIPX = "sudo apt-get install pipx ripgrep bubblewrap postgresql"
NOT_RUN: Mapping[tuple[str, str], str] = {
    ("README.md", PIPX): INSTALLS,
    ("README.md", "make setup      # as root it installs what is missing, PostgreSQL and ripgrep included"): PREPARES,
    ("CONTRIBUTING.md", "make setup      # as root it installs system packages; otherwise it names what is missing"): (
        PREPARES
    ),
    ("docs/quickstart.md", PIPX): INSTALLS,
    ("docs/tutorials/clients.md", "pipx install toolcrib && pipx inject toolcrib 'mcp>=2.3,<3'"): INSTALLS,
    ("docs/operations/install.md", "pip install 'toolcrib[server]'"): INSTALLS,
    (
        "docs/operations/install.md",
        "useradd --system --home-dir /var/lib/toolcrib --shell /usr/sbin/nologin toolcrib",
    ): DEPLOYS,
    (CONTAINERS, "make release"): DEPLOYS,
    (
        CONTAINERS,
        "docker run --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \\",
    ): DEPLOYS,
    (CONTAINERS, "docker compose --env-file toolcrib.env --file deploy/compose.yaml up --detach"): DEPLOYS,
    (CONTAINERS, f"{IN_COMPOSE} backup /backups/monday"): DEPLOYS,
    (CONTAINERS, f"{IN_COMPOSE} restore --from /backups/monday"): DEPLOYS,
    (
        CONTAINERS,
        "helm install crib deploy/helm/toolcrib --namespace tools --set secret=toolcrib --set image.repository=…",
    ): DEPLOYS,
    ("docs/operations/backup.md", "pip install --upgrade toolcrib"): INSTALLS,
    (PROXY, "TOOLCRIB_DOMAIN=toolcrib.example.com caddy run --config deploy/proxy/Caddyfile"): DEPLOYS,
    (PROXY, "nginx -t && systemctl reload nginx"): DEPLOYS,
    (UPGRADE, "systemctl stop toolcrib"): DEPLOYS,
    (UPGRADE, "/opt/toolcrib/bin/python -m pip install --upgrade 'toolcrib[server]'"): INSTALLS,
    (UPGRADE, "systemctl start toolcrib"): DEPLOYS,
}
# Diagrams and similar blocks; there is nothing to run.
SHOWN = "text"
RUN = ("bash", "console", "env", "ini", "json", "python", "yaml")


def run_page(page: str, stage: Stage) -> None:
    """Run the blocks of a page in order."""
    blocks = [block for block in blocks_of(page) if is_run(block)]
    folder = stage.project if goes_into_the_project(blocks) else stage.base
    for block in blocks:
        # A file that the page shows, perhaps further down, exists from the start.
        if block.title is not None:
            stage.save(folder / block.title, block.body)
    with worked_on(stage, blocks):
        for block in blocks:
            try:
                run(block, stage)
            except BaseException as error:
                error.add_note(str(block))
                raise


def is_run(block: Block) -> bool:
    return block.language != SHOWN and (block.page, block.first_line) not in NOT_RUN


def goes_into_the_project(blocks: Sequence[Block]) -> bool:
    return any("cd my-project" in block.body for block in blocks)


def run(block: Block, stage: Stage) -> None:
    match block.language:
        case "bash":
            stage.bash(block.body)
        case "console":
            converse(block, stage)
        case "python":
            stage.python(block.body, str(block))
        case "yaml":
            parse_definition(block.body)
        case "json":
            check_json(block)
        case "ini":
            check_unit(block)
        case "env":
            parse_variables(block.body)
        case language:
            raise AssertionError(f"Nobody knows how to run {language!r}.")


@contextmanager
def worked_on(stage: Stage, blocks: Sequence[Block]) -> Iterator[None]:
    """Opens the project for the reader and keeps it open, so that the commands find a running server and are fast.

    A program with custom tools must open the project itself.
    """
    bodies = "".join(block.body for block in blocks)
    if "my-project" not in bodies or "tools=[" in bodies:
        yield
        return
    with stage.as_reader(), Toolcrib(stage.project, trust="autonomous") as opened:
        opened.run("Work here before the reader comes")
        yield


def converse(block: Block, stage: Stage) -> None:
    """Runs each command and compares its output; ``…`` matches anything."""
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.body, re.MULTILINE):
        said = stage.bash(command)
        pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
        assert re.fullmatch(pattern, said.strip(), re.DOTALL), f"{command} said:\n{said}\nand not:\n{expected}"


def check_json(block: Block) -> None:
    """Checks data: a client's configuration starts our command; a workflow's graph and a tool's schema are valid."""
    data = json.loads(block.body)
    if "mcpServers" in data:
        for one in data["mcpServers"].values():
            read_as_command_line([one["command"], *one["args"]])
        return
    if "servers" in data:
        assert all(one["type"] == "http" and one["url"] and one["headers"] for one in data["servers"].values())
        return
    if "edges" in data:
        read_archive_parts(package_of(files={"workflow.md": DOCUMENT, "workflow.graph.json": block.body}))
        return
    assert data["type"] == "object"
    assert "properties" in data


def check_unit(block: Block) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block.body)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    read_as_command_line([Path(program).name, *arguments])


def parse_variables(text: str) -> dict[str, str]:
    """Parse a file of variables as container runtimes do: one ``NAME=value`` per line, values as they are."""
    lines = [line.partition("=") for line in text.splitlines()]
    assert all(name.isidentifier() and equals for name, equals, _ in lines), text
    return {name: value for name, _, value in lines}


def read_as_command_line(words: Sequence[str]) -> None:
    """Parses a command as the command line would, without running it."""
    program, *rest = words
    assert program == "toolcrib"
    command: Any = typer.main.get_command(command_line())
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    command.make_context(program, rest)
