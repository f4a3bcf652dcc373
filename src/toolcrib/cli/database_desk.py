"""The desk in the database itself, while no server runs: the same engine, for whoever can open the database."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from pydantic import SecretStr, ValidationError

from toolcrib.client import Approval, Question, Rule, Workspace
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

_MOST_WORKSPACES = 1_000
_PAGE = 100


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
