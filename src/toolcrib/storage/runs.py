"""Runs as people use them: submit, get, cancel. Their execution is in ``run_steps``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from psycopg import Rollback
from psycopg.rows import dict_row

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.core.idempotency import EffectKind, effect_id
from toolcrib.core.ids import CallId, RunId, SessionId, UserId, WorkspaceId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.messages import session_title
from toolcrib.core.runs import DEFAULT_PRIORITY, Run, RunEnding, RunState, SessionMessage
from toolcrib.storage.database import Connection, Database, Parameters, Tenant


class RunStore:
    """Queries on runs and messages."""

    def __init__(self, database: Database, *, max_at_work: int = 50) -> None:
        """Create the store. A workspace has at most ``max_at_work`` runs that are ready or running; others queue."""
        self._database = database
        self._max_at_work = max_at_work

    async def submit(
        self,
        tenant: Tenant,
        session_id: SessionId,
        prompt: str,
        *,
        via: str,
        history: Sequence[tuple[str, str]] = (),
        priority: int = DEFAULT_PRIORITY,
        attachments: Sequence[Mapping[str, str]] = (),
        compacts: bool = False,
    ) -> Run:
        """Submit a user's message: its run starts now or, while the session has another run, later.

        With ``compacts`` the run answers no message, but summarizes the session.

        Raises:
            Forbidden: The user is not a member, or not an owner and the priority is before that of other people.
        """
        # Otherwise a member could keep the runs of the others waiting for ever.
        needs = WorkspaceRole.MEMBER if priority >= DEFAULT_PRIORITY else WorkspaceRole.OWNER
        async with self._database.transaction(tenant, needs) as connection:
            return await self.submit_within(
                connection,
                tenant,
                session_id,
                prompt,
                via=via,
                history=history,
                priority=priority,
                attachments=attachments,
                compacts=compacts,
            )

    async def retry(self, tenant: Tenant, run_id: RunId, *, via: str) -> Run:
        """Submit the message of a run that failed, was cancelled or used up a budget again, as a new run.

        Raises:
            Conflict: The run has not ended, or ended otherwise.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            run = await one_run(connection, tenant, run_id)
            if run.end_reason is None:
                raise Conflict(f"The run has not ended: it is {run.state}. Cancel it first, or wait for its end.")
            if not run.is_retriable:
                raise Conflict(
                    f"The run ended with {run.end_reason!r}. Only a run that failed, was cancelled or used up a "
                    "budget can be retried; send a new message instead."
                )
            # What waited for others waits again. Being before others is asked for again, by an owner.
            priority = max(run.priority, DEFAULT_PRIORITY)
            row = await connection.fetch_row(
                "select attachments from toolcrib.runs where workspace_id = %s and id = %s",
                (tenant.workspace_id, run_id),
            )
            attachments = (row[0] if row else None) or ()
            return await self.submit_within(
                connection,
                tenant,
                run.session_id,
                run.prompt,
                via=via,
                priority=priority,
                attachments=attachments,
                compacts=run.compacts,
            )

    async def submit_within(
        self,
        connection: Connection,
        tenant: Tenant,
        session_id: SessionId,
        prompt: str,
        *,
        via: str,
        history: Sequence[tuple[str, str]] = (),
        priority: int = DEFAULT_PRIORITY,
        attachments: Sequence[Mapping[str, str]] = (),
        compacts: bool = False,
    ) -> Run:
        """Submit a message in a transaction of the tenant, a member.

        Args:
            attachments: The path and the call of each file that the message brings, as messages store them.
        """
        run_id = RunId(effect_id(EffectKind.RUN))
        row = await connection.fetch_row(
            """
            select agent_id, last_message_position from toolcrib.sessions
            where workspace_id = %s and id = %s for no key update
            """,
            (tenant.workspace_id, session_id),
        )
        if row is None:
            raise NotFound(f"Session {session_id} not found in this workspace.")
        for role, content in history if row[1] == 0 else ():
            await connection.execute(
                "select toolcrib.add_earlier_message(%s, %s, %s, %s, %s, %s)",
                (tenant.workspace_id, session_id, new_id(), tenant.user_id, role, content),
            )
        await connection.execute(
            """
            insert into toolcrib.runs
                (workspace_id, id, session_id, user_id, agent_id, via, prompt, priority, attachments, compacts, state)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, 'queued')
            """,
            (
                tenant.workspace_id,
                run_id,
                session_id,
                tenant.user_id,
                row[0],
                via,
                prompt,
                priority,
                json_text([dict(one) for one in attachments]) if attachments else None,
                compacts,
            ),
        )
        if not compacts and (title := session_title(prompt)):
            await connection.execute(
                "update toolcrib.sessions set title = %s where workspace_id = %s and id = %s and title is null",
                (title, tenant.workspace_id, session_id),
            )
        await self._start_queued(connection, tenant.workspace_id)
        run = await one_run(connection, tenant, run_id)
        if run.state is RunState.QUEUED:
            await append_run_state_event(connection, run)
        return run

    async def start_queued(self, workspace_id: WorkspaceId) -> list[RunId]:
        """Start queued runs of a workspace while it has room for them."""
        async with self._database.transaction(Tenant(workspace_id)) as connection:
            return await self._start_queued(connection, workspace_id)

    async def _start_queued(self, connection: Connection, workspace_id: WorkspaceId) -> list[RunId]:
        cursor = await connection.execute(
            "select toolcrib.start_queued_runs(%s, %s)", (workspace_id, self._max_at_work)
        )
        return [RunId(id_) for (id_,) in await cursor.fetchall()]

    async def get(self, tenant: Tenant, run_id: RunId) -> Run:
        """Return one run."""
        async with self._database.transaction(tenant) as connection:
            return await one_run(connection, tenant, run_id)

    async def unfinished(self, tenant: Tenant, session_id: SessionId) -> Run | None:
        """Return the session's run that has not ended, if there is one."""
        async with self._database.transaction(tenant) as connection:
            found = await fetch_runs(
                connection,
                SELECT + "where workspace_id = %s and session_id = %s and state in ('ready', 'running', 'waiting')",
                (tenant.workspace_id, session_id),
            )
        return found[0] if found else None

    async def page(
        self,
        tenant: Tenant,
        session_id: SessionId | None = None,
        *,
        state: RunState | None = None,
        parent_id: RunId | None = None,
        before: RunId | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Return the runs of a session, or of the whole workspace, newest first.

        With ``state``, only those in it; with ``parent_id``, only the child runs of that run.
        """
        async with self._database.transaction(tenant) as connection:
            if session_id is not None:
                await require_session(connection, tenant, session_id)
            return await fetch_runs(
                connection,
                SELECT
                + """
                where workspace_id = %(workspace)s and (%(session)s::uuid is null or session_id = %(session)s)
                  and (%(state)s::text is null or state = %(state)s)
                  and (%(parent)s::uuid is null or parent_run_id = %(parent)s)
                  and (%(before)s::uuid is null or id < %(before)s)
                order by id desc limit %(limit)s
                """,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "state": state,
                    "parent": parent_id,
                    "before": before,
                    "limit": limit,
                },
            )

    async def cancel(self, tenant: Tenant, run_id: RunId) -> Run:
        """Cancel a run and its child runs. One without a process ends at once; others notice it within a second.

        The messages queued behind a run that had started are held: who stops an agent does not want it to go on.
        """
        return await self._cancel_queued(tenant, run_id) or await self._cancel_begun(tenant, run_id)

    async def _cancel_queued(self, tenant: Tenant, run_id: RunId) -> Run | None:
        """End a queued run; returns None if it has started.

        Locks the session first, as everything that starts runs does.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            run = await one_run(connection, tenant, run_id)
            if run.state is not RunState.QUEUED:
                return None
            await lock_session(connection, run)
            cursor = await connection.execute(
                """
                update toolcrib.runs set cancelled_by = %s
                where workspace_id = %s and id = %s and state = 'queued'
                """,
                (tenant.user_id, tenant.workspace_id, run_id),
            )
            if cursor.rowcount == 0:
                # Leaves the block, and returns None. The lock alone would count as an effect of the request.
                raise Rollback
            await self._end(connection, run, RunEnding.CANCELLED, None)
            return await one_run(connection, tenant, run_id)

    async def _cancel_begun(self, tenant: Tenant, run_id: RunId) -> Run:
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            await self._cancel_children(connection, await one_run(connection, tenant, run_id), tenant.user_id)
            cursor = await connection.execute(
                """
                update toolcrib.runs set cancelled_by = coalesce(cancelled_by, %s)
                where workspace_id = %s and id = %s and state <> 'ended'
                """,
                (tenant.user_id, tenant.workspace_id, run_id),
            )
            run = await one_run(connection, tenant, run_id)
            if cursor.rowcount == 0:
                raise Conflict(f"The run has already ended: {run.end_reason}.")
            if run.state is RunState.WAITING:
                # The process that claims it sees that it was cancelled, and ends it properly.
                await connection.execute("select toolcrib.set_run_ready(%s, %s)", (tenant.workspace_id, run_id))
            await lock_session(connection, run)
            await _hold_queued(connection, run)
            if run.is_between_turns:
                # We hold its row: nobody takes it meanwhile.
                await self._end(connection, run, RunEnding.CANCELLED, None)
                return await one_run(connection, tenant, run_id)
            await _take_up(connection, run)
        return run

    async def _cancel_children(self, connection: Connection, run: Run, user_id: UserId | None) -> list[RunId]:
        """Cancel the unfinished descendants of a run, and return them. Their processes end those that have started.

        Locks them before their parents, as the end of a child run does.
        """
        cursor = await connection.execute("select toolcrib.child_runs(%s, %s)", (run.workspace_id, run.id))
        children = [RunId(id_) for (id_,) in await cursor.fetchall()]
        without_process, waiting = [], []
        for child_id in children:
            child = await one_run(connection, Tenant(run.workspace_id), child_id)
            if child.state is RunState.QUEUED:
                await lock_session(connection, child)
            row = await connection.fetch_row(
                """
                update toolcrib.runs set cancelled_by = coalesce(cancelled_by, %s)
                where workspace_id = %s and id = %s and state <> 'ended'
                returning state
                """,
                (user_id or run.user_id, run.workspace_id, child_id),
            )
            if row is None:
                continue
            child = await one_run(connection, Tenant(run.workspace_id), child_id)
            if child.state is RunState.QUEUED or child.is_between_turns:
                without_process.append(child)
            elif child.state is RunState.WAITING:
                waiting.append(child_id)
            else:
                await _take_up(connection, child)
        # Their end locks their parents, so only now that all of them are locked: a child that saves a turn meanwhile
        # locks itself and then its parent.
        for child in without_process:
            await _mark_ended(connection, child, RunEnding.CANCELLED, None)
        for child_id in waiting:
            await connection.execute("select toolcrib.set_run_ready(%s, %s)", (run.workspace_id, child_id))
        return children

    async def children(self, tenant: Tenant, run_id: RunId) -> list[RunId]:
        """Return the unfinished child runs of a run, and theirs."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute("select toolcrib.child_runs(%s, %s)", (tenant.workspace_id, run_id))
            return [RunId(id_) for (id_,) in await cursor.fetchall()]

    async def release_held(self, tenant: Tenant, run_id: RunId) -> Run:
        """Release a held run: it starts now or, while the session has another run, later."""
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            run = await one_run(connection, tenant, run_id)
            await lock_session(connection, run)
            cursor = await connection.execute(
                """
                update toolcrib.runs set held = false
                where workspace_id = %s and id = %s and state = 'queued' and held
                """,
                (tenant.workspace_id, run_id),
            )
            if cursor.rowcount == 0:
                raise Conflict("The run is not held. Only a message that a stop held can be released.")
            if run_id not in await self._start_queued(connection, tenant.workspace_id):
                await append_run_state_event(connection, run)
            return await one_run(connection, tenant, run_id)

    async def _end(
        self, connection: Connection, run: Run, end_reason: RunEnding, error: Mapping[str, Any] | None
    ) -> list[RunId]:
        """Mark a run as ended, and return the runs that start instead of it."""
        await _mark_ended(connection, run, end_reason, error)
        return await self._start_queued(connection, run.workspace_id)

    async def messages(
        self, tenant: Tenant, session_id: SessionId, *, run_id: RunId | None = None, after: int = 0, limit: int = 200
    ) -> list[SessionMessage]:
        """Return a session's messages in order, including compacted ones. With ``run_id``, only those of that run."""
        async with self._database.transaction(tenant) as connection:
            await require_session(connection, tenant, session_id)
            cursor = await connection.execute(
                MESSAGES
                + """
                where workspace_id = %(workspace)s and session_id = %(session)s and position > %(after)s
                  and (%(run)s::uuid is null or run_id = %(run)s)
                order by position limit %(limit)s
                """,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "run": run_id,
                    "after": after,
                    "limit": limit,
                },
            )
            return [SessionMessage(*row) for row in await cursor.fetchall()]


