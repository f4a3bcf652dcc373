"""``toolcrib sessions``: lists sessions and shows their messages."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceLocation,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import age, one_line, plain
from toolcrib.client import SessionData
from toolcrib.core.errors import NotFound

_LOOKED_AT = 200


def sessions(
    session: Annotated[
        str | None, typer.Argument(help="Show this session: its id, the end of its id, or `last`.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_LOOKED_AT, help="Number of sessions.")] = 20,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """List sessions, newest first, or show the messages of one.

    Example: toolcrib sessions last
    """
    with open_workspace(directory, server=server, workspace=workspace) as location:
        if session is not None:
            _show(location, find_session(location, session), as_json=as_json)
            return
        found = location.client.sessions(location.id, limit=limit)
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in found]))
        return
    if not found:
        typer.echo("No sessions yet.")
        return
    table = Table("id", "age", "mode", "title", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found:
        table.add_row(str(one.id)[-8:], age(one.created_at), one.mode, Text(one_line(one.title or "", 60)))
    Console().print(table)
    typer.echo("\nContinue with: toolcrib chat --resume ID")


def find_session(location: WorkspaceLocation, text: str) -> SessionData:
    """Returns the session whose id is, or ends with, ``text``; ``last`` is the newest."""
    found = location.client.sessions(location.id, limit=_LOOKED_AT)
    fitting = found[:1] if text == "last" else [one for one in found if str(one.id).endswith(text.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise NotFound(f"There is no session {one_line(text, 60)!r}. `toolcrib sessions` lists them.")
    raise NotFound(
        f"{len(fitting)} sessions have an id that ends with {one_line(text, 60)!r}. Give more characters of the id."
    )


def _show(location: WorkspaceLocation, session: SessionData, *, as_json: bool) -> None:
    messages = location.client.messages(location.id, session.id)
    if as_json:
        typer.echo(json.dumps([message.model_dump(mode="json") for message in messages]))
        return
    for message in messages:
        if message.content.strip():
            typer.echo(f"{'> ' if message.role == 'user' else ''}{plain(message.content)}\n")
        for call in (message.metadata or {}).get("tool_calls", ()):
            typer.echo(f"  {one_line(call['function']['name'], 60)} (call {call['call_id']})\n")
