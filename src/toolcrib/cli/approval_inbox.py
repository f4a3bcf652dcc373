"""The pending approvals and questions of a user: from a server, or from the database without a server.

Both decide with the same engine. The database inbox does not authenticate: with access to the database, ``--as`` can
name any user.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

import typer

from toolcrib.cli.command_options import open_workspace
from toolcrib.client import ApprovalData, Client, QuestionData, ServerUnreachable, WorkspaceData
from toolcrib.core.approvals import GrantScope
from toolcrib.core.errors import Misconfigured, NotFound

T = TypeVar("T")
Notify = Callable[[str], None]

_USUAL = "http://127.0.0.1:3000"

ServerOption = Annotated[
    str | None,
    typer.Option("--server", envvar="TOOLCRIB_SERVER", help=f"The server, with TOOLCRIB_TOKEN; by default {_USUAL}."),
]
DatabaseOption = Annotated[bool, typer.Option("--database", help="Use the database at TOOLCRIB_DATABASE_URL directly.")]
AsOption = Annotated[str | None, typer.Option("--as", help="With --database: your email address.")]
WorkspaceOption = Annotated[str | None, typer.Option("--workspace", help="Only this workspace: its name or id.")]


class ApprovalInbox(Protocol):
    """Lists and decides the pending approvals and questions in all workspaces of the user."""

    def workspaces(self) -> list[WorkspaceData]: ...

    def approvals(self, workspace: WorkspaceData) -> list[ApprovalData]: ...

    def approval(self, workspace: WorkspaceData, approval_id: UUID) -> ApprovalData: ...

    def decide(
        self, workspace: WorkspaceData, approval: ApprovalData, *, approved: bool, scope: str, reason: str | None
    ) -> ApprovalData: ...

    def questions(self, workspace: WorkspaceData) -> list[QuestionData]: ...

    def answer(
        self, workspace: WorkspaceData, question: QuestionData, answers: Mapping[str, Any], *, by_button: Sequence[str]
    ) -> QuestionData: ...


@contextmanager
def open_inbox(*, server: str | None, database: bool, email: str | None, notify: Notify) -> Iterator[ApprovalInbox]:
    """Opens the inbox of the server or of the database; without either, the inbox of the current directory."""
    if database:
        yield _database_inbox(email)
        return
    if server is None and email is None and "TOOLCRIB_TOKEN" not in os.environ:
        with open_workspace() as workspace:
            yield ServerInbox(workspace.client)
        return
    yield _server_inbox(server, email, notify)


def _server_inbox(server: str | None, email: str | None, notify: Notify) -> ApprovalInbox:
    """Returns the server's inbox. Without a server, returns the database's if its URL and ``email`` are set."""
    token = os.environ.get("TOOLCRIB_TOKEN")
    can_do_without = email is not None and "TOOLCRIB_DATABASE_URL" in os.environ
    if token is None and not can_do_without:
        raise Misconfigured(
            "Not logged in. Set TOOLCRIB_TOKEN to your access token or API key. To use the database directly, set "
            "TOOLCRIB_DATABASE_URL and add --database --as your@email."
        )
    address = server or _USUAL
    inbox = ServerInbox(Client(address, token))
    try:
        inbox.workspaces()
    except ServerUnreachable as error:
        if not can_do_without:
            raise ServerUnreachable(
                f"{error.message} To use the database directly, set TOOLCRIB_DATABASE_URL and add --database "
                "--as your@email."
            ) from None
        notify(f"No server at {address}. Using the database directly; the next server to start runs approved calls.")
        return _database_inbox(email)
    return inbox


def _database_inbox(email: str | None) -> ApprovalInbox:
    # Imported here: it loads the whole engine, which the server inbox does not need.
    from toolcrib.cli.database_inbox import DatabaseInbox

    return DatabaseInbox(email)


def found_by(items: Sequence[tuple[WorkspaceData, T]], text: str, what: str) -> tuple[WorkspaceData, T]:
    """Returns the item whose id starts or ends with ``text``. Lists show the end of each id."""
    text = text.lower()
    matching = [(workspace, one) for workspace, one in items if _is_called(str(one.id), text)]  # type: ignore[attr-defined]
    if not matching:
        raise NotFound(f"Nothing pending has the id {text}. `toolcrib {what}` lists what is pending.")
    if len(matching) > 1:
        raise NotFound(f"{len(matching)} ids match {text}. Give more characters of the id.")
    return matching[0]


def _is_called(id_: str, text: str) -> bool:
    return len(text) >= 4 and (id_.startswith(text) or id_.endswith(text))


def chosen(inbox: ApprovalInbox, text: str | None) -> list[WorkspaceData]:
    """Returns the workspace with this name or id; without one, all workspaces of the user."""
    own = inbox.workspaces()
    if text is None:
        return own
    if found := [one for one in own if text in (one.name, str(one.id))]:
        return found
    names = ", ".join(sorted(one.name for one in own)[:20]) or "none"
    raise NotFound(f"You are not a member of a workspace {text!r}. Your workspaces: {names}.")


class ServerInbox:
    """The inbox over HTTP, with an access token or an API key."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def workspaces(self) -> list[WorkspaceData]:
        return self._client.workspaces()

    def approvals(self, workspace: WorkspaceData) -> list[ApprovalData]:
        return self._client.approvals(workspace.id)

    def approval(self, workspace: WorkspaceData, approval_id: UUID) -> ApprovalData:
        return self._client.approval(workspace.id, approval_id)

    def decide(
        self, workspace: WorkspaceData, approval: ApprovalData, *, approved: bool, scope: str, reason: str | None
    ) -> ApprovalData:
        rule = approval.offered if approved and scope != GrantScope.ONCE else None
        return self._client.decide(workspace.id, approval, approved=approved, scope=scope, reason=reason, rule=rule)

    def questions(self, workspace: WorkspaceData) -> list[QuestionData]:
        return self._client.questions(workspace.id)

    def answer(
        self, workspace: WorkspaceData, question: QuestionData, answers: Mapping[str, Any], *, by_button: Sequence[str]
    ) -> QuestionData:
        return self._client.answer(workspace.id, question.id, answers, by_button=by_button)
