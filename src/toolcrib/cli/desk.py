"""Where a person at a terminal finds what waits for them: a server, or the database while none runs.

Both decide with the same engine. The database's desk trusts whoever can open the database to say who they are.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

import typer
from pydantic import SecretStr, ValidationError

from toolcrib.client import Approval, Client, NoAnswer, Question, Rule, Workspace
from toolcrib.domain.approvals import GrantRule, Judgement, Scope
from toolcrib.domain.errors import Misconfigured, NotFound
from toolcrib.domain.ids import ApprovalId, QuestionId, WorkspaceId
from toolcrib.engine.telling import items_shape
from toolcrib.settings import Settings
from toolcrib.storage.accounts import Accounts, Person
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.workspaces import Workspaces
from toolcrib.wiring import Engine, assemble

T = TypeVar("T")

_HERE = "http://127.0.0.1:3000"
_MOST_WORKSPACES = 1_000
_PAGE = 100

ServerOption = Annotated[str | None, typer.Option("--server", envvar="TOOLCRIB_SERVER", help=f"By default {_HERE}.")]
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


def open_desk(*, server: str | None, database: bool, email: str | None, tell: Callable[[str], None]) -> Desk:
    """The server's desk, or the database's if it was asked for or no server answers."""
    if database:
        return DatabaseDesk(email)
    address = server or _HERE
    token = os.environ.get("TOOLCRIB_TOKEN")
    can_do_without = email is not None and "TOOLCRIB_DATABASE_URL" in os.environ
    if token is None and not can_do_without:
        raise Misconfigured(
            "Say who you are: set TOOLCRIB_TOKEN to an access token or an API key of yours; or, where you can open the "
            "database itself, set TOOLCRIB_DATABASE_URL and add --database --as your@email."
        )
    desk = ServerDesk(address, token)
    try:
        desk.workspaces()
    except NoAnswer as error:
        if not can_do_without:
            raise NoAnswer(
                f"{error.message} Or decide in the database itself: set TOOLCRIB_DATABASE_URL and add --database "
                "--as your@email."
            ) from None
        tell(f"No server answers at {address}: this is the database. The next server carries it out.")
        return DatabaseDesk(email)
    return desk


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

    def __init__(self, server: str, token: str | None) -> None:
        self._client = Client(server, token)

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


class DatabaseDesk:
    """In the database, as a person who belongs there. The same engine; no server need run."""

    def __init__(self, email: str | None) -> None:
        if email is None:
            raise Misconfigured("Say who decides: --as your@email. They must belong to the workspace.")
        self._email = email
        self._settings = _database_settings()

    def workspaces(self) -> list[Workspace]:
        async def look(_: Engine, database: Database, person: Person) -> list[Workspace]:
            found = await Workspaces(database).list_own(person, before=None, limit=_MOST_WORKSPACES)
            return [Workspace(id=one.id, name=one.name) for one in found]

        return self._run(look)

    def approvals(self, workspace: Workspace) -> list[Approval]:
        async def look(engine: Engine, _: Database, person: Person) -> list[Approval]:
            found: list[Approval] = []
            while True:
                page = await engine.approvals.page(
                    _tenant(workspace, person),
                    session_id=None,
                    only_open=True,
                    after=ApprovalId(found[-1].id) if found else None,
                    limit=_PAGE,
                )
                found += [Approval.model_validate(one) for one in page]
                if len(page) < _PAGE:
                    return found

        return self._run(look)

    def approval(self, workspace: Workspace, approval_id: UUID) -> Approval:
        async def look(engine: Engine, _: Database, person: Person) -> Approval:
            return Approval.model_validate(
                await engine.approvals.get(_tenant(workspace, person), ApprovalId(approval_id))
            )

        return self._run(look)

    def decide(
        self, workspace: Workspace, approval: Approval, *, approved: bool, scope: str, reason: str | None
    ) -> Approval:
        judgement = Judgement(
            approved=approved,
            scope=Scope(scope),
            reason=reason,
            rule=_rule(approval.offered) if approved and scope != Scope.ONCE else None,
            arguments_sha256=approval.arguments_sha256,
        )

        async def decide(engine: Engine, _: Database, person: Person) -> Approval:
            tenant = _tenant(workspace, person)
            decided = await engine.approvals.decide(tenant, ApprovalId(approval.id), judgement, via="cli")
            return Approval.model_validate(decided)

        return self._run(decide)

    def questions(self, workspace: Workspace) -> list[Question]:
        async def look(engine: Engine, _: Database, person: Person) -> list[Question]:
            return [_question(one) for one in await engine.questions.open(_tenant(workspace, person))]

        return self._run(look)

    def answer(
        self, workspace: Workspace, question: Question, answers: Mapping[str, Any], *, by_button: Sequence[str]
    ) -> Question:
        async def answer(engine: Engine, _: Database, person: Person) -> Question:
            tenant = _tenant(workspace, person)
            return _question(
                await engine.questions.answer(tenant, QuestionId(question.id), answers, by_button=by_button, via="cli")
            )

        return self._run(answer)

    def _run(self, work: Callable[[Engine, Database, Person], Awaitable[T]]) -> T:
        async def run() -> T:
            settings = self._settings
            async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
                login = await Accounts(database).find_login(self._email)
                if login is None:
                    raise NotFound(f"Nobody is registered as {self._email}. Say the email you log in with.")
                return await work(assemble(settings, database), database, Person(login.user_id))

        return asyncio.run(run())


def _database_settings() -> Settings:
    """Enough for the engine. It signs and seals nothing here, so no secret is asked for."""
    if "TOOLCRIB_DATABASE_URL" not in os.environ:
        raise Misconfigured("Say which database: TOOLCRIB_DATABASE_URL, as `toolcrib serve` has it.")
    try:
        return Settings(jwt_secret=SecretStr(""), audit_key=SecretStr(""))
    except ValidationError as error:
        raise Misconfigured(f"Settings are wrong: {error}") from None


def _tenant(workspace: Workspace, person: Person) -> Tenant:
    return Tenant(WorkspaceId(workspace.id), person.user_id)


def _rule(rule: Rule) -> GrantRule:
    return GrantRule(
        rule.tool,
        None if rule.paths is None else tuple(rule.paths),
        None if rule.commands is None else tuple(rule.commands),
    )


def _question(question: Any) -> Question:
    facts = {name: getattr(question, name) for name in Question.model_fields if name != "questions"}
    return Question(questions=items_shape(question), **facts)
