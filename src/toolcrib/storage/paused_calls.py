"""Paused calls as rows: asked once, decided or answered once, resumed once."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import NotFound, Superseded, ToolFailed
from toolcrib.core.ids import CallId, GrantId, PauseId, SessionId, WorkspaceId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.paused_calls import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovedCall,
    GrantScope,
    PausedCall,
    PauseKind,
    PauseState,
    QuestionRequest,
    Resolution,
)
from toolcrib.storage.database import Connection, Database, Tenant, parse_row
from toolcrib.storage.proposed_change_sets import drop_proposal
from toolcrib.storage.quotas import OPEN_APPROVALS, has_all


class PausedCallStore:
    """Queries on paused calls. An agent sees its own only."""

    def __init__(self, database: Database, *, most_open: int = OPEN_APPROVALS) -> None:
        self._database = database
        self._most_open = most_open

    def transaction(self, tenant: Tenant, needs: WorkspaceRole) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction in the workspace."""
        return self._database.transaction(tenant, needs)

    async def insert(
        self,
        connection: Connection,
        caller: Caller,
        tool: str,
        request: ApprovalRequest | QuestionRequest,
        *,
        expires_in: timedelta,
        arguments: str | None = None,
        planned_result: Any = None,
    ) -> PausedCall:
        """Insert a pending pause of a call of ``caller``, which expires after ``expires_in``.

        Args:
            arguments: For an approval: exactly what will run.
            planned_result: For an approval: the result that the call will have, if it is known.

        Raises:
            ToolFailed: Too many approvals are pending already.
        """
        tenant, pause_id = Tenant.of(caller), PauseId(new_id())
        columns: dict[str, Any] = dict.fromkeys(_REQUEST_COLUMNS)
        if isinstance(request, ApprovalRequest):
            await self._check_quota(connection, tenant, request)
            columns |= {
                "arguments": arguments,
                "input": json_text(request.input),
                "arguments_sha256": bytes.fromhex(request.arguments_sha256),
                "changes": json_text(request.changes),
                "change_set_id": request.change_set_id,
                "planned_result": json_text(planned_result),
                "effects": json_text(request.effects),
                "rule": request.rule,
                "reason": request.reason,
                "isolation": request.isolation,
                "suggested_rule": json_text(request.suggested_rule),
                "other_rules": json_text(request.other_rules),
                "replaces": request.replaces,
            }
        else:
            columns["questions"] = json_text(request.questions)
        await connection.execute(
            """
            insert into toolcrib.paused_calls
                (workspace_id, id, kind, call_id, session_id, run_id, user_id, agent_id, via, tool, expires_at,
                 arguments, input, arguments_sha256, changes, change_set_id, planned_result, effects, rule, reason,
                 isolation, suggested_rule, other_rules, replaces, questions)
            values
                (%(workspace_id)s, %(id)s, %(kind)s, %(call_id)s, %(session_id)s, %(run_id)s, %(user_id)s,
                 %(agent_id)s, %(via)s, %(tool)s, now() + %(expires_in)s,
                 %(arguments)s, %(input)s, %(arguments_sha256)s, %(changes)s, %(change_set_id)s, %(planned_result)s,
                 %(effects)s, %(rule)s, %(reason)s, %(isolation)s, %(suggested_rule)s, %(other_rules)s, %(replaces)s,
                 %(questions)s)
            """,
            columns
            | {
                "workspace_id": caller.workspace_id,
                "id": pause_id,
                "kind": request.kind,
                "call_id": caller.call_id,
                "session_id": caller.session_id,
                "run_id": caller.run_id,
                "user_id": caller.user_id,
                "agent_id": caller.agent_id,
                "via": caller.via,
                "tool": tool,
                "expires_in": expires_in,
            },
        )
        return await _get(connection, tenant, pause_id)

    async def get(
        self, tenant: Tenant, pause_id: PauseId, *, needs: WorkspaceRole = WorkspaceRole.VIEWER
    ) -> PausedCall:
        """Return one paused call."""
        async with self._database.transaction(tenant, needs) as connection:
            return await _get(connection, tenant, pause_id)

    async def of_call(self, tenant: Tenant, call_id: CallId) -> PausedCall:
        """Return the latest pause of a call."""
        async with self._database.transaction(tenant) as connection:
            return await _latest(connection, tenant, call_id)

    async def list_expired(self, *, limit: int) -> list[tuple[WorkspaceId, PauseId]]:
        """Return pending pauses that have expired, with the system role."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select workspace_id, id from toolcrib.paused_calls where state = 'pending' and expires_at <= now()
                order by expires_at limit %s
                """,
                (limit,),
            )
            return [(WorkspaceId(workspace), PauseId(pause)) for workspace, pause in await cursor.fetchall()]

    async def list(
        self,
        tenant: Tenant,
        *,
        kind: PauseKind | None = None,
        session_id: SessionId | None = None,
        pending_only: bool = True,
        after: PauseId | None = None,
        limit: int = 100,
    ) -> list[PausedCall]:
        """Return a page, oldest first. Long lists of changes are shortened, unlike in ``get``."""
        async with self._database.transaction(tenant) as connection:
            rows = await connection.fetch_all(
                dict,
                # Two statements: a single one for both would scan everything ever decided to find what is pending.
                _PAGE_OF_PENDING if pending_only else _PAGE,
                {
                    "workspace": tenant.workspace_id,
                    "kind": kind,
                    "session": session_id,
                    "agent": tenant.agent_id,
                    "after": after,
                    "limit": limit,
                },
            )
        return [_pause_from(row) for row in rows]

    async def lock(self, connection: Connection, tenant: Tenant, pause_id: PauseId) -> PausedCall:
        """Lock the pause, so that no other transaction can decide or answer it."""
        await connection.execute(
            "select from toolcrib.paused_calls where workspace_id = %s and id = %s for update",
            (tenant.workspace_id, pause_id),
        )
        return await _get(connection, tenant, pause_id)

    async def lock_latest(self, connection: Connection, tenant: Tenant, call_id: CallId) -> PausedCall:
        """Lock the latest pause of a call."""
        return await self.lock(connection, tenant, (await _latest(connection, tenant, call_id)).id)

    async def arguments(self, connection: Connection, pause: PausedCall) -> str:
        """Return exactly what an approval is about, as canonical JSON; an empty object once it was deleted."""
        [arguments] = await connection.returned_row(
            "select coalesce(arguments, '{}') from toolcrib.paused_calls where workspace_id = %s and id = %s",
            (pause.workspace_id, pause.id),
        )
        return str(arguments)

    async def save_decision(
        self, connection: Connection, tenant: Tenant, pause: PausedCall, decision: ApprovalDecision, *, via: str
    ) -> PausedCall:
        """Write a person's decision on a pending approval, and the grant if it stores one."""
        approved = decision.approved
        await connection.execute(
            """
            update toolcrib.paused_calls
            set state = %s, grant_scope = %s, rejection_reason = %s, decided_by = %s, decided_via = %s,
                decided_at = now()
            where workspace_id = %s and id = %s and state = 'pending'
            """,
            (
                PauseState.APPROVED if approved else PauseState.REJECTED,
                decision.scope if approved else None,
                None if approved else decision.reason,
                tenant.user_id,
                via,
                tenant.workspace_id,
                pause.id,
            ),
        )
        if approved and decision.scope is not GrantScope.ONCE and (rule := decision.rule) is not None:
            await connection.execute(
                """
                insert into toolcrib.grants
                    (workspace_id, id, agent_id, session_id, tools, paths, commands, hosts, access, arguments, pause_id,
                     created_by)
                values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
                """,
                (
                    tenant.workspace_id,
                    GrantId(new_id()),
                    pause.agent_id,
                    pause.session_id if decision.scope is GrantScope.SESSION else None,
                    list(rule.tools),
                    *(
                        None if one is None else list(one)
                        for one in (rule.paths, rule.commands, rule.hosts, rule.access)
                    ),
                    None if rule.arguments is None else json_text(rule.arguments),
                    pause.id,
                    tenant.user_id,
                ),
            )
        return await _get(connection, tenant, pause.id)

    async def planned_result(self, connection: Connection, pause: PausedCall) -> Any:
        """Return the result that an approved call will have, if it is known."""
        [result] = await connection.returned_row(
            "select planned_result from toolcrib.paused_calls where workspace_id = %s and id = %s",
            (pause.workspace_id, pause.id),
        )
        return result

    async def save_edits(
        self,
        connection: Connection,
        tenant: Tenant,
        pause: PausedCall,
        *,
        changes: Sequence[Mapping[str, Any]],
        edits: Sequence[Mapping[str, Any]],
        planned_result: Any,
    ) -> PausedCall:
        """Write what a person changed before approving, in the transaction of the decision."""
        await connection.execute(
            """
            update toolcrib.paused_calls set changes = %s, edits = %s, planned_result = %s
            where workspace_id = %s and id = %s and state = 'approved' and resumed_at is null
            """,
            (json_text(changes), json_text(edits), json_text(planned_result), tenant.workspace_id, pause.id),
        )
        return await _get(connection, tenant, pause.id)

    async def save_answers(
        self,
        connection: Connection,
        tenant: Tenant,
        pause: PausedCall,
        answers: Mapping[str, Any],
        *,
        buttons: tuple[str, ...],
        via: str,
    ) -> PausedCall:
        """Write a person's answers to pending questions. ``buttons`` names those that were answered with a button."""
        await connection.execute(
            """
            update toolcrib.paused_calls
            set state = 'answered', answers = %s, answered_with_button = %s, decided_by = %s, decided_via = %s,
                decided_at = now()
            where workspace_id = %s and id = %s and state = 'pending'
            """,
            (json_text(answers), list(buttons), tenant.user_id, via, tenant.workspace_id, pause.id),
        )
        return await _get(connection, tenant, pause.id)

    async def end(self, connection: Connection, tenant: Tenant, pause: PausedCall, state: PauseState) -> None:
        """End a pause without execution, and drop what it proposes. Only a stale one keeps these, to ask again."""
        stale = state is PauseState.STALE
        await connection.execute(
            """
            update toolcrib.paused_calls
            set state = %(state)s, arguments = case when %(stale)s then arguments end, planned_result = null
            where workspace_id = %(workspace)s and id = %(pause)s
              and (state in ('pending', %(state)s) or (state in ('approved', 'stale') and resumed_at is null))
            """,
            {"state": state, "stale": stale, "workspace": tenant.workspace_id, "pause": pause.id},
        )
        if not stale and pause.kind is PauseKind.APPROVAL and pause.approval.change_set_id is not None:
            await drop_proposal(connection, tenant, pause.approval.change_set_id)

    async def replace(self, connection: Connection, tenant: Tenant, pause_id: PauseId) -> None:
        """Mark an approval as stale and replaced by a new one in this transaction.

        Raises:
            Superseded: It was replaced before.
        """
        row = await connection.fetch_row(
            """
            update toolcrib.paused_calls
            set state = 'stale', resumed_at = now(), arguments = null, planned_result = null
            where workspace_id = %s and id = %s and state in ('approved', 'stale') and resumed_at is null
            returning change_set_id
            """,
            (tenant.workspace_id, pause_id),
        )
        if row is None:
            raise Superseded("This approval was already replaced by a new one.")
        if row[0] is not None:
            await drop_proposal(connection, tenant, row[0])

    async def approved_call(self, tenant: Tenant, call_id: CallId) -> ApprovedCall | None:
        """Return the approved but unexecuted call, for the run that requested it."""
        async with self._database.transaction(tenant) as connection:
            row = await connection.fetch_one(dict, f"{_SELECT_EXECUTABLE} {_LATEST}", (tenant.workspace_id, call_id))
        return approved_call_from(row) if row is not None and row["state"] == PauseState.APPROVED else None

    async def approved_folders(self, tenant: Tenant, session_id: SessionId) -> frozenset[str]:
        """Return the ignored folders about which a person was asked in the session, and approved the effect."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select jsonb_array_elements_text(effects -> 'ignored_folders') from toolcrib.paused_calls
                where workspace_id = %s and session_id = %s and state = 'approved' and effects ? 'ignored_folders'
                  and agent_id is not distinct from %s
                """,
                (tenant.workspace_id, session_id, tenant.agent_id),
            )
            return frozenset(folder for (folder,) in await cursor.fetchall())

    async def lost_session(self, connection: Connection, pause: PausedCall) -> bool:
        """Return whether the session of the call was deleted while it waited."""
        if pause.session_id is None:
            return False
        session = await connection.fetch_row(
            "select from toolcrib.sessions where workspace_id = %s and id = %s", (pause.workspace_id, pause.session_id)
        )
        return session is None

    async def _check_quota(self, connection: Connection, tenant: Tenant, request: ApprovalRequest) -> None:
        pending = (
            "select from toolcrib.paused_calls where workspace_id = %s and state = 'pending' and kind = 'approval'"
        )
        if request.replaces is None and await has_all(
            connection, pending, (tenant.workspace_id,), most=self._most_open
        ):
            raise ToolFailed(
                f"{self._most_open} calls are pending in this workspace, the limit. Decide some of them first."
            )


