"""The paused calls of a user: from a server, or from the database without a server.

Both decide with the same engine. The database inbox does not authenticate: with access to the database, ``--as`` can
name any user.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer
from rich.text import Text

from toolcrib.cli.command_options import WorkspaceSelection, aside
from toolcrib.cli.terminal_text import Row, find_by_id, print_json, print_lines, print_table
from toolcrib.client import Client, PausedCallOut, ServerUnreachable, WorkspaceOut
from toolcrib.core.errors import Misconfigured, NotFound

if TYPE_CHECKING:
    from toolcrib.cli.database_inbox import DatabaseInbox

# The paused calls in all workspaces of the user. A client is the inbox of its server.
ApprovalInbox: TypeAlias = "Client | DatabaseInbox"
PendingCall = tuple[WorkspaceOut, PausedCallOut]
PauseArgument = Annotated[str | None, typer.Argument(help="The id, or its first or last characters.")]

_USUAL = "http://127.0.0.1:3000"


@dataclass(frozen=True, slots=True)
class InboxSelection:
    """The inbox of a server, of the database or of this directory. The fields are the options that select it."""

    workspace: Annotated[str | None, typer.Option("--workspace", help="Only this workspace: its name or id.")] = None
    server: Annotated[
        str | None,
        typer.Option(
            "--server", envvar="TOOLCRIB_SERVER", help=f"The server, with TOOLCRIB_TOKEN; by default {_USUAL}."
        ),
    ] = None
    database: Annotated[
        bool, typer.Option("--database", help="Use the database at TOOLCRIB_DATABASE_URL directly.")
    ] = False
    email: Annotated[str | None, typer.Option("--as", help="With --database: your email address.")] = None

    @contextmanager
    def open(self) -> Iterator[ApprovalInbox]:
        """Opens the inbox of the server or of the database; without either, the inbox of the current directory."""
        if self.database:
            yield _database_inbox(self.email)
        elif self.server is None and self.email is None and "TOOLCRIB_TOKEN" not in os.environ:
            with WorkspaceSelection().open() as location:
                yield location.client
        else:
            yield _server_inbox(self.server, self.email)


def _server_inbox(server: str | None, email: str | None) -> ApprovalInbox:
    """Returns the server's inbox. Without a server, returns the database's if its URL and ``email`` are set."""
    token = os.environ.get("TOOLCRIB_TOKEN")
    can_do_without = email is not None and "TOOLCRIB_DATABASE_URL" in os.environ
    if token is None and not can_do_without:
        raise Misconfigured(
            "Not logged in. Set TOOLCRIB_TOKEN to your access token or API key. To use the database directly, set "
            "TOOLCRIB_DATABASE_URL and add --database --as your@email."
        )
    address = server or _USUAL
    inbox = Client(address, token)
    try:
        inbox.workspaces()
    except ServerUnreachable as error:
        if not can_do_without:
            raise ServerUnreachable(
                f"{error.message} To use the database directly, set TOOLCRIB_DATABASE_URL and add --database "
                "--as your@email."
            ) from None
        aside(f"No server at {address}. Using the database directly; the next server to start runs approved calls.")
        return _database_inbox(email)
    return inbox


def _database_inbox(email: str | None) -> ApprovalInbox:
    # Imported here: it loads the whole engine, which the server inbox does not need.
    from toolcrib.cli.database_inbox import DatabaseInbox

    return DatabaseInbox(email)


def pending_calls(
    inbox: ApprovalInbox, workspace: str | None, *, kind: Literal["approval", "question"] | None = None
) -> list[PendingCall]:
    """Returns the paused calls of the workspace with this name or id; without one, of all workspaces of the user."""
    own = inbox.workspaces()
    chosen = [one for one in own if workspace in (None, one.name, str(one.id))]
    if not chosen and workspace is not None:
        names = ", ".join(sorted(one.name for one in own)[:20]) or "none"
        raise NotFound(f"You are not a member of a workspace {workspace!r}. Your workspaces: {names}.")
    return [(one, pause) for one in chosen for pause in inbox.paused_calls(one.id, kind=kind)]


def found_by(pending: Sequence[PendingCall], text: str, command: str) -> PendingCall:
    """Returns the call whose pause id starts or ends with ``text``. Lists show the end of each id."""
    missing = f"Nothing pending has the id {text}. `toolcrib {command}` lists what is pending."
    return find_by_id(pending, text, lambda one: one[1].id, missing=missing)


def print_pending(
    pending: Sequence[PendingCall], headings: Sequence[str], rows: Iterable[Row], *, as_json: bool, empty: str
) -> None:
    """Prints paused calls, and the commands that decide them."""
    if as_json:
        print_json([record(workspace, one) for workspace, one in pending])
    elif not pending:
        typer.echo(empty)
    else:
        print_table(headings, rows)
        kinds = {one.kind for _, one in pending}
        hints = {
            "approval": "Decide with: toolcrib approve ID [--reject]",
            "question": "Answer with: toolcrib answer ID [name=value …]",
        }
        print_lines(Text(f"\n{hint}", style="dim") for kind, hint in hints.items() if kind in kinds)


def record(workspace: WorkspaceOut, pause: PausedCallOut) -> dict[str, object]:
    """Returns a paused call for ``--json``."""
    facts = pause.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"workspace": workspace.name, "workspace_id": str(workspace.id), **facts}