ELAPSED = "coalesce((extract(epoch from now() - r.active_since) * 1000)::bigint, 0)"

# A process that is silent for this long is gone for good: others should have taken over what it had.
UNATTENDED_SECONDS = 60.0

_NAMES = (
    "id", "workspace_id", "session_id", "user_id", "agent_id", "via", "prompt", "state", "end_reason", "epoch", "turns",
    "input_tokens", "output_tokens", "context_tokens", "active_ms", "active_since", "cancelled_by", "error",
    "created_at", "started_at", "ended_at", "attempts", "takeovers", "held", "priority", "not_before",
    "provider_waits", "provider_wait_ms", "awaits_slot", "parent_run_id", "max_turns", "max_active_ms", "child_turns",
    "waits_for_child", "cost", "unpriced_turns", "child_tokens", "child_cost", "child_unpriced", "compacts",
)  # fmt: skip
COLUMNS = ", ".join(f"r.{name}" for name in _NAMES)
SELECT = f"""
select {", ".join(_NAMES)},
       toolcrib.run_is_unattended(id, state, epoch, worker_id, awaits_slot, {UNATTENDED_SECONDS}) as is_unattended
from toolcrib.runs
"""  # noqa: S608 - constants of this module
MESSAGES = "select id, position, run_id, role, content, metadata, created_at from toolcrib.messages "


