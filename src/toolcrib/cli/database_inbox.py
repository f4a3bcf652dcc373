"""The inbox in the database itself, for use without a server. It decides with the same engine."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from pydantic import SecretStr, ValidationError

from toolcrib.client import ApprovalData, GrantRuleData, QuestionData, WorkspaceData
from toolcrib.core.approvals import ApprovalDecision, GrantRule, GrantScope
from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.core.ids import ApprovalId, QuestionId, WorkspaceId
from toolcrib.events.event_payloads import question_items
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser, UserStore
from toolcrib.storage.workspaces import WorkspaceStore
from toolcrib.wiring import ToolRuntime, assemble

T = TypeVar("T")

_MAX_WORKSPACES = 1_000
_PAGE = 100


class DatabaseInbox:
    """Reads and decides in the database as the user with this email address. Needs no server."""

    def __init__(self, email: str | None) -> None:
        if email is None:
            raise Misconfigured("Add --as your@email. You must be a member of the workspace.")
        self._email = email
        self._settings = _database_settings()

    def workspaces(self) -> list[WorkspaceData]:
        async def load(_: ToolRuntime, database: Database, person: ActingUser) -> list[WorkspaceData]:
            found = await WorkspaceStore(database).list_own(person, before=None, limit=_MAX_WORKSPACES)
            return [WorkspaceData(id=one.id, name=one.name) for one in found]

        return self._run(load)

    def approvals(self, workspace: WorkspaceData) -> list[ApprovalData]:
        async def load(engine: ToolRuntime, _: Database, person: ActingUser) -> list[ApprovalData]:
            found: list[ApprovalData] = []
            while True:
                page = await engine.approvals.page(
                    _tenant(workspace, person),
                    session_id=None,
                    only_open=True,
                    after=ApprovalId(found[-1].id) if found else None,
                    limit=_PAGE,
                )
                found += [ApprovalData.model_validate(one) for one in page]
                if len(page) < _PAGE:
                    return found

        return self._run(load)

    def approval(self, workspace: WorkspaceData, approval_id: UUID) -> ApprovalData:
        async def load(engine: ToolRuntime, _: Database, person: ActingUser) -> ApprovalData:
            return ApprovalData.model_validate(
                await engine.approvals.get(_tenant(workspace, person), ApprovalId(approval_id))
            )

        return self._run(load)

    def decide(
        self, workspace: WorkspaceData, approval: ApprovalData, *, approved: bool, scope: str, reason: str | None
    ) -> ApprovalData:
        decision = ApprovalDecision(
            approved=approved,
            scope=GrantScope(scope),
            reason=reason,
            rule=_rule(approval.offered) if approved and scope != GrantScope.ONCE else None,
            arguments_sha256=approval.arguments_sha256,
        )

        async def decide(engine: ToolRuntime, _: Database, person: ActingUser) -> ApprovalData:
            tenant = _tenant(workspace, person)
            decided = await engine.approvals.decide(tenant, ApprovalId(approval.id), decision, via="cli")
            return ApprovalData.model_validate(decided)

        return self._run(decide)

    def questions(self, workspace: WorkspaceData) -> list[QuestionData]:
        async def load(engine: ToolRuntime, _: Database, person: ActingUser) -> list[QuestionData]:
            return [_question(one) for one in await engine.questions.open(_tenant(workspace, person))]

        return self._run(load)

    def answer(
        self, workspace: WorkspaceData, question: QuestionData, answers: Mapping[str, Any], *, by_button: Sequence[str]
    ) -> QuestionData:
        async def answer(engine: ToolRuntime, _: Database, person: ActingUser) -> QuestionData:
            tenant = _tenant(workspace, person)
            return _question(
                await engine.questions.answer(tenant, QuestionId(question.id), answers, by_button=by_button, via="cli")
            )

        return self._run(answer)

    def _run(self, work: Callable[[ToolRuntime, Database, ActingUser], Awaitable[T]]) -> T:
        async def run() -> T:
            settings = self._settings
            async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
                login = await UserStore(database).find_login(self._email)
                if login is None:
                    raise NotFound(f"There is no account {self._email}. Use the email address you log in with.")
                return await work(assemble(settings, database), database, ActingUser(login.user_id))

        return asyncio.run(run())


def _database_settings() -> Settings:
    """Returns settings for the engine. They need no secrets, because it signs and seals nothing here."""
    if "TOOLCRIB_DATABASE_URL" not in os.environ:
        raise Misconfigured("TOOLCRIB_DATABASE_URL is not set. Set it as for `toolcrib serve`.")
    try:
        return Settings(jwt_secret=SecretStr(""), audit_seal_key=SecretStr(""))
    except ValidationError as error:
        raise Misconfigured(f"Invalid settings: {error}") from None


def _tenant(workspace: WorkspaceData, person: ActingUser) -> Tenant:
    return Tenant(WorkspaceId(workspace.id), person.user_id)


def _rule(rule: GrantRuleData) -> GrantRule:
    return GrantRule(
        rule.tool,
        None if rule.paths is None else tuple(rule.paths),
        None if rule.commands is None else tuple(rule.commands),
    )


def _question(question: Any) -> QuestionData:
    facts = {name: getattr(question, name) for name in QuestionData.model_fields if name != "questions"}
    return QuestionData(questions=question_items(question), **facts)
