"""The commands' own help: it fits a screen, matches the reference, and completes in every shell."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from scripts import cli_reference
from toolcrib.cli.main import command_line, main

COLUMNS, LINES = 80, 36


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*words, name))


APP = command_line()
ALL = dict(commands(typer.main.get_command(APP)))


def test_every_command_exists() -> None:
    wanted = (
        "serve chat run tool undo redo log approve answer agents models mcp doctor db audit workspace user key "
        "sessions runs nodes"
    )

    assert {(name,) for name in wanted.split()} <= set(ALL)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_fits_a_screen_and_shows_an_example(words: tuple[str, ...]) -> None:
    shown = CliRunner(env={"COLUMNS": str(COLUMNS), "TERM": "dumb"}).invoke(APP, [*words, "--help"])

    lines = shown.output.splitlines()
    assert shown.exit_code == 0
    assert max(map(len, lines)) <= COLUMNS
    assert len(lines) <= LINES
    # A group without an action of its own shows its commands instead.
    if not getattr(ALL[words], "no_args_is_help", False):
        assert "Example" in shown.output


def test_the_reference_matches_the_commands() -> None:
    assert cli_reference.PAGE.read_text() == cli_reference.page(), "Run .venv/bin/python scripts/cli_reference.py"


@pytest.mark.parametrize("words", ["--continue", "-c", "--resume last", "--trust guided", "-C ."])
def test_options_of_a_chat_need_no_command(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["toolcrib", *words.split(), "--help"])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 0
    assert "toolcrib chat [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_available_for_every_shell(shell: str) -> None:
    runner = CliRunner(env={"_TOOLCRIB_COMPLETE": f"source_{shell}"})
    script = runner.invoke(APP, prog_name="toolcrib").output

    assert "toolcrib" in script
    assert "_TOOLCRIB_COMPLETE" in script
