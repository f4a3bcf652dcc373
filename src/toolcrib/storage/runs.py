"""Runs as rows: submitted, taken by one process at a time, committed step by step under an epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row

from toolcrib.domain.callers import Role
from toolcrib.domain.errors import Conflict, NotFound
from toolcrib.domain.ids import CallId, ProcessId, RunId, SessionId, WorkspaceId, new_id
from toolcrib.domain.runs import CallState, Ending, Run, RunState, Said
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.json_text import json_text


class Runs:
    """Queries on runs and messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # What people do

    async def submit(
        self,
        tenant: Tenant,
        session_id: SessionId,
        prompt: str,
        *,
        via: str,
        history: Sequence[tuple[str, str]] = (),
    ) -> Run:
        """A message of a user: a run that begins now, or, while the session has another, later."""
        run_id = RunId(new_id())
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            cursor = await connection.execute(
                "select agent_id, last_position from toolcrib.sessions where workspace_id = %s and id = %s for update",
                (tenant.workspace_id, session_id),
            )
            row = await cursor.fetchone()
            if row is None:
                raise NotFound(f"Session {session_id} not found in this workspace.")
            for role, content in history if row[1] == 0 else ():
                await connection.execute(
                    "select toolcrib.add_message(%s, %s, %s, null, %s, %s, null)",
                    (tenant.workspace_id, session_id, new_id(), role, content),
                )
            await connection.execute(
                """
                insert into toolcrib.runs (workspace_id, id, session_id, user_id, agent_id, via, prompt, state)
                values (%s, %s, %s, %s, %s, %s, %s, 'queued')
                """,
                (tenant.workspace_id, run_id, session_id, tenant.user_id, row[0], via, prompt),
            )
            await _begin_next(connection, tenant.workspace_id, session_id)
            run = await _one(connection, tenant, run_id)
            await _tell_state(connection, run)
        return run

    async def get(self, tenant: Tenant, run_id: RunId) -> Run:
        async with self._database.transaction(tenant) as connection:
            return await _one(connection, tenant, run_id)

    async def unfinished(self, tenant: Tenant, session_id: SessionId) -> Run | None:
        """The run that a session has, if it has one that has not ended."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                _SELECT
                + """
                where workspace_id = %s and session_id = %s and state in ('ready', 'running', 'waiting')
                """,
                (tenant.workspace_id, session_id),
            )
            row = await cursor.fetchone()
        return _run(row) if row else None

    async def page(
        self, tenant: Tenant, session_id: SessionId, *, before: RunId | None = None, limit: int = 50
    ) -> list[Run]:
        """A session's runs, the newest first."""
        async with self._database.transaction(tenant) as connection:
            await _require_session(connection, tenant, session_id)
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                _SELECT
                + """
                where workspace_id = %(workspace)s and session_id = %(session)s
                  and (%(before)s::uuid is null or id < %(before)s)
                order by id desc limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "session": session_id, "before": before, "limit": limit},
            )
            return [_run(row) for row in await cursor.fetchall()]

    async def cancel(self, tenant: Tenant, run_id: RunId) -> Run:
        """Asks a run to stop. One that nobody works on ends here and now; the others see it within a second."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.runs set cancelled_by = coalesce(cancelled_by, %s)
                where workspace_id = %s and id = %s and state <> 'ended' returning state
                """,
                (tenant.user_id, tenant.workspace_id, run_id),
            )
            row = await cursor.fetchone()
            run = await _one(connection, tenant, run_id)
            if row is None:
                raise Conflict(f"The run has ended already: {run.ending}.")
            if run.state is RunState.QUEUED:
                await _end(connection, run, Ending.CANCELLED, None)
                run = await _one(connection, tenant, run_id)
            elif run.state is RunState.WAITING:
                # Whoever takes it sees that it was cancelled, and ends it in good order.
                await connection.execute("select toolcrib.wake_run(%s, %s)", (tenant.workspace_id, run_id))
        return run

    async def messages(self, tenant: Tenant, session_id: SessionId, *, after: int = 0, limit: int = 200) -> list[Said]:
        """A session's messages in order, those that were compacted too."""
        async with self._database.transaction(tenant) as connection:
            await _require_session(connection, tenant, session_id)
            cursor = await connection.execute(
                _MESSAGES + "where workspace_id = %s and session_id = %s and position > %s order by position limit %s",
                (tenant.workspace_id, session_id, after, limit),
            )
            return [Said(*row) for row in await cursor.fetchall()]

    # What the engine does, as the system

    async def claim(self, process_id: ProcessId, *, node: str, lease: float, limit: int) -> list[Run]:
        """Takes runs that are ready, or whose process has fallen silent, where this node holds the files."""
        async with self._database.system() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                f"""
                with due as (
                    select r.workspace_id, r.id from toolcrib.runs r
                    where r.state in ('ready', 'running')
                      and (r.state = 'ready' or not exists (
                            select from toolcrib.processes p
                            where p.id = r.runner and p.beat_at > now() - make_interval(secs => %(lease)s)))
                      and exists (select from toolcrib.workspaces w
                                  where w.id = r.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                    order by r.created_at limit %(limit)s for update skip locked
                )
                update toolcrib.runs r set
                    state = 'running', epoch = r.epoch + 1, runner = %(process)s, active_since = now(),
                    active_ms = r.active_ms
                        + case when r.state = 'running' then {_ELAPSED} else 0 end,
                    started_at = coalesce(r.started_at, now())
                from due d where r.workspace_id = d.workspace_id and r.id = d.id
                returning {_COLUMNS}
                """,  # noqa: S608 - constants of this module
                {"process": process_id, "node": node, "lease": lease, "limit": limit},
            )
            return [_run(row) for row in await cursor.fetchall()]

    async def cancelled(self, process_id: ProcessId) -> list[RunId]:
        """Which of the runs that this process has in hand were cancelled."""
        async with self._database.system() as connection:
            cursor = await connection.execute(
                """
                select id from toolcrib.runs
                where state in ('ready', 'running') and runner = %s and cancelled_by is not null
                """,
                (process_id,),
            )
            return [RunId(id_) for (id_,) in await cursor.fetchall()]

    async def conversation(self, run: Run) -> list[Said]:
        """What the model is told: the session's messages, those that a summary stands for left out."""
        async with self._database.system() as connection:
            cursor = await connection.execute(
                _MESSAGES
                + """
                where workspace_id = %s and session_id = %s and summary_id is null order by position
                """,
                (run.workspace_id, run.session_id),
            )
            return [Said(*row) for row in await cursor.fetchall()]

    async def calls(self, run: Run, ids: Sequence[CallId]) -> dict[CallId, "CallRow"]:
        """How far calls are."""
        if not ids:
            return {}
        async with self._database.system() as connection:
            cursor = await connection.execute(
                """
                select c.id, c.tool, c.state, c.result, c.error, c.violation, c.repeatable,
                       exists (select from toolcrib.approvals a
                               where a.workspace_id = c.workspace_id and a.call_id = c.id
                                 and a.state = 'allowed' and a.carried_at is null)
                from toolcrib.tool_calls c where c.workspace_id = %s and c.id = any (%s)
                """,
                (run.workspace_id, list(ids)),
            )
            return {CallId(row[0]): CallRow(row) for row in await cursor.fetchall()}

    async def violations(self, run: Run) -> int:
        async with self._database.system() as connection:
            cursor = await connection.execute(
                "select count(*) from toolcrib.tool_calls where workspace_id = %s and run_id = %s and violation",
                (run.workspace_id, run.id),
            )
            row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def record_turn(self, run: Run, turn: Mapping[str, Any]) -> None:
        """A turn of the model, committed under the run's epoch; Superseded if another process has it."""
        async with self._database.connection(Tenant(run.workspace_id)) as connection:
            await connection.execute(
                "select toolcrib.record_turn(%s, %s, %s, %s)",
                (run.workspace_id, run.id, run.epoch, json_text({**turn, "session_id": run.session_id})),
                prepare=True,
            )

    async def wait(self, run: Run, call_ids: Sequence[CallId]) -> bool:
        """Lets go of a run until a person has decided. False if that has happened meanwhile."""
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await connection.execute(
                "select from toolcrib.runs where workspace_id = %s and id = %s for update", (run.workspace_id, run.id)
            )
            cursor = await connection.execute(
                f"""
                update toolcrib.runs r set state = 'waiting', runner = null, active_ms = r.active_ms + {_ELAPSED},
                    active_since = null
                where r.workspace_id = %(workspace)s and r.id = %(run)s and r.epoch = %(epoch)s and r.state = 'running'
                  and r.cancelled_by is null
                  and exists (select from toolcrib.tool_calls c
                              where c.workspace_id = r.workspace_id and c.id = any (%(calls)s)
                                and c.state = 'waiting')
                  and not exists (select from toolcrib.approvals a
                                  where a.workspace_id = r.workspace_id and a.call_id = any (%(calls)s)
                                    and a.state = 'allowed' and a.carried_at is null)
                """,  # noqa: S608 - a constant of this module
                {"workspace": run.workspace_id, "run": run.id, "epoch": run.epoch, "calls": list(call_ids)},
            )
            if cursor.rowcount == 0:
                return False
            await _tell_state(connection, await _one(connection, Tenant(run.workspace_id), run.id))
        return True

    async def end(
        self,
        run: Run,
        ending: Ending,
        *,
        error: Mapping[str, Any] | None = None,
        turn: Mapping[str, Any] | None = None,
    ) -> Run:
        """Ends a run, with the last words if there are some, and lets the session's next one begin."""
        tenant = Tenant(run.workspace_id)
        async with self._database.transaction(tenant) as connection:
            await connection.execute(
                "select from toolcrib.sessions where workspace_id = %s and id = %s for update",
                (run.workspace_id, run.session_id),
            )
            if turn is not None:
                await connection.execute(
                    "select toolcrib.record_turn(%s, %s, %s, %s)",
                    (run.workspace_id, run.id, run.epoch, json_text({**turn, "session_id": run.session_id})),
                )
            else:
                await connection.execute(
                    "select toolcrib.require_run(%s, %s, %s)", (run.workspace_id, run.id, run.epoch)
                )
            await _end(connection, run, ending, error)
            return await _one(connection, tenant, run.id)

    async def release(self, run: Run) -> None:
        """Gives a run back, for another process: this one stops."""
        async with self._database.system() as connection:
            await connection.execute(
                f"""
                update toolcrib.runs r set state = 'ready', runner = null, active_ms = r.active_ms + {_ELAPSED},
                    active_since = null
                where r.workspace_id = %s and r.id = %s and r.epoch = %s and r.state = 'running'
                """,  # noqa: S608 - a constant of this module
                (run.workspace_id, run.id, run.epoch),
            )

    async def compact(self, run: Run, summary: Said, up_to: int) -> None:
        """A summary stands for the messages up to a position from now on. They stay, and can be read by their ids."""
        async with self._database.transaction(Tenant(run.workspace_id)) as connection:
            await connection.execute("select toolcrib.require_run(%s, %s, %s)", (run.workspace_id, run.id, run.epoch))
            await connection.execute(
                """
                update toolcrib.messages set summary_id = %s
                where workspace_id = %s and session_id = %s and position <= %s and summary_id is null
                """,
                (summary.id, run.workspace_id, run.session_id, up_to),
            )
            # In the place of the last message that it stands for: the rest follows it.
            await connection.execute(
                """
                update toolcrib.messages set position = -position
                where workspace_id = %s and session_id = %s and position = %s
                """,
                (run.workspace_id, run.session_id, up_to),
            )
            await connection.execute(
                """
                insert into toolcrib.messages (workspace_id, session_id, position, id, run_id, role, content, metadata)
                values (%s, %s, %s, %s, %s, 'summary', %s, %s)
                """,
                (
                    run.workspace_id,
                    run.session_id,
                    up_to,
                    summary.id,
                    run.id,
                    summary.content,
                    json_text(summary.metadata),
                ),
            )


