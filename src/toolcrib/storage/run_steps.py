"""Steps of runs as rows: one process claims a run and commits its steps under an epoch. With the system role."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from toolcrib.core.audit import AuditRecord, CallRecord
from toolcrib.core.budgets import BudgetState
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import CallId, MessageId, ProcessId, RunId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.runs import ModelUsage, RequestedCallState, Run, RunEnding, RunState, SessionMessage, Violations
from toolcrib.policy.model_results import CallProgress
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import (
    COLUMNS,
    ELAPSED,
    MESSAGES,
    RunStore,
    announce_review,
    append_run_state_event,
    fetch_runs,
    lock_run,
    lock_session,
    save_turn,
    turn_text,
)
from toolcrib.storage.tool_calls import save_tool_call

# How many events of a session are looked at for a message that was not ended.
_RECENT = 1_000

# A run that is put aside is taken before its time only to be ended.
_IS_DUE = """((not r.awaits_slot and (r.not_before is null or r.not_before <= now()))
                 or r.cancelled_by is not null)"""

_IS_FREE = f"""((r.state = 'ready' and {_IS_DUE})
                   or (r.state = 'running' and not toolcrib.process_is_alive(r.worker_id, %(lease)s)))"""

_QUEUE_ORDER = """r.priority >= 500, row_number() over (
                    partition by r.workspace_id, r.priority >= 500 order by r.created_at, r.id), r.created_at"""

_CAN_BE_TAKEN = f"""{_IS_FREE}
                    and exists (select from toolcrib.workspaces w
                                where w.id = r.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)"""

# A takeover is counted before the work starts, because this process may die too.
_TAKEN = f"""state = 'running', epoch = r.epoch + 1, worker_id = %(process)s, active_since = now(),
                    not_before = null, awaits_slot = false,
                    active_ms = r.active_ms + case when r.state = 'running' then {ELAPSED} else 0 end,
                    takeovers = r.takeovers + case when r.state = 'running' then 1 else 0 end,
                    started_at = coalesce(r.started_at, now())"""


class RunStepStore(RunStore):
    """Queries of the run worker and executor."""

    async def take(
        self, process_id: ProcessId, workspace_id: WorkspaceId, run_id: RunId, *, node: str, lease: float
    ) -> Run | None:
        """Take a run of this node that is ready or whose process is dead, under a new epoch. None if it is neither.

        One that is put aside is ready when its time has come.
        """
        async with self._database.as_system() as connection:
            found = await fetch_runs(
                connection,
                f"""
                update toolcrib.runs r set {_TAKEN}
                where r.workspace_id = %(workspace)s and r.id = %(run)s and {_CAN_BE_TAKEN}
                returning {COLUMNS}
                """,  # noqa: S608 - constants of this module
                {"process": process_id, "workspace": workspace_id, "run": run_id, "node": node, "lease": lease},
            )
        return found[0] if found else None

    async def take_free(
        self, process_id: ProcessId, run_ids: Mapping[RunId, WorkspaceId], *, node: str, lease: float
    ) -> list[Run]:
        """Take those of these runs that can be taken and that no other transaction has locked, in one statement."""
        async with self._database.as_system() as connection:
            return await fetch_runs(
                connection,
                f"""
                with free as (
                    select r.workspace_id, r.id from toolcrib.runs r
                    join unnest(%(workspaces)s::uuid[], %(runs)s::uuid[]) as asked (workspace_id, id)
                        using (workspace_id, id)
                    where {_CAN_BE_TAKEN}
                    for no key update of r skip locked)
                update toolcrib.runs r set {_TAKEN}
                from free where r.workspace_id = free.workspace_id and r.id = free.id
                returning {COLUMNS}
                """,  # noqa: S608 - constants of this module
                {
                    "process": process_id,
                    "workspaces": list(run_ids.values()),
                    "runs": list(run_ids),
                    "node": node,
                    "lease": lease,
                },
            )

    async def take_ready(self, process_id: ProcessId, *, node: str, limit: int) -> list[Run]:
        """Take ready runs of this node's workspaces in the order of the queue, without waiting for other processes."""
        async with self._database.as_system() as connection:
            return await fetch_runs(
                connection,
                f"""
                with ready as (
                    select r.workspace_id, r.id, row({_QUEUE_ORDER}) as place from toolcrib.runs r
                    join toolcrib.workspaces w on w.id = r.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s
                    where r.state = 'ready' and {_IS_DUE}
                ), free as (
                    select r.workspace_id, r.id from toolcrib.runs r join ready using (workspace_id, id)
                    where r.state = 'ready' and {_IS_DUE}
                    order by ready.place limit %(limit)s for no key update of r skip locked)
                update toolcrib.runs r set {_TAKEN}
                from free where r.workspace_id = free.workspace_id and r.id = free.id
                returning {COLUMNS}
                """,  # noqa: S608 - constants of this module
                {"process": process_id, "node": node, "limit": limit},
            )

    async def requeue_moved(self, workspace_id: WorkspaceId, run_id: RunId, *, node: str) -> bool:
        """Put a ready run into the queue of its workspace's home. Returns False if that is this node.

        Its entry came here because the home changed after it was made. Every entry has its own epoch.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                update toolcrib.runs r set state = 'ready', epoch = r.epoch + 1
                from toolcrib.workspaces w
                where r.workspace_id = %s and r.id = %s and r.state = 'ready' and not r.awaits_slot
                  and w.id = r.workspace_id and w.home_node not in ('', %s)
                """,
                (workspace_id, run_id, node),
            )
        return cursor.rowcount > 0

    async def where_is(self, workspace_id: WorkspaceId, run_id: RunId, *, node: str) -> tuple[bool, bool]:
        """Return whether a process has taken the run, alive or dead, and whether it is ready for another node."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select r.state = 'running', r.state = 'ready' and coalesce(w.home_node not in ('', %s), false)
                from toolcrib.runs r join toolcrib.workspaces w on w.id = r.workspace_id
                where r.workspace_id = %s and r.id = %s
                """,
                (node, workspace_id, run_id),
            )
        return (False, False) if row is None else (bool(row[0]), bool(row[1]))

    async def is_put_aside(self, workspace_id: WorkspaceId, run_id: RunId, *, epoch: int) -> bool:
        """Whether the run is put aside, and whoever takes it next gets this epoch."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                f"""
                select from toolcrib.runs r
                where r.workspace_id = %s and r.id = %s and r.state = 'ready' and r.epoch = %s - 1 and not {_IS_DUE}
                """,
                (workspace_id, run_id, epoch),
            )
        return row is not None

    async def due(self, *, node: str, lease: float, limit: int) -> list[tuple[WorkspaceId, RunId]]:
        """Return runs of this node's workspaces that are ready or whose process is dead.

        In the order of the queue: background work last, and workspaces take turns, each with its oldest first.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                f"""
                select r.workspace_id, r.id from toolcrib.runs r
                join toolcrib.workspaces w on w.id = r.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s
                where r.state in ('ready', 'running')
                  and {_IS_FREE}
                order by {_QUEUE_ORDER} limit %(limit)s
                """,  # noqa: S608 - constants of this module
                {"node": node, "lease": lease, "limit": limit},
            )
            return [(WorkspaceId(workspace_id), RunId(id_)) for workspace_id, id_ in await cursor.fetchall()]

    async def taken_by(self, process_id: ProcessId) -> list["TakenRun"]:
        """Return the runs that a process has taken."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                TakenRun,
                "select workspace_id, id, epoch from toolcrib.runs where state = 'running' and worker_id = %s",
                (process_id,),
            )

    async def let_go(self, run_ids: Mapping[RunId, WorkspaceId], *, lease: float) -> list[RunId]:
        """Return which of these runs no live process executes any more."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select r.id from unnest(%(workspaces)s::uuid[], %(runs)s::uuid[]) as asked (workspace_id, id)
                -- Look up by key: as a join, all runs at work would be compared with each of these.
                cross join lateral (
                    select r.id, r.worker_id from toolcrib.runs r
                    where r.workspace_id = asked.workspace_id and r.id = asked.id and r.state = 'running'
                    limit 1
                ) r
                where exists (select from toolcrib.live_processes(%(lease)s) p where p.id = r.worker_id)
                """,
                {"workspaces": list(run_ids.values()), "runs": list(run_ids), "lease": lease},
            )
            executed = {id_ for (id_,) in await cursor.fetchall()}
        return [run_id for run_id in run_ids if run_id not in executed]

    async def list_cancelled(self, process_id: ProcessId) -> list[RunId]:
        """Return which runs of this process were cancelled."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select id from toolcrib.runs
                where state in ('ready', 'running') and worker_id = %s and cancelled_by is not null
                """,
                (process_id,),
            )
            return [RunId(id_) for (id_,) in await cursor.fetchall()]

    async def messages_for_model(self, run: Run) -> list[SessionMessage]:
        """Return the messages for the model: those of the session without the ones that a summary replaced."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                MESSAGES
                + """
                where workspace_id = %s and session_id = %s and summary_id is null
                -- A summary comes before the messages that it does not replace.
                order by role <> 'summary', position
                """,
                (run.workspace_id, run.session_id),
            )
            return [SessionMessage(*row) for row in await cursor.fetchall()]

    async def calls(self, workspace_id: WorkspaceId, ids: Sequence[CallId]) -> dict[CallId, CallProgress]:
        """Return the state of calls in a workspace that the caller is a member of."""
        if not ids:
            return {}
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select c.id, c.tool, c.state, c.result, c.error, c.idempotent,
                       exists (select from toolcrib.paused_calls p
                               where p.workspace_id = c.workspace_id and p.call_id = c.id
                                 and p.state = 'approved' and p.resumed_at is null),
                       (select k.state from toolcrib.runs k
                        where k.workspace_id = c.workspace_id and k.parent_call_id = c.id)
                from toolcrib.tool_calls c where c.workspace_id = %s and c.id = any (%s)
                """,
                (workspace_id, list(ids)),
            )
            return {CallId(row[0]): _call_progress(row) for row in await cursor.fetchall()}

    async def violations(self, run: Run) -> Violations:
        """Return the run's sandbox violations; those of protected paths are counted separately."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select count(*) filter (where not error ? 'protected'), count(*) filter (where error ? 'protected')
                from toolcrib.tool_calls where workspace_id = %s and run_id = %s and is_violation
                """,
                (run.workspace_id, run.id),
            )
        return Violations(*row) if row else Violations()

    async def authorization(self, run: Run) -> "RunAuthorization":
        """Return whether the sender is still a member, and a stamp of everything else that affects the run."""
        async with self._database.as_system() as connection:
            row = await connection.returned_row(
                "select role, stamp from toolcrib.run_authorization(%s, %s, %s, %s)",
                (run.workspace_id, run.session_id, run.user_id, run.agent_id),
            )
        return RunAuthorization(None if row[0] is None else WorkspaceRole(row[0]), row[1])

    async def budgets(self, run: Run) -> list[BudgetState]:
        """Return the budgets that a run is subject to, with what is used of them."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                BudgetState,
                "select scope, name, max_tokens, max_cost, tokens, cost from toolcrib.run_budgets(%s, %s)",
                (run.workspace_id, run.id),
            )

    async def prompt_context(self, run: Run) -> Any:
        """Return what the session's model was told of the workspace, as stored; None if that was nothing yet."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                "select prompt_context from toolcrib.sessions where workspace_id = %s and id = %s",
                (run.workspace_id, run.session_id),
            )
        return row[0] if row else None

    async def save_prompt_context(self, run: Run, context: Mapping[str, Any]) -> None:
        """Save what the session's model is told of the workspace, so that later requests begin with the same text.

        Raises:
            Superseded: Another process has taken over the run.
        """
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await lock_run(connection, run)
            await connection.execute(
                "update toolcrib.sessions set prompt_context = %s where workspace_id = %s and id = %s",
                (json_text(context), run.workspace_id, run.session_id),
            )

    async def open_stream(self, run: Run) -> MessageId | None:
        """Return the message that a process was streaming for this run when it was killed, if there is one."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select e.payload ->> 'messageId', e.type = 'stream-start'
                from toolcrib.sessions s
                join toolcrib.events e on e.workspace_id = s.workspace_id and e.session_id = s.id
                     and e.seq > s.last_seq - %(recent)s
                where s.workspace_id = %(workspace)s and s.id = %(session)s
                  and e.type in ('stream-start', 'stream-end') and e.payload ->> 'runId' = %(run)s::text
                order by e.seq desc limit 1
                """,
                {"recent": _RECENT, "workspace": run.workspace_id, "session": run.session_id, "run": run.id},
            )
        return MessageId(UUID(row[0])) if row is not None and row[1] else None

    async def save_turn(self, run: Run, turn: Mapping[str, Any]) -> int | None:
        """Commit a turn of the model under the run's epoch. Returns the position of its message, if it has one.

        Raises:
            Superseded: Another process has taken over the run.
        """
        async with self._database.connection(Tenant(run.workspace_id)) as connection:
            return await save_turn(connection, run, turn)

    async def save_waiting(self, run: Run, call_ids: Sequence[CallId]) -> bool:
        """Release a run until a person has decided or a child run has ended.

        Returns False if that happened already, or the run was cancelled.

        Raises:
            Superseded: Another process has taken over the run.
        """
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await lock_run(connection, run)
            cursor = await connection.execute(
                f"""
                update toolcrib.runs r set state = 'waiting', worker_id = null, active_ms = r.active_ms + {ELAPSED},
                    active_since = null, attempts = 0, takeovers = 0,
                    waits_for_child = not exists (select from toolcrib.paused_calls p
                                                  where p.workspace_id = r.workspace_id
                                                    and p.call_id = any (%(calls)s)
                                                    and p.state in ('pending', 'stale'))
                where r.workspace_id = %(workspace)s and r.id = %(run)s and r.epoch = %(epoch)s and r.state = 'running'
                  and r.cancelled_by is null
                  and exists (select from toolcrib.tool_calls c
                              where c.workspace_id = r.workspace_id and c.id = any (%(calls)s)
                                and c.state = 'paused')
                  and not exists (select from toolcrib.paused_calls p
                                  where p.workspace_id = r.workspace_id and p.call_id = any (%(calls)s)
                                    and p.state = 'approved' and p.resumed_at is null
                                    -- The approved call has started a child run and waits for it.
                                    and not exists (select from toolcrib.runs k
                                                    where k.workspace_id = p.workspace_id
                                                      and k.parent_call_id = p.call_id))
                  and not exists (select from toolcrib.tool_calls c
                                  join toolcrib.runs k on k.workspace_id = c.workspace_id and k.parent_call_id = c.id
                                  where c.workspace_id = r.workspace_id and c.id = any (%(calls)s)
                                    and c.state = 'paused' and k.state = 'ended')
                """,  # noqa: S608 - a constant of this module
                {"workspace": run.workspace_id, "run": run.id, "epoch": run.epoch, "calls": list(call_ids)},
            )
            if cursor.rowcount == 0:
                return False
            await announce_review(connection, run)
            await append_run_state_event(connection, run)
        return True

    async def put_aside(self, run: Run, seconds: float, turn: Mapping[str, Any] | None = None) -> bool:
        """Release a run for so many seconds. No process holds it meanwhile.

        Args:
            turn: The end of the turn in which the model said nothing, because the provider limits requests. It is not
                counted as a turn, but as a wait for the provider.

        Returns:
            False if the run was cancelled. It then stays with this process, which ends it.

        Raises:
            Superseded: Another process has taken over the run.
        """
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await lock_run(connection, run)
            if turn is not None:
                await save_turn(connection, run, {**turn, "counts": 0})
            cursor = await connection.execute(
                f"""
                update toolcrib.runs r set state = 'ready', worker_id = null, active_ms = r.active_ms + {ELAPSED},
                    active_since = null, not_before = now() + make_interval(secs => %(seconds)s),
                    provider_waits = r.provider_waits + %(waits)s,
                    provider_wait_ms = r.provider_wait_ms + (%(waits)s * %(seconds)s * 1000)::bigint
                where r.workspace_id = %(workspace)s and r.id = %(run)s and r.epoch = %(epoch)s
                  and r.state = 'running' and r.cancelled_by is null
                """,  # noqa: S608 - a constant of this module
                {
                    "seconds": seconds,
                    "waits": int(turn is not None),
                    "workspace": run.workspace_id,
                    "run": run.id,
                    "epoch": run.epoch,
                },
            )
            if cursor.rowcount == 0:
                return False
            await append_run_state_event(connection, run)
        return True

    async def await_slot(self, run: Run, provider: str) -> bool:
        """Release a run until its credential has room for another model request. No process holds it meanwhile.

        Returns:
            False if it has room already, or the run was cancelled. It then stays with this process.

        Raises:
            Superseded: Another process has taken over the run.
        """
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await lock_run(connection, run)
            cursor = await connection.execute(
                f"""
                update toolcrib.runs r set state = 'ready', worker_id = null, active_ms = r.active_ms + {ELAPSED},
                    active_since = null, awaits_slot = true
                where r.workspace_id = %(workspace)s and r.id = %(run)s and r.epoch = %(epoch)s
                  and r.state = 'running' and r.cancelled_by is null
                  and exists (select from toolcrib.model_slots s
                              where s.workspace_id = r.workspace_id and s.run_id = r.id and s.user_id = r.user_id
                                and s.provider = %(provider)s and s.granted_at is null)
                """,  # noqa: S608 - a constant of this module
                {"workspace": run.workspace_id, "run": run.id, "epoch": run.epoch, "provider": provider},
            )
            if cursor.rowcount == 0:
                return False
            await append_run_state_event(connection, run)
        return True

    async def end(
        self,
        run: Run,
        end_reason: RunEnding,
        *,
        error: Mapping[str, Any] | None = None,
        turn: Mapping[str, Any] | None = None,
        closing: Sequence[tuple[CallRecord, AuditRecord]] = (),
    ) -> list[RunId]:
        """End a run and its open calls, with the model's last answer if there is one. Cancels its child runs.

        Returns the runs that now start or go on.
        """
        tenant = Tenant(run.workspace_id)
        async with self._database.transaction(tenant) as connection:
            children = await self._cancel_children(connection, run, run.cancelled_by)
            if closing:
                await lock_run(connection, run)
                await lock_session(connection, run)
            for call, audit in closing:
                await save_tool_call(connection, tenant, call)
                await AuditStore.append_within(connection, audit)
            cursor = await connection.execute(
                "select toolcrib.end_run(%s, %s, %s, %s, %s, %s, %s)",
                (
                    run.workspace_id,
                    run.id,
                    run.epoch,
                    end_reason,
                    None if error is None else json_text(error),
                    None if turn is None else turn_text(run, turn),
                    self._max_at_work,
                ),
            )
            started = [RunId(id_) for (id_,) in await cursor.fetchall()]
        return [*started, *children, *([run.parent_run_id] if run.parent_run_id is not None else [])]

    async def attempt(self, run: Run, *, fresh: bool) -> None:
        """Count an attempt at the run's calls before it starts. A ``fresh`` one is the first at the remaining calls.

        Raises:
            Superseded: Another process has taken over the run.
        """
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await lock_run(connection, run)
            await connection.execute(
                """
                update toolcrib.runs set attempts = case when %(fresh)s then 1 else attempts + 1 end,
                    takeovers = case when %(fresh)s then 0 else takeovers end
                where workspace_id = %(workspace)s and id = %(run)s
                """,
                {"fresh": fresh, "workspace": run.workspace_id, "run": run.id},
            )

    async def release(self, run: "RunClaim", *, orderly: bool = True) -> bool:
        """Release a run for another process, because this one stops. Returns False if this one does not have it.

        An ``orderly`` release counts no failed attempt.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                f"""
                update toolcrib.runs r set state = 'ready', worker_id = null, active_ms = r.active_ms + {ELAPSED},
                    active_since = null,
                    attempts = case when %(orderly)s then greatest(r.attempts - 1, 0) else r.attempts end
                where r.workspace_id = %(workspace)s and r.id = %(run)s and r.epoch = %(epoch)s
                  and r.state = 'running'
                """,  # noqa: S608 - a constant of this module
                {"orderly": orderly, "workspace": run.workspace_id, "run": run.id, "epoch": run.epoch},
            )
        return cursor.rowcount > 0

    async def compact(
        self, run: Run, summary: SessionMessage, up_to: int, *, context_tokens: int, used: ModelUsage
    ) -> int:
        """Replace the messages up to a position by a summary in later requests; they stay readable.

        Returns the summary's own position; the model gets it before all other messages.
        """
        payload = {"messageId": summary.id, "runId": run.id, "role": "summary", "content": summary.content}
        usage = {**used.payload, "contextTokens": context_tokens}
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await lock_run(connection, run)
            await connection.execute(
                """
                update toolcrib.messages set summary_id = %s
                where workspace_id = %s and session_id = %s and summary_id is null
                  and (position <= %s or role = 'summary')
                """,
                (summary.id, run.workspace_id, run.session_id, up_to),
            )
            row = await connection.returned_row(
                "select toolcrib.add_message(%s, %s, %s, %s, 'summary', %s, %s)",
                (run.workspace_id, run.session_id, summary.id, run.id, summary.content, json_text(summary.metadata)),
            )
            # The size is known from here on, whichever process continues.
            await connection.execute(
                """
                update toolcrib.runs set context_tokens = %s, takeovers = 0 where workspace_id = %s and id = %s
                """,
                (context_tokens, run.workspace_id, run.id),
            )
            await connection.execute(
                "select toolcrib.append_event(%s, %s, 'message', %s)",
                (run.workspace_id, run.session_id, json_text({**payload, "usage": usage})),
            )
            await connection.execute(
                """
                select toolcrib.count_model_usage(
                    %(workspace)s, %(run)s, %(provider)s, %(model)s, %(input_tokens)s, %(output_tokens)s,
                    %(cost)s::numeric, %(unpriced)s::integer)
                """,
                {"workspace": run.workspace_id, "run": run.id, **used.row},
            )
        return int(row[0])