def approved_call_from(row: Mapping[str, Any]) -> ApprovedCall:
    """Create an approved call from a row with the columns of ``EXECUTABLE``."""
    return parse_row(ApprovedCall, {**row, "pause": _pause_from(row), "arguments": row["arguments"] or "{}"})


def _pause_from(row: Mapping[str, Any]) -> PausedCall:
    """Create a paused call from a row with ``_COLUMNS``."""
    request = parse_row(ApprovalRequest if row["kind"] == PauseKind.APPROVAL else QuestionRequest, row)
    resolution = None if row["decided_at"] is None else parse_row(Resolution, row)
    return parse_row(PausedCall, {**row, "request": request, "resolution": resolution})


async def _get(connection: Connection, tenant: Tenant, pause_id: PauseId) -> PausedCall:
    found = f"{_SELECT} where p.workspace_id = %s and p.id = %s"
    row = await connection.fetch_one(dict, found, (tenant.workspace_id, pause_id))
    return _visible(row, tenant, f"Paused call {pause_id} not found in this workspace.")


async def _latest(connection: Connection, tenant: Tenant, call_id: CallId) -> PausedCall:
    row = await connection.fetch_one(dict, f"{_SELECT} {_LATEST}", (tenant.workspace_id, call_id))
    return _visible(row, tenant, f"Call {call_id} has not been paused in this workspace.")


