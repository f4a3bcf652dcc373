"""Commands start quickly: they import no heavy library that they do not need. `python -m bench start` has the times."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.local_machine import Laptop, laptop, user_of_laptop
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE

# Each takes tens of milliseconds to import, some more than half a second.
SERVER = {"fastapi", "starlette", "uvicorn", "websockets", "jwt", "toolcrib.api", "toolcrib.wiring"}
QUEUE = {"dbos", "sqlalchemy", "alembic"}
CLIENTS = {"aiohttp", "httpx2", "redis", "openai", "anthropic", "genai_prices"}
OTHERS = {"textual", "mcp", "jsonschema", "jsonschema_rs", "cryptography", "toolcrib.cli.terminal"}
BASIC = {"pydantic", "pydantic_settings", "psycopg", "psycopg_pool", "rich", "ruamel", "structlog", "re2", "asyncio"}
# What the first word of a model does not need.
UNNEEDED = {"textual", "mcp", "jsonschema", "redis", "openai", "anthropic", "toolcrib.cli.terminal"}
WRITES = ("write", {"path": "/a.txt", "content": "a\n"})


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


@pytest.fixture(scope="module")
def project(own: Laptop) -> Path:
    """A directory with one call in its log, and no chat open."""
    made = own.project()
    own.model.script = [says("", WRITES), says("Written.")]
    own.says("run", "--trust", "autonomous", "Write it", at=made)
    return made


def started(own: Laptop, *arguments: str, at: Path) -> tuple[str, set[str]]:
    """Run a command in a process of its own. Returns what it printed, and the modules that it imported."""
    ended = subprocess.run(
        [own.program, *arguments],
        cwd=at,
        env=own.environment | {"PYTHONPROFILEIMPORTTIME": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        user=user_of_laptop(),
        group=user_of_laptop(),
        extra_groups=None if user_of_laptop() is None else [],
    )
    return ended.stdout, imported(ended.stderr)


def imported(profile: str) -> set[str]:
    """Return the modules in the output of ``-X importtime``, with the packages that they are in.

    It lacks a module that ``import_module`` loads, but not what that module imports.
    """
    names = re.findall(r"^import time: .*\| +(\S+)$", profile, re.MULTILINE)
    return {".".join(name.split(".")[: depth + 1]) for name in names for depth in range(name.count(".") + 1)}


def test_the_version_is_printed_without_any_library_but_that_of_the_command_line(own: Laptop, project: Path) -> None:
    shown, modules = started(own, "--version", at=project)

    assert shown.startswith("toolcrib ")
    assert "typer" in modules
    assert sorted(modules & (SERVER | QUEUE | CLIENTS | OTHERS | BASIC)) == []


def test_the_log_is_read_without_a_server(own: Laptop, project: Path) -> None:
    shown, modules = started(own, "log", at=project)

    assert "write /a.txt" in shown
    assert "by assistant" in shown
    assert "psycopg" in modules
    assert sorted(modules & (SERVER | QUEUE | CLIENTS | OTHERS | {"pydantic_settings"})) == []


@pytest.mark.long
def test_the_log_without_a_server_is_the_log_with_one(own: Laptop, project: Path) -> None:
    without = [own.says("log", *options, at=project) for options in ((), ("--json",), ("--all", "-n", "3"))]
    with own.terminal("chat", "--plain", at=project) as chat:
        chat.until("> ")
        beside = [own.says("log", *options, at=project) for options in ((), ("--json",), ("--all", "-n", "3"))]
        chat.end()

    assert without == beside


@pytest.mark.long
def test_the_first_word_waits_for_no_library_that_it_does_not_need(own: Laptop, project: Path) -> None:
    own.model.script = [says("Splendid")]

    with own.terminal("run", "Hello", at=project, PYTHONPROFILEIMPORTTIME="1") as run:
        modules = imported(run.until("Splendid"))
        run.process.wait(PATIENCE)

    assert {"fastapi", "aiohttp"} <= modules
    # The queue is opened after five seconds; tests/unit/runs/test_engine_import.py shows that nothing else loads it.
    assert sorted(modules & UNNEEDED) == []


@pytest.mark.long
def test_the_log_of_a_directory_whose_process_was_killed_is_shown_by_a_server(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("", WRITES), says("Written.")]
    with own.terminal("chat", "--plain", "--trust", "autonomous", at=project) as chat:
        chat.until("> ")
        chat.type("Write it")
        chat.until("Written.")
        chat.until("\n> ")
        chat.kill()

    # It records what the killed process left behind, and ends in order.
    first, modules = started(own, "log", at=project)
    second, later = started(own, "log", at=project)

    assert "write /a.txt" in first
    assert "fastapi" in modules
    assert second == first
    assert "fastapi" not in later