async def lock_run(connection: Connection, run: Run) -> None:
    """Lock a run that this process executes.

    Raises:
        Superseded: Another process has taken it over.
    """
    await connection.execute("select toolcrib.lock_run(%s, %s, %s)", (run.workspace_id, run.id, run.epoch))


async def lock_session(connection: Connection, run: Run) -> None:
    """Lock the run's session."""
    await connection.execute(
        "select from toolcrib.sessions where workspace_id = %s and id = %s for no key update",
        (run.workspace_id, run.session_id),
    )


async def save_turn(connection: Connection, run: Run, turn: Mapping[str, Any]) -> int | None:
    """Write a turn of the model and return the position of its message."""
    row = await connection.fetch_row(
        "select toolcrib.save_turn(%s, %s, %s, %s)",
        (run.workspace_id, run.id, run.epoch, turn_text(run, turn)),
    )
    return None if row is None else row[0]


def turn_text(run: Run, turn: Mapping[str, Any]) -> str:
    """Return a turn of the model as the functions of the database take it."""
    return json_text({**turn, "session_id": run.session_id})


async def require_session(connection: Connection, tenant: Tenant, session_id: SessionId) -> None:
    """Raise NotFound if the session does not exist."""
    await connection.execute("select toolcrib.check_session(%s, %s, null)", (tenant.workspace_id, session_id))


