"""Reads and writes rows of runs and messages, within a transaction of the caller."""

from collections.abc import Mapping
from typing import Any

from psycopg.rows import dict_row

from toolcrib.core.errors import NotFound
from toolcrib.core.ids import RunId, SessionId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.storage.database import Connection, Tenant

ELAPSED = "coalesce((extract(epoch from now() - r.active_since) * 1000)::bigint, 0)"

_NAMES = (
    "id", "workspace_id", "session_id", "user_id", "agent_id", "via", "prompt", "state", "end_reason", "epoch", "turns",
    "input_tokens", "output_tokens", "context_tokens", "active_ms", "active_since", "cancelled_by", "error",
    "created_at", "started_at", "ended_at", "attempts", "takeovers",
)  # fmt: skip
COLUMNS = ", ".join(f"r.{name}" for name in _NAMES)
SELECT = f"select {', '.join(_NAMES)} from toolcrib.runs "  # noqa: S608 - constants of this module
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
    cursor = await connection.execute(
        "select toolcrib.save_turn(%s, %s, %s, %s)",
        (run.workspace_id, run.id, run.epoch, json_text({**turn, "session_id": run.session_id})),
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def require_session(connection: Connection, tenant: Tenant, session_id: SessionId) -> None:
    """Raise NotFound if the session does not exist."""
    await connection.execute("select toolcrib.check_session(%s, %s, null)", (tenant.workspace_id, session_id))


async def one_run(connection: Connection, tenant: Tenant, run_id: RunId) -> Run:
    """Return one run."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(SELECT + "where workspace_id = %s and id = %s", (tenant.workspace_id, run_id))
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"Run {run_id} not found in this workspace.")
    return run_from(row)


def run_from(row: Mapping[str, Any]) -> Run:
    """Create a run from its row."""
    end_reason = RunEnding(row["end_reason"]) if row["end_reason"] else None
    return Run(**{**row, "state": RunState(row["state"]), "end_reason": end_reason})


async def start_next_queued(connection: Connection, workspace_id: WorkspaceId, session_id: SessionId) -> None:
    """Start the oldest queued run of a session unless another is unfinished. The session's row is locked."""
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
        await connection.execute("select toolcrib.start_run(%s, %s)", (workspace_id, row[0]))


async def end_run(connection: Connection, run: Run, end_reason: RunEnding, error: Mapping[str, Any] | None) -> None:
    """Mark a run as ended."""
    await connection.execute(
        f"""
        update toolcrib.runs r set state = 'ended', end_reason = %s, error = %s, worker_id = null, ended_at = now(),
            active_ms = r.active_ms + {ELAPSED}, active_since = null
        where r.workspace_id = %s and r.id = %s
        """,  # noqa: S608 - a constant of this module
        (end_reason, None if error is None else json_text(error), run.workspace_id, run.id),
    )
    await append_run_state_event(connection, await one_run(connection, Tenant(run.workspace_id), run.id))
    await start_next_queued(connection, run.workspace_id, run.session_id)


async def append_run_state_event(connection: Connection, run: Run) -> None:
    """Append the event of the run's state."""
    payload = {
        "runId": run.id,
        "state": run.state,
        "endReason": run.end_reason,
        "error": run.error,
        "turns": run.turns,
        "inputTokens": run.input_tokens,
        "outputTokens": run.output_tokens,
    }
    await connection.execute(
        "select toolcrib.append_event(%s, %s, 'run-state', %s)",
        (run.workspace_id, run.session_id, json_text(payload)),
    )
