"""Approvals as rows: requested once, decided once, executed once."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.rows import dict_row

from toolcrib.core.approvals import Approval, ApprovalDecision, ApprovalState, GrantRule, GrantScope
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import NotFound, Superseded, ToolFailed
from toolcrib.core.ids import ApprovalId, CallId, GrantId, SessionId, WorkspaceId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.storage.approval_columns import PAGE, PAGE_OF_OPEN, SELECT, SELECT_WHOLE
from toolcrib.storage.approved_calls import ApprovedCall, ApprovedCallStore, allowed_from, approval_from
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.proposed_change_sets import drop_proposal
from toolcrib.storage.quotas import OPEN_APPROVALS, has_all


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The row of a new approval."""

    id: ApprovalId
    arguments: str
    arguments_sha256: bytes
    shown: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any]]
    change_set_id: Any
    result: Any
    effects: Mapping[str, Any]
    rule: str
    reason: str
    isolation: str | None
    offered: GrantRule
    patience: timedelta
    replaces: ApprovalId | None = None


class ApprovalStore(ApprovedCallStore):
    """Queries on approvals. Only a member decides, and never an agent."""

    def __init__(self, database: Database, *, most_open: int = OPEN_APPROVALS) -> None:
        super().__init__(database)
        self._most_open = most_open

    @asynccontextmanager
    async def transaction(self, tenant: Tenant, needs: WorkspaceRole) -> AsyncIterator[Connection]:
        """Open a transaction in the workspace."""
        async with self._database.transaction(tenant, needs) as connection:
            yield connection

    async def insert(
        self, connection: Connection, tenant: Tenant, new: ApprovalRequest, caller: Caller, tool: str
    ) -> None:
        """Insert a pending approval for a call of ``caller``.

        Raises:
            ToolFailed: Too many approvals are pending already.
        """
        if new.replaces is None:
            rows = "select from toolcrib.approvals where workspace_id = %s and state = 'open'"
            if await has_all(connection, rows, (tenant.workspace_id,), most=self._most_open):
                raise ToolFailed(
                    f"{self._most_open} calls are pending in this workspace, the limit. Decide some of them first."
                )
        await connection.execute(
            """
            insert into toolcrib.approvals
                (workspace_id, id, call_id, session_id, run_id, user_id, agent_id, via, tool, arguments, shown,
                 arguments_sha256, changes, change_set_id, result, effects, rule, reason, isolation, offered, replaces,
                 expires_at)
            values
                (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now() + %s)
            """,
            (
                tenant.workspace_id,
                new.id,
                caller.call_id,
                caller.session_id,
                caller.run_id,
                caller.user_id,
                caller.agent_id,
                caller.via,
                tool,
                new.arguments,
                json_text(new.shown),
                new.arguments_sha256,
                json_text(new.changes),
                new.change_set_id,
                json_text(new.result),
                json_text(new.effects),
                new.rule,
                new.reason,
                new.isolation,
                json_text(_rule_row(new.offered)),
                new.replaces,
                new.patience,
            ),
        )

    async def get(self, tenant: Tenant, approval_id: ApprovalId) -> Approval:
        """Return one approval."""
        async with self._database.transaction(tenant) as connection:
            return approval_from(await _one(connection, tenant, approval_id))

    async def of_call(self, tenant: Tenant, call_id: CallId) -> Approval:
        """Return the latest approval of a call."""
        async with self._database.transaction(tenant) as connection:
            return await self.latest_of_call(connection, tenant, call_id)

    async def latest_of_call(self, connection: Connection, tenant: Tenant, call_id: CallId) -> Approval:
        """Return the latest approval of a call, within a transaction of the tenant."""
        cursor = connection.cursor(row_factory=dict_row)
        await cursor.execute(
            SELECT + "where a.workspace_id = %s and a.call_id = %s order by a.created_at desc, a.id desc limit 1",
            (tenant.workspace_id, call_id),
        )
        row = await cursor.fetchone()
        if row is None or not _visible(row, tenant):
            raise NotFound(f"Call {call_id} has no approval in this workspace.")
        return approval_from(row)

    async def page(
        self,
        tenant: Tenant,
        *,
        session_id: SessionId | None = None,
        only_open: bool = True,
        after: ApprovalId | None = None,
        limit: int = 100,
    ) -> list[Approval]:
        """Return a page, oldest first; an agent sees its own only.

        Long lists of changes are shortened, unlike in ``get``.
        """
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                # Two statements: a single one for both would scan everything ever decided to find what is pending.
                PAGE_OF_OPEN if only_open else PAGE,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "agent": tenant.agent_id,
                    "after": after,
                    "limit": limit,
                },
            )
            return [approval_from(row) for row in await cursor.fetchall()]

    async def lock(self, connection: Connection, tenant: Tenant, approval_id: ApprovalId) -> ApprovedCall:
        """Lock the approval, so that no other transaction can decide it."""
        await connection.execute(
            "select from toolcrib.approvals where workspace_id = %s and id = %s for update",
            (tenant.workspace_id, approval_id),
        )
        return allowed_from(await _one(connection, tenant, approval_id, SELECT_WHOLE))

    async def save_decision(
        self, connection: Connection, tenant: Tenant, approval: Approval, decision: ApprovalDecision, *, via: str
    ) -> None:
        """Write a person's decision on a pending approval, and the grant if it stores one."""
        allowed = decision.approved
        await connection.execute(
            """
            update toolcrib.approvals
            set state = %s, scope = %s, denial = %s, decided_by = %s, decided_via = %s, decided_at = now()
            where workspace_id = %s and id = %s and state = 'open'
            """,
            (
                ApprovalState.ALLOWED if allowed else ApprovalState.DENIED,
                decision.scope if allowed else None,
                None if allowed else decision.reason,
                tenant.user_id,
                via,
                tenant.workspace_id,
                approval.id,
            ),
        )
        if allowed and decision.scope is not GrantScope.ONCE and decision.rule is not None:
            await connection.execute(
                """
                insert into toolcrib.grants
                    (workspace_id, id, agent_id, session_id, tool, paths, commands, approval_id, created_by)
                values (%s, %s, %s, %s, %s, %s, %s, %s, %s)
                """,
                (
                    tenant.workspace_id,
                    GrantId(new_id()),
                    approval.agent_id,
                    approval.session_id if decision.scope is GrantScope.SESSION else None,
                    decision.rule.tool,
                    None if decision.rule.paths is None else list(decision.rule.paths),
                    None if decision.rule.commands is None else list(decision.rule.commands),
                    approval.id,
                    tenant.user_id,
                ),
            )

    async def end(self, connection: Connection, tenant: Tenant, approval_id: ApprovalId, state: ApprovalState) -> None:
        """End an approval without execution. The arguments are kept only if it is stale, to ask again."""
        await connection.execute(
            """
            update toolcrib.approvals
            set state = %(state)s,
                arguments = case when %(state)s = 'stale' then arguments end,
                result = null
            where workspace_id = %(workspace)s and id = %(approval)s
              and (state = 'open' or (state in ('allowed', 'denied', 'stale') and carried_at is null))
            """,
            {"state": state, "workspace": tenant.workspace_id, "approval": approval_id},
        )

    async def replace(self, connection: Connection, tenant: Tenant, approval_id: ApprovalId) -> None:
        """Mark a stale approval as replaced by a new one in this transaction.

        Raises:
            Superseded: It was replaced before.
        """
        cursor = await connection.execute(
            """
            update toolcrib.approvals set state = 'stale', carried_at = now(), arguments = null, result = null
            where workspace_id = %s and id = %s and state in ('allowed', 'stale') and carried_at is null
            returning change_set_id
            """,
            (tenant.workspace_id, approval_id),
        )
        row = await cursor.fetchone()
        if row is None:
            raise Superseded("This approval was already replaced by a new one.")
        if row[0] is not None:
            await drop_proposal(connection, tenant, row[0])

    async def approved_call(self, tenant: Tenant, call_id: CallId) -> ApprovedCall | None:
        """Return the approved but unexecuted call, for the run that requested it."""
        async with self._database.transaction(tenant) as connection:
            try:
                approval = await self.latest_of_call(connection, tenant, call_id)
            except NotFound:
                return None
            found = await self.lock(connection, tenant, approval.id)
        return found if found.approval.state is ApprovalState.ALLOWED else None

    async def session_exists(self, connection: Connection, approval: Approval) -> bool:
        """Return whether the session exists: sessions are deleted while their calls wait."""
        cursor = await connection.execute(
            "select from toolcrib.sessions where workspace_id = %s and id = %s",
            (approval.workspace_id, approval.session_id),
        )
        return await cursor.fetchone() is not None

    async def session_phase(self, connection: Connection, approval: Approval) -> str | None:
        """Return the current phase of the call's session.

        Raises:
            NotFound: The session was deleted.
        """
        cursor = await connection.execute(
            "select phase from toolcrib.sessions where workspace_id = %s and id = %s",
            (approval.workspace_id, approval.session_id),
        )
        row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"Session {approval.session_id} not found in this workspace.")
        return None if row[0] is None else str(row[0])

    async def list_expired(self, *, limit: int) -> list[tuple[WorkspaceId, ApprovalId]]:
        """Return pending approvals that have expired."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select workspace_id, id from toolcrib.approvals where state = 'open' and expires_at <= now()
                order by expires_at limit %s
                """,
                (limit,),
            )
            return [(WorkspaceId(workspace), ApprovalId(approval)) for workspace, approval in await cursor.fetchall()]


async def _one(connection: Connection, tenant: Tenant, approval_id: ApprovalId, select: str = SELECT) -> dict[str, Any]:
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(select + "where a.workspace_id = %s and a.id = %s", (tenant.workspace_id, approval_id))
    row = await cursor.fetchone()
    if row is None or not _visible(row, tenant):
        raise NotFound(f"Approval {approval_id} not found in this workspace.")
    return row


def _visible(row: Mapping[str, Any], tenant: Tenant) -> bool:
    return tenant.agent_id is None or row["agent_id"] == tenant.agent_id


def _rule_row(rule: GrantRule) -> dict[str, Any]:
    return {"tool": rule.tool, "paths": rule.paths, "commands": rule.commands}