async def one_run(connection: Connection, tenant: Tenant, run_id: RunId) -> Run:
    """Return one run."""
    found = await fetch_runs(connection, SELECT + "where workspace_id = %s and id = %s", (tenant.workspace_id, run_id))
    if not found:
        raise NotFound(f"Run {run_id} not found in this workspace.")
    return found[0]


@dataclass(frozen=True, slots=True)
class RunAbove:
    """A run that started another one, directly or not: the call that did, and its session."""

    child_id: RunId
    run_id: RunId
    call_id: CallId
    session_id: SessionId

    @property
    def ids(self) -> tuple[UUID, UUID, UUID]:
        """The ids of all that an undo may name."""
        return self.run_id, self.call_id, self.session_id


async def runs_above(connection: Connection, tenant: Tenant, run_ids: Collection[RunId]) -> dict[RunId, list[RunAbove]]:
    """Return what started those of these runs that are child runs, the nearest first."""
    found = await connection.fetch_all(
        RunAbove,
        """
        with recursive above as (
            select r.id as child_id, r.parent_run_id as run_id, r.parent_call_id as call_id, 1 as height
            from toolcrib.runs r
            where r.workspace_id = %(workspace)s and r.id = any (%(runs)s) and r.parent_run_id is not null
            union all
            select a.child_id, r.parent_run_id, r.parent_call_id, a.height + 1 from above a
            join toolcrib.runs r on r.workspace_id = %(workspace)s and r.id = a.run_id
            where r.parent_run_id is not null
        )
        select a.child_id, a.run_id, a.call_id, r.session_id from above a
        join toolcrib.runs r on r.workspace_id = %(workspace)s and r.id = a.run_id
        order by a.height
        """,
        {"workspace": tenant.workspace_id, "runs": list(run_ids)},
    )
    above: dict[RunId, list[RunAbove]] = {}
    for one in found:
        above.setdefault(one.child_id, []).append(one)
    return above


