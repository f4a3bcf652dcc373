"""``toolcrib doctor``: checks the isolation of the sandbox and the Python tools of a server, and suggests fixes."""

import asyncio
import os
from pathlib import Path
from typing import Any

import typer

from toolcrib.cli.command_options import JsonOption
from toolcrib.cli.terminal_text import one_line, print_json
from toolcrib.core.errors import Misconfigured
from toolcrib.local.state_directory import LocalDirectories
from toolcrib.sandbox.sandbox import Isolation, Sandbox
from toolcrib.sandbox.transaction import has_foreign

_FOREIGN_FILES = (
    "Files in this directory have another owner or group than you. Commands of agents work on a copy of such a "
    "project, and cannot change these files if it has more than 128 MiB (Value too large for defined data type). If "
    'the files need no other group: chgrp -R "$(id -gn)" .'
)


def doctor(as_json: JsonOption = False) -> None:
    """Check sandbox isolation and the tools of installed Python packages.

    Exits with 1 if agents cannot run commands here, or if a server would not start because of a package.

    Example: toolcrib doctor --json
    """
    found = asyncio.run(Sandbox(staging=_staging()).probe())
    tools = _python_tools()
    # As root, a server runs commands as the owner of each project.
    is_shared = os.geteuid() != 0 and has_foreign(Path.cwd())
    if as_json:
        print_json(_facts(found) | {"python_tools": tools, "foreign_files": is_shared})
    else:
        _print(found)
        if is_shared:
            typer.echo(_FOREIGN_FILES)
        _print_tools(tools)
    raise typer.Exit(0 if found.offered and not tools["error"] else 1)


def _staging() -> Path | None:
    """Where the commands of a server with this environment would run; None if that is not there, or another user's."""
    named = os.environ.get("TOOLCRIB_DATA_DIR")
    data = Path(named) if named else LocalDirectories.place()
    # What root created there, the server's user could not enter.
    is_ours = os.access(data, os.W_OK | os.X_OK) and data.stat().st_uid == os.geteuid()
    return data / "staging" if is_ours else None


def _python_tools() -> dict[str, Any]:
    # Here, because most commands do not need it.
    from toolcrib.tools.python_tools import load_python_tools

    try:
        loaded = load_python_tools(os.environ.get("TOOLCRIB_TOOLS_MODULE"))
    except Misconfigured as error:
        return {"tools": {}, "error": error.message}
    return {"tools": {tool.name: tool.source for tool in loaded}, "error": None}


def _print_tools(tools: dict[str, Any]) -> None:
    for name, source in tools["tools"].items():
        typer.echo(f"Python tool: {one_line(name, 80)}, from {one_line(source, 200)}")
    if tools["error"]:
        typer.secho(one_line(tools["error"], 1_000), fg=typer.colors.RED)


def _facts(found: Isolation) -> dict[str, object]:
    return {
        "level": found.level,
        "minimum": found.minimum,
        "offered": found.offered,
        "overlay": found.overlay,
        "passed": list(found.held),
        "gaps": [
            {"name": gap.name, "fact": gap.fact, "remedy": gap.remedy, "lowers_the_level": gap.open}
            for gap in found.gaps
        ],
    }


def _print(found: Isolation) -> None:
    state, colour = ("on", typer.colors.GREEN) if found.offered else ("OFF", typer.colors.RED)
    typer.secho(f"Commands are {state}: isolation is '{found.level}', required is '{found.minimum}'.", fg=colour)
    typer.echo(f"Isolated: {', '.join(found.held) or 'nothing'}.")
    for gap in found.gaps:
        typer.secho(f"{'Degraded' if gap.open else 'Fallback'}: {gap.fact}", fg=typer.colors.YELLOW)
        typer.echo(f"  Fix: {gap.remedy}")
