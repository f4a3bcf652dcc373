"""Where a person at a terminal finds what waits for them: a server, or the database while none runs.

Both decide with the same engine. The database's desk trusts whoever can open the database to say who they are.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

import typer

from toolcrib.cli.place import open_place
from toolcrib.client import Approval, Client, NoAnswer, Question, Workspace
from toolcrib.domain.approvals import Scope
from toolcrib.domain.errors import Misconfigured, NotFound

T = TypeVar("T")
Tell = Callable[[str], None]

_USUAL = "http://127.0.0.1:3000"

ServerOption = Annotated[
    str | None, typer.Option("--server", envvar="TOOLCRIB_SERVER", help=f"With TOOLCRIB_TOKEN; by default {_USUAL}.")
]
DatabaseOption = Annotated[bool, typer.Option("--database", help="Use the database of TOOLCRIB_DATABASE_URL itself.")]
AsOption = Annotated[str | None, typer.Option("--as", help="With the database: the email of who decides.")]
WorkspaceOption = Annotated[str | None, typer.Option("--workspace", help="Only this one: its name or id.")]


class Desk(Protocol):
    """What waits, and deciding it. Ids are found in all workspaces of whoever asks."""

    def workspaces(self) -> list[Workspace]: ...

    def approvals(self, workspace: Workspace) -> list[Approval]: ...

    def approval(self, workspace: Workspace, approval_id: UUID) -> Approval: ...

    def decide(
        self, workspace: Workspace, approval: Approval, *, approved: bool, scope: str, reason: str | None
    ) -> Approval: ...

    def questions(self, workspace: Workspace) -> list[Question]: ...

    def answer(
        self, workspace: Workspace, question: Question, answers: Mapping[str, Any], *, by_button: Sequence[str]
    ) -> Question: ...


@contextmanager
def open_desk(*, server: str | None, database: bool, email: str | None, tell: Tell) -> Iterator[Desk]:
    """The server's desk, or the database's if it was asked for; who names neither means the directory they are in."""
    if database:
        yield _database_desk(email)
        return
    if server is None and email is None and "TOOLCRIB_TOKEN" not in os.environ:
        with open_place() as place:
            yield ServerDesk(place.client)
        return
    yield _servers_desk(server, email, tell)


def _servers_desk(server: str | None, email: str | None, tell: Tell) -> Desk:
    """The server's, or the database's if no server answers."""
    token = os.environ.get("TOOLCRIB_TOKEN")
    can_do_without = email is not None and "TOOLCRIB_DATABASE_URL" in os.environ
    if token is None and not can_do_without:
        raise Misconfigured(
            "Say who you are: set TOOLCRIB_TOKEN to an access token or an API key of yours; or, where you can open the "
            "database itself, set TOOLCRIB_DATABASE_URL and add --database --as your@email."
        )
    address = server or _USUAL
    desk = ServerDesk(Client(address, token))
    try:
        desk.workspaces()
    except NoAnswer as error:
        if not can_do_without:
            raise NoAnswer(
                f"{error.message} Or decide in the database itself: set TOOLCRIB_DATABASE_URL and add --database "
                "--as your@email."
            ) from None
        tell(f"No server answers at {address}: this is the database. The next server carries it out.")
        return _database_desk(email)
    return desk


def _database_desk(email: str | None) -> Desk:
    # Only here: it loads the whole program, which a server's desk does not need.
    from toolcrib.cli.database_desk import DatabaseDesk

    return DatabaseDesk(email)


def found_by(items: Sequence[tuple[Workspace, T]], said: str, what: str) -> tuple[Workspace, T]:
    """The one whose id begins or ends as was said; lists show how ids end."""
    said = said.lower()
    matching = [(place, one) for place, one in items if _is_called(str(one.id), said)]  # type: ignore[attr-defined]
    if not matching:
        raise NotFound(f"Nothing that waits is called {said}. `toolcrib {what}` lists what does.")
    if len(matching) > 1:
        raise NotFound(f"{len(matching)} that wait are called {said}. Give more of the id.")
    return matching[0]


def _is_called(id_: str, said: str) -> bool:
    return len(said) >= 4 and (id_.startswith(said) or id_.endswith(said))


def chosen(desk: Desk, said: str | None) -> list[Workspace]:
    """The workspaces to look in."""
    own = desk.workspaces()
    if said is None:
        return own
    if found := [one for one in own if said in (one.name, str(one.id))]:
        return found
    names = ", ".join(sorted(one.name for one in own)[:20]) or "none"
    raise NotFound(f"You belong to no workspace called {said!r}. Yours: {names}.")


class ServerDesk:
    """By HTTP, with a token or a key."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def workspaces(self) -> list[Workspace]:
        return self._client.workspaces()

    def approvals(self, workspace: Workspace) -> list[Approval]:
        return self._client.approvals(workspace.id)

    def approval(self, workspace: Workspace, approval_id: UUID) -> Approval:
        return self._client.approval(workspace.id, approval_id)

    def decide(
        self, workspace: Workspace, approval: Approval, *, approved: bool, scope: str, reason: str | None
    ) -> Approval:
        rule = approval.offered if approved and scope != Scope.ONCE else None
        return self._client.decide(workspace.id, approval, approved=approved, scope=scope, reason=reason, rule=rule)

    def questions(self, workspace: Workspace) -> list[Question]:
        return self._client.questions(workspace.id)

    def answer(
        self, workspace: Workspace, question: Question, answers: Mapping[str, Any], *, by_button: Sequence[str]
    ) -> Question:
        return self._client.answer(workspace.id, question.id, answers, by_button=by_button)
