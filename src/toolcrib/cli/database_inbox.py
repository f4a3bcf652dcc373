"""The inbox in the database itself, for use without a server. It decides with the same engine."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from uuid import UUID

from pydantic import SecretStr

from toolcrib.cli.command_options import in_database
from toolcrib.client import WorkspaceOut
from toolcrib.client.review_pages import whole_approval
from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.core.ids import PauseId, WorkspaceId
from toolcrib.core.paused_calls import PausedCall, PauseKind
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.schemas.paused_calls import (
    ApprovalOut,
    ChangesPageOut,
    GrantRuleOut,
    PausedCallOut,
    QuestionPauseOut,
    decision_on,
    paused_call_out,
)
from toolcrib.settings import load_settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import ToolRuntime, assemble

T = TypeVar("T")

_MAX_WORKSPACES = 1_000
_PAGE = 100


class DatabaseInbox:
    """Reads and decides in the database as the user with this email address. Needs no server."""

    def __init__(self, email: str | None) -> None:
        if email is None:
            raise Misconfigured("Add --as your@email. You must be a member of the workspace.")
        if "TOOLCRIB_DATABASE_URL" not in os.environ:
            raise Misconfigured("TOOLCRIB_DATABASE_URL is not set. Set it as for `toolcrib serve`.")
        self._email = email
        # It signs and seals nothing here, so it needs no secrets.
        self._settings = load_settings(jwt_secret=SecretStr(""), audit_seal_key=SecretStr(""))

    def workspaces(self) -> list[WorkspaceOut]:
        async def load(engine: ToolRuntime, person: ActingUser) -> list[WorkspaceOut]:
            found = await engine.stores.workspaces.list_own(person, before=None, limit=_MAX_WORKSPACES)
            return [WorkspaceOut.model_validate(one) for one in found]

        return self._run(load)

    def paused_calls(
        self, workspace_id: UUID, *, kind: Literal["approval", "question"] | None = None
    ) -> list[PausedCallOut]:
        async def load(calls: PausedCalls, tenant: Tenant) -> list[PausedCallOut]:
            wanted, found = None if kind is None else PauseKind(kind), list[PausedCall]()
            while True:
                page = await calls.list(tenant, kind=wanted, after=found[-1].id if found else None, limit=_PAGE)
                found += page
                if len(page) < _PAGE:
                    return [paused_call_out(one) for one in found]

        return self._run_in(workspace_id, load)

    def paused_call(self, workspace_id: UUID, pause_id: UUID) -> PausedCallOut:
        found = self._run_in(workspace_id, lambda calls, tenant: calls.get(tenant, PauseId(pause_id)))
        return paused_call_out(found)

    def whole_approval(self, workspace_id: UUID, approval: ApprovalOut) -> ApprovalOut:
        def page_of(first: int, from_line: int) -> ChangesPageOut:
            found = self._run_in(
                workspace_id,
                lambda calls, tenant: calls.changes_page(
                    tenant, PauseId(approval.id), first=first, from_line=from_line
                ),
            )
            return ChangesPageOut.model_validate({"changes": found.entries, "next": found.next})

        return whole_approval(approval, page_of)

    def decide(
        self,
        workspace_id: UUID,
        approval: ApprovalOut,
        *,
        approved: bool,
        scope: str,
        reason: str | None,
        rule: GrantRuleOut | None = None,
    ) -> ApprovalOut:
        decision = decision_on(approval, approved=approved, scope=scope, reason=reason, rule=rule).decision
        pause_id = PauseId(approval.id)
        decided = paused_call_out(
            self._run_in(workspace_id, lambda calls, tenant: calls.decide(tenant, pause_id, decision, via="cli"))
        )
        assert isinstance(decided, ApprovalOut)
        return decided

    def answer(
        self, workspace_id: UUID, pause_id: UUID, answers: Mapping[str, Any], *, buttons: Sequence[str]
    ) -> QuestionPauseOut:
        async def answer(calls: PausedCalls, tenant: Tenant) -> PausedCall:
            return await calls.answer(tenant, PauseId(pause_id), answers, buttons=buttons, via="cli")

        answered = paused_call_out(self._run_in(workspace_id, answer))
        assert isinstance(answered, QuestionPauseOut)
        return answered

    def _run_in(self, workspace_id: UUID, work: Callable[[PausedCalls, Tenant], Awaitable[T]]) -> T:
        return self._run(
            lambda engine, person: work(engine.paused_calls, Tenant(WorkspaceId(workspace_id), person.user_id))
        )

    def _run(self, work: Callable[[ToolRuntime, ActingUser], Awaitable[T]]) -> T:
        async def run(database: Database) -> T:
            engine = assemble(self._settings, database)
            login = await engine.stores.accounts.find_login(self._email)
            if login is None:
                raise NotFound(f"There is no account {self._email}. Use the email address you log in with.")
            return await work(engine, ActingUser(login.user_id))

        return in_database(run, self._settings)
