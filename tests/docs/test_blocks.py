"""Runs every fenced block of the documentation: executes programs and commands, checks data.

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

import pytest
import typer.main

from tests.acceptance.local_machine import Model, model_beside
from tests.conftest import DatabaseUrls
from tests.docs.blocks import Block, blocks_of, pages
from tests.docs.docs_server import Obliging, Stage, staged
from tests.fakes.packages import DOCUMENT, package_of
from toolcrib import Toolcrib
from toolcrib.cli.main import command_line
from toolcrib.policy.agent_definition import parse_definition
from toolcrib.workspace.packages.package_archive import read_archive_parts

INSTALLS = "Installs from a package registry; `make first-minute` installs the wheel into a clean environment."
PREPARES = "Prepares the machine that this test runs on, or is the gate that this test is part of."
PIP = "pip install toolcrib"
NOT_RUN: Mapping[tuple[str, str], str] = {
    ("README.md", PIP): INSTALLS,
    ("README.md", "make setup      # as root it installs what is missing, PostgreSQL and ripgrep included"): PREPARES,
    ("CONTRIBUTING.md", "make setup      # as root it installs system packages; otherwise it names what is missing"): (
        PREPARES
    ),
    ("docs/quickstart.md", PIP): INSTALLS,
    ("docs/operations/install.md", "pip install 'toolcrib[server]'"): INSTALLS,
    ("docs/operations/backup.md", "pip install --upgrade toolcrib"): INSTALLS,
}
# Diagrams and similar blocks; there is nothing to run.
SHOWN = "text"
RUN = ("bash", "console", "ini", "json", "python", "yaml")

PAGES = pages()
# Examples of the help texts. Their ids and files do not exist, so they are only parsed as the command line would.
REFERENCE = "docs/reference/cli.md"

pytestmark = pytest.mark.req("CL-1", part="documentation")


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with model_beside(Obliging()) as fake:
        yield fake


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of one reader's Toolcrib, with its secrets."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def stage(tmp_path: Path, home: Path, model: Model, database_urls: DatabaseUrls) -> Iterator[Stage]:
    with staged(tmp_path, home, model, database_urls) as made:
        yield made


def is_run(block: Block) -> bool:
    return block.language != SHOWN and (block.page, block.first_line) not in NOT_RUN


@pytest.mark.parametrize("page", [page for page in PAGES if page != REFERENCE])
def test_the_blocks_of_a_page_run_in_order(page: str, stage: Stage) -> None:
    blocks = [block for block in blocks_of(page) if is_run(block)]
    folder = stage.project if goes_into_the_project(blocks) else stage.base
    for block in blocks:
        # A file that the page shows, perhaps further down, exists from the start.
        if block.title is not None:
            (folder / block.title).write_text(block.body)
    with worked_on(stage, blocks):
        for block in blocks:
            try:
                run(block, stage)
            except BaseException as error:
                error.add_note(str(block))
                raise


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


def read_as_command_line(words: Sequence[str]) -> None:
    """Parses a command as the command line would, without running it."""
    program, *rest = words
    assert program == "toolcrib"
    command: Any = typer.main.get_command(command_line())
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    command.make_context(program, rest)


def test_the_examples_of_the_reference_can_be_parsed() -> None:
    for block in blocks_of(REFERENCE):
        assert block.language == "bash"
        for part in re.split(r"&&|\|\||\$\(|[|)>]", block.body):
            words = shlex.split(part)
            if "toolcrib" in words:
                read_as_command_line(words[words.index("toolcrib") :])


def test_no_block_is_skipped_without_a_current_reason() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]

    unknown = [str(block) for block in blocks if block.language not in (SHOWN, *RUN)]
    stale = set(NOT_RUN) - {(block.page, block.first_line) for block in blocks}
    assert unknown == [], "Say what language they are in; `text` is for what cannot be run."
    assert stale == set(), "These are not there any more."
    assert all(reason.strip() for reason in NOT_RUN.values())


def test_pages_hide_no_commands_in_text_blocks() -> None:
    hidden = [
        str(block)
        for page in PAGES
        for block in blocks_of(page)
        if block.language == SHOWN and re.search(r"^\s*(\$ |toolcrib |pip |import |from )", block.body, re.MULTILINE)
    ]
    assert hidden == []