def _visible(row: Mapping[str, Any] | None, tenant: Tenant, otherwise: str) -> PausedCall:
    if row is None or tenant.agent_id not in (None, row["agent_id"]):
        raise NotFound(otherwise)
    return _pause_from(row)


_REQUEST_COLUMNS = (
    *("arguments", "input", "arguments_sha256", "changes", "change_set_id", "planned_result", "effects"),
    *("rule", "reason", "isolation", "suggested_rule", "other_rules", "replaces", "questions"),
)
# Without the arguments and the result: these may have ten megabytes, and only the execution needs them.
_FACTS = """
    select p.id, p.workspace_id, p.kind, p.call_id, p.session_id, p.run_id, p.user_id, p.agent_id, p.via, p.tool,
           p.state, p.created_at, p.expires_at, p.input, encode(p.arguments_sha256, 'hex') as arguments_sha256,
           p.change_set_id, p.effects, p.rule, p.reason, p.isolation, p.suggested_rule, p.other_rules, p.replaces,
           p.questions, p.answers, p.answered_with_button, p.decided_by, p.decided_via, p.decided_at, p.grant_scope,
           p.rejection_reason, p.edits, g.name as agent_name, coalesce(u.full_name, u.email) as decided_by_name
"""
_COLUMNS = f"{_FACTS}, p.changes"
EXECUTABLE = f"{_COLUMNS}, p.arguments, p.planned_result"
JOINS = """
    left join lateral (select name from toolcrib.agents where workspace_id = p.workspace_id and id = p.agent_id
                       limit 1) g on true
    left join lateral (select full_name, email from toolcrib.users where id = p.decided_by limit 1) u on true
"""
_SELECT = f"{_COLUMNS} from toolcrib.paused_calls p {JOINS}"
_SELECT_EXECUTABLE = f"{EXECUTABLE} from toolcrib.paused_calls p {JOINS}"
_LATEST = "where p.workspace_id = %s and p.call_id = %s order by p.created_at desc, p.id desc limit 1"
_LISTED = f"""
    {_FACTS}, toolcrib.summarize_changes(p.changes) as changes
    from toolcrib.paused_calls p {JOINS}
    where p.workspace_id = %(workspace)s
      and (%(kind)s::text is null or p.kind = %(kind)s)
      and (%(session)s::uuid is null or p.session_id = %(session)s)
      and (%(agent)s::uuid is null or p.agent_id = %(agent)s)
      and (%(after)s::uuid is null or p.id > %(after)s)
"""
_PAGE = f"{_LISTED} order by p.id limit %(limit)s"
_PAGE_OF_PENDING = f"{_LISTED} and p.state = 'pending' and p.expires_at > now() order by p.id limit %(limit)s"
