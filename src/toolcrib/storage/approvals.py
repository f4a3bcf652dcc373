"""Approvals as rows: asked once, decided once, carried out once. Knows rows, not what they would do."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.rows import dict_row

from toolcrib.domain.approvals import Approval, ApprovalState, GrantRule, Judgement, Scope
from toolcrib.domain.callers import Caller, Role
from toolcrib.domain.errors import NotFound, Superseded
from toolcrib.domain.ids import ApprovalId, CallId, GrantId, SessionId, WorkspaceId, new_id
from toolcrib.storage.approval_columns import COLUMNS, JOINS, PAGE, PAGE_OF_OPEN, SELECT, SELECT_WHOLE, WHOLE
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.json_text import json_text
from toolcrib.storage.proposals import drop


@dataclass(frozen=True, slots=True)
class NewApproval:
    """What is written when a call must wait."""

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


@dataclass(frozen=True, slots=True)
class Allowed:
    """An approval that is to be carried out, with exactly what was approved."""

    approval: Approval
    via: str
    arguments: str
    result: Any
    # Another node, or this one before it died, had begun.
    begun_before: bool = False

    @property
    def is_stale(self) -> bool:
        return self.approval.state is ApprovalState.STALE


class Approvals:
    """Queries on approvals. Whoever decides must be a member; no agent ever is the one who decides."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def transaction(self, tenant: Tenant, needs: Role) -> AsyncIterator[Connection]:
        async with self._database.transaction(tenant, needs) as connection:
            yield connection

    async def add(self, connection: Connection, tenant: Tenant, new: NewApproval, caller: Caller, tool: str) -> None:
        """Writes an open approval of a call of ``caller``."""
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
        async with self._database.transaction(tenant) as connection:
            return _approval(await _one(connection, tenant, approval_id))

    async def of_call(self, tenant: Tenant, call_id: CallId) -> Approval:
        """The newest approval of a call."""
        async with self._database.transaction(tenant) as connection:
            return await self.newest(connection, tenant, call_id)

    async def newest(self, connection: Connection, tenant: Tenant, call_id: CallId) -> Approval:
        """The same, in a transaction that has its tenant."""
        cursor = connection.cursor(row_factory=dict_row)
        await cursor.execute(
            SELECT + "where a.workspace_id = %s and a.call_id = %s order by a.created_at desc, a.id desc limit 1",
            (tenant.workspace_id, call_id),
        )
        row = await cursor.fetchone()
        if row is None or not _visible(row, tenant):
            raise NotFound(f"No approval was asked for call {call_id} in this workspace.")
        return _approval(row)

    async def page(
        self,
        tenant: Tenant,
        *,
        session_id: SessionId | None = None,
        only_open: bool = True,
        after: ApprovalId | None = None,
        limit: int = 100,
    ) -> list[Approval]:
        """The oldest first; for an agent, only its own. Long lists of changes are shortened: ``get`` has them whole."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                # A statement each: one for both would read through all that was ever decided to find what is open.
                PAGE_OF_OPEN if only_open else PAGE,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "agent": tenant.agent_id,
                    "after": after,
                    "limit": limit,
                },
            )
            return [_approval(row) for row in await cursor.fetchall()]

    async def locked(self, connection: Connection, tenant: Tenant, approval_id: ApprovalId) -> Allowed:
        """The approval, which nobody else can decide until this transaction ends."""
        await connection.execute(
            "select from toolcrib.approvals where workspace_id = %s and id = %s for update",
            (tenant.workspace_id, approval_id),
        )
        return _allowed(await _one(connection, tenant, approval_id, SELECT_WHOLE))

    async def decided(
        self, connection: Connection, tenant: Tenant, approval: Approval, judgement: Judgement, *, via: str
    ) -> None:
        """Writes a person's decision on an open approval, and the rule that it leaves behind."""
        allowed = judgement.approved
        await connection.execute(
            """
            update toolcrib.approvals
            set state = %s, scope = %s, denial = %s, decided_by = %s, decided_via = %s, decided_at = now()
            where workspace_id = %s and id = %s and state = 'open'
            """,
            (
                ApprovalState.ALLOWED if allowed else ApprovalState.DENIED,
                judgement.scope if allowed else None,
                None if allowed else judgement.reason,
                tenant.user_id,
                via,
                tenant.workspace_id,
                approval.id,
            ),
        )
        if allowed and judgement.scope is not Scope.ONCE and judgement.rule is not None:
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
                    approval.session_id if judgement.scope is Scope.SESSION else None,
                    judgement.rule.tool,
                    None if judgement.rule.paths is None else list(judgement.rule.paths),
                    None if judgement.rule.commands is None else list(judgement.rule.commands),
                    approval.id,
                    tenant.user_id,
                ),
            )

    async def ended(
        self, connection: Connection, tenant: Tenant, approval_id: ApprovalId, state: ApprovalState
    ) -> None:
        """Nobody will carry it out as it stands. Its arguments are kept only if it is stale, for asking again."""
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

    async def replaced(self, connection: Connection, tenant: Tenant, approval_id: ApprovalId) -> None:
        """It is stale and asked again, in this transaction. Whoever comes second has nothing to do."""
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
            raise Superseded("This approval was asked again already.")
        if row[0] is not None:
            await drop(connection, tenant, row[0])

    async def allowed(self, tenant: Tenant, call_id: CallId) -> Allowed | None:
        """What a person allowed of a call and nobody has carried out yet, for the run that called."""
        async with self._database.transaction(tenant) as connection:
            try:
                approval = await self.newest(connection, tenant, call_id)
            except NotFound:
                return None
            found = await self.locked(connection, tenant, approval.id)
        return found if found.approval.state is ApprovalState.ALLOWED else None

    async def claim(self, *, node: str, lease: timedelta, limit: int, holder: str | None = None) -> list[Allowed]:
        """Takes what was allowed, or is stale and must be asked again, where this node is the home. As the system.

        ``holder`` is the process that takes it. What a run waits for is carried out by the run.
        """
        async with self._database.system() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                f"""
                with due as (
                    select a.workspace_id, a.id, a.claimed_at is not null as begun
                    from toolcrib.approvals a
                    where a.state in ('allowed', 'stale') and a.carried_at is null
                      and (a.state = 'stale' or (a.state = 'allowed' and a.run_id is null))
                      and (a.claimed_at is null or a.claimed_at < now() - %(lease)s)
                      and exists (select from toolcrib.workspaces w
                                  where w.id = a.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                    order by a.decided_at limit %(limit)s for update skip locked
                ), taken as (
                    update toolcrib.approvals a set claimed_by = %(holder)s, claimed_at = now() from due d
                    where a.workspace_id = d.workspace_id and a.id = d.id
                    returning a.workspace_id, a.id, d.begun
                )
                {COLUMNS}, {WHOLE}, t.begun
                from taken t join toolcrib.approvals a on a.workspace_id = t.workspace_id and a.id = t.id {JOINS}
                """,  # noqa: S608 - constants of this module
                {"node": node, "holder": holder or node, "lease": lease, "limit": limit},
            )
            return [_allowed(row) for row in await cursor.fetchall()]

    async def renew(self, holder: str, approval_ids: Sequence[ApprovalId]) -> None:
        """This process still carries these out."""
        async with self._database.system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals set claimed_at = now()
                where state in ('allowed', 'stale') and carried_at is null and claimed_by = %s and id = any (%s)
                """,
                (holder, list(approval_ids)),
            )

    async def forsake(self, *, lease: float) -> None:
        """What a process had claimed that is dead by now, nobody carries out. That it was begun is remembered."""
        async with self._database.system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals a set claimed_at = '-infinity'
                where a.state in ('allowed', 'stale') and a.carried_at is null and a.claimed_at > '-infinity'
                  and not toolcrib.is_alive(a.claimed_by, %s)
                """,
                (lease,),
            )

    async def release(self, approval: Approval, node: str) -> None:
        """Gives a claim to the node that has become the home. Where that is still this one, the lease has to run out:
        whatever was in the way would be in the way again at once."""
        async with self._database.system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals a set claimed_at = '-infinity'
                where a.workspace_id = %(workspace)s and a.id = %(approval)s and a.carried_at is null
                  and not exists (select from toolcrib.workspaces w
                                  where w.id = a.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                """,
                {"workspace": approval.workspace_id, "approval": approval.id, "node": node},
            )

    async def has_session(self, connection: Connection, approval: Approval) -> bool:
        """Whether there still is someone to tell: sessions are deleted while their calls wait."""
        cursor = await connection.execute(
            "select from toolcrib.sessions where workspace_id = %s and id = %s",
            (approval.workspace_id, approval.session_id),
        )
        return await cursor.fetchone() is not None

    async def expired(self, *, limit: int) -> list[tuple[WorkspaceId, ApprovalId]]:
        """Open ones whose time is over."""
        async with self._database.system() as connection:
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


def _allowed(row: Mapping[str, Any]) -> Allowed:
    return Allowed(_approval(row), row["via"], row["arguments"] or "{}", row["result"], bool(row.get("begun")))


def _approval(row: Mapping[str, Any]) -> Approval:
    return Approval(
        id=row["id"],
        workspace_id=row["workspace_id"],
        call_id=row["call_id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        user_id=row["user_id"],
        agent_id=row["agent_id"],
        agent_name=row["agent_name"],
        tool=row["tool"],
        shown=row["shown"],
        arguments_sha256=bytes(row["arguments_sha256"]).hex(),
        changes=row["changes"],
        change_set_id=row["change_set_id"],
        effects=row["effects"],
        rule=row["rule"],
        reason=row["reason"],
        isolation=row["isolation"],
        state=ApprovalState(row["state"]),
        scope=Scope(row["scope"]) if row["scope"] else None,
        decided_by=row["decided_by"],
        decided_by_name=row["decided_by_name"],
        decided_at=row["decided_at"],
        denial=row["denial"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        replaces=row["replaces"],
        offered=rule_of(row["offered"]),
    )


def _rule_row(rule: GrantRule) -> dict[str, Any]:
    return {"tool": rule.tool, "paths": rule.paths, "commands": rule.commands}


def rule_of(row: Mapping[str, Any]) -> GrantRule:
    """A rule as it is stored, read back."""
    paths, commands = row.get("paths"), row.get("commands")
    return GrantRule(
        row["tool"],
        None if paths is None else tuple(paths),
        None if commands is None else tuple(commands),
    )