async def fetch_runs(connection: Connection, statement: LiteralString, parameters: Parameters) -> list[Run]:
    """Execute a statement that returns the columns of runs."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(statement, parameters)
    return [
        Run(
            **{
                **row,
                "state": RunState(row["state"]),
                "end_reason": RunEnding(row["end_reason"]) if row["end_reason"] else None,
            }
        )
        for row in await cursor.fetchall()
    ]


async def _mark_ended(connection: Connection, run: Run, end_reason: RunEnding, error: Mapping[str, Any] | None) -> None:
    await connection.execute(
        "select toolcrib.mark_run_ended(%s, %s, %s, %s)",
        (run.workspace_id, run.id, end_reason, None if error is None else json_text(error)),
    )


async def _take_up(connection: Connection, run: Run) -> None:
    """Put a run that was put aside in the middle of a turn into the queue again, so that a process ends it properly.

    The queue has an entry for its epoch already, for later.
    """
    await connection.execute(
        """
        update toolcrib.runs set state = 'ready', not_before = null, epoch = epoch + 1
        where workspace_id = %s and id = %s and state = 'ready' and not_before is not null
        """,
        (run.workspace_id, run.id),
    )


async def _hold_queued(connection: Connection, stopped: Run) -> None:
    """Hold the queued runs of a session whose run was stopped. The session's row is locked."""
    held = await fetch_runs(
        connection,
        f"""
        update toolcrib.runs r set held = true
        where r.workspace_id = %s and r.session_id = %s and r.state = 'queued' and not r.held
        returning {COLUMNS}
        """,  # noqa: S608 - a constant of this module
        (stopped.workspace_id, stopped.session_id),
    )
    for run in sorted(held, key=lambda run: run.id):
        await append_run_state_event(connection, run)


async def announce_review(connection: Connection, run: Run) -> None:
    """Append the event that the run's changes wait for a review, if they do."""
    await connection.execute("select toolcrib.announce_review(%s, %s, %s)", (run.workspace_id, run.session_id, run.id))


async def append_run_state_event(connection: Connection, run: Run) -> None:
    """Append the event of the run's state."""
    await connection.execute("select toolcrib.append_run_state(%s, %s)", (run.workspace_id, run.id))
