"""``toolcrib sessions``: lists sessions and shows their messages."""

from contextlib import suppress
from typing import Annotated
from uuid import UUID

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, in_workspace
from toolcrib.cli.terminal_text import age, find_by_id, one_line, plain, print_json, print_list, short_id
from toolcrib.client import SessionOut
from toolcrib.core.errors import NotFound

_LOOKED_AT = 200
SESSION_HELP = "its id, the start or end of its id, or `last`."


@in_workspace
def sessions(
    location: WorkspaceLocation,
    session: Annotated[str | None, typer.Argument(help=f"Show this session: {SESSION_HELP}")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_LOOKED_AT, help="Number of sessions.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List sessions, newest first, or show the messages of one.

    Example: toolcrib sessions last
    """
    if session is not None:
        _show(location, find_session(location, session), as_json=as_json)
        return
    found = location.client.sessions(location.id, limit=limit)
    print_list(
        found,
        ("id", "age", "mode", "title"),
        lambda one: (short_id(one.id), age(one.created_at), one.mode, one_line(one.title or "", 60)),
        as_json=as_json,
        empty="No sessions yet.",
    )
    if found and not as_json:
        typer.echo("\nContinue with: toolcrib chat --resume ID")


def find_session(location: WorkspaceLocation, text: str) -> SessionOut:
    """Returns the session with this id, or whose id starts or ends with ``text``; ``last`` is the newest."""
    with suppress(ValueError):
        return location.client.session(location.id, UUID(text))
    missing = f"There is no session {one_line(text, 60)!r}. `toolcrib sessions` lists them."
    found = location.client.sessions(location.id, limit=_LOOKED_AT)
    if text != "last":
        return find_by_id(found, text, lambda one: one.id, missing=missing)
    if not found:
        raise NotFound(missing)
    return found[0]


def _show(location: WorkspaceLocation, session: SessionOut, *, as_json: bool) -> None:
    messages = location.client.messages(location.id, session.id)
    if as_json:
        print_json(messages)
        return
    for message in messages:
        if message.content.strip():
            typer.echo(f"{'> ' if message.role == 'user' else ''}{plain(message.content)}\n")
        for call in (message.metadata and message.metadata.tool_calls) or ():
            typer.echo(f"  {one_line(call.function.name, 60)} (call {call.call_id})\n")