class RunClaim(Protocol):
    """A run that a process has taken, under an epoch."""

    @property
    def id(self) -> RunId: ...

    @property
    def workspace_id(self) -> WorkspaceId: ...

    @property
    def epoch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TakenRun:
    """What is needed to release a run that was taken."""

    workspace_id: WorkspaceId
    id: RunId
    epoch: int


@dataclass(frozen=True, slots=True)
class RunAuthorization:
    """The authorization of a run. ``stamp`` changes with the agent, its grants or the session."""

    role: WorkspaceRole | None
    stamp: str


def _call_progress(row: tuple[Any, ...]) -> CallProgress:
    call_id, tool, state, result, error, idempotent, is_approved, child_state = row
    requested, is_open = _CALL_STATES[state], state in ("paused", "running")
    if is_open and child_state is not None:
        ended = child_state == RunState.ENDED
        requested = RequestedCallState.DECIDED if ended else RequestedCallState.WAITING
    elif is_open and is_approved:
        # An approved call resumes with its approval, even if it had started when its process died.
        requested = RequestedCallState.DECIDED
    return CallProgress(
        CallId(call_id),
        tool,
        requested,
        result,
        error,
        idempotent,
        begun=state == "running",
        has_child=child_state is not None,
    )


_CALL_STATES = {
    "running": RequestedCallState.BEGUN,
    "paused": RequestedCallState.WAITING,
    "done": RequestedCallState.ENDED,
    "denied": RequestedCallState.ENDED,
    "unknown": RequestedCallState.ENDED,
}