class CallRow:
    """A call of a run, as far as it is."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id, self.tool, state, self.result, self.error, self.violation, self.repeatable, decided = row
        self.state = _CALL_STATES[state] if not (decided and state == "waiting") else CallState.DECIDED


_CALL_STATES = {
    "running": CallState.BEGUN,
    "waiting": CallState.WAITING,
    "done": CallState.ENDED,
    "refused": CallState.ENDED,
    "unknown": CallState.ENDED,
}

_ELAPSED = "coalesce((extract(epoch from now() - r.active_since) * 1000)::bigint, 0)"

_NAMES = (
    "id", "workspace_id", "session_id", "user_id", "agent_id", "via", "prompt", "state", "ending", "epoch", "turns",
    "input_tokens", "output_tokens", "context_tokens", "active_ms", "active_since", "cancelled_by", "error",
    "created_at", "started_at", "ended_at",
)  # fmt: skip
_COLUMNS = ", ".join(f"r.{name}" for name in _NAMES)
_SELECT = f"select {', '.join(_NAMES)} from toolcrib.runs "  # noqa: S608 - constants of this module
_MESSAGES = "select id, position, run_id, role, content, metadata, created_at from toolcrib.messages "


async def _require_session(connection: Connection, tenant: Tenant, session_id: SessionId) -> None:
    await connection.execute("select toolcrib.require_session(%s, %s, null)", (tenant.workspace_id, session_id))


async def _one(connection: Connection, tenant: Tenant, run_id: RunId) -> Run:
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(_SELECT + "where workspace_id = %s and id = %s", (tenant.workspace_id, run_id))
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"Run {run_id} not found in this workspace.")
    return _run(row)


def _run(row: Mapping[str, Any]) -> Run:
    ending = Ending(row["ending"]) if row["ending"] else None
    return Run(**{**row, "state": RunState(row["state"]), "ending": ending})


async def _begin_next(connection: Connection, workspace_id: WorkspaceId, session_id: SessionId) -> None:
    """The oldest queued run of a session begins, unless another has not ended. The session's row is locked."""
    cursor = await connection.execute(
        """
        select r.id from toolcrib.runs r
        where r.workspace_id = %(workspace)s and r.session_id = %(session)s and r.state = 'queued'
          and not exists (select from toolcrib.runs o
                          where o.workspace_id = r.workspace_id and o.session_id = r.session_id
                            and o.state in ('ready', 'running', 'waiting'))
        order by r.id limit 1
        """,
        {"workspace": workspace_id, "session": session_id},
    )
    row = await cursor.fetchone()
    if row is not None:
        await connection.execute("select toolcrib.begin_run(%s, %s)", (workspace_id, row[0]))


async def _end(connection: Connection, run: Run, ending: Ending, error: Mapping[str, Any] | None) -> None:
    await connection.execute(
        f"""
        update toolcrib.runs r set state = 'ended', ending = %s, error = %s, runner = null, ended_at = now(),
            active_ms = r.active_ms + {_ELAPSED}, active_since = null
        where r.workspace_id = %s and r.id = %s
        """,  # noqa: S608 - a constant of this module
        (ending, None if error is None else json_text(error), run.workspace_id, run.id),
    )
    await _tell_state(connection, await _one(connection, Tenant(run.workspace_id), run.id))
    await _begin_next(connection, run.workspace_id, run.session_id)


async def _tell_state(connection: Connection, run: Run) -> None:
    payload = {
        "runId": run.id,
        "state": run.state,
        "ending": run.ending,
        "error": run.error,
        "turns": run.turns,
        "inputTokens": run.input_tokens,
        "outputTokens": run.output_tokens,
    }
    await connection.execute(
        "select toolcrib.append_event(%s, %s, 'run-state', %s)",
        (run.workspace_id, run.session_id, json_text(payload)),
    )
