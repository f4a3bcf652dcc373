"""What the statements cost that every server repeats, at a scale of generated rows (`bench engine`)."""

import asyncio
import re
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine

from toolcrib.core.ids import ProcessId, RunId, WorkspaceId
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.periodic_jobs import PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.settings import Settings
from toolcrib.storage.database import Connection, Database
from toolcrib.storage.paused_calls import PausedCallStore
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.storage.tool_calls import ToolCallStore

_NODES = 100
_PENDING_APPROVALS = 10_000
_WATCH_SECONDS = 4.0
_TRIES = 7
_LEASE = 30.0
_EXPLAIN = "explain (analyze, buffers, format json)"
_MEASURED = ("select", "update", "delete", "insert", "with")

# Statements of the Toolcrib server and of DBOS, by text, with the parameters of the first execution.
Recorded = dict[str, Any]


@dataclass(frozen=True)
class StatementCost:
    """What one execution cost: milliseconds, planning included, and pages that it touched."""

    milliseconds: float
    pages: int


async def statement_times(settings: Settings, owner_url: str, *, workspaces: int, running: int) -> dict[str, float]:
    """Return the milliseconds of each statement that a server repeats, planning included: the median of a few."""
    await asyncio.to_thread(generate_rows, owner_url, workspaces, running)
    settings = settings.model_copy(update={"node_name": "node-0"})
    async with Database.open(settings.database_url, settings.system_url, pool_size=4) as database:
        ours, engines = await record_statements(settings, database)
        rounds = [await statement_costs(settings, database, ours, engines) for _ in range(_TRIES)]
    return {name: statistics.median(one[name].milliseconds for one in rounds) for name in rounds[0]}


async def statement_costs(
    settings: Settings, database: Database, ours: Recorded, engines: Recorded
) -> dict[str, StatementCost]:
    """Execute each statement once, and undo it."""
    found = {}
    for statement, parameters in ours.items():
        async with database.as_system() as connection, connection.transaction(force_rollback=True):
            cursor = await connection.execute(f"{_EXPLAIN} {statement}".encode(), parameters)
            found[_shortened(statement)] = _cost(await cursor.fetchone())
    with psycopg.connect(settings.system_url, autocommit=True) as plain:
        for statement, parameters in engines.items():
            with plain.transaction(force_rollback=True):
                row = plain.execute(f"{_EXPLAIN} {statement}".encode(), _elsewhere(parameters)).fetchone()
            found[_shortened(statement)] = _cost(row)
    return found


def generate_rows(owner_url: str, workspaces: int, running: int) -> None:
    with psycopg.connect(owner_url, autocommit=True) as connection:
        # No triggers: they would enqueue and audit a million rows.
        connection.execute("set session_replication_role = replica")
        connection.execute(
            """
            insert into toolcrib.workspaces (id, name, home_node, created_by)
            select lpad(to_hex(n), 32, '0')::uuid, 'generated', 'node-' || n %% %s, gen_random_uuid()
            from generate_series(1, %s) n
            """,
            (_NODES, workspaces),
        )
        connection.execute(
            """
            insert into toolcrib.server_processes (id, node, heartbeat_at)
            select ('1' || lpad(to_hex(n), 31, '0'))::uuid, 'node-' || n, now() + interval '1 day'
            from generate_series(0, %s - 1) n
            """,
            (_NODES,),
        )
        connection.execute(
            """
            insert into toolcrib.runs (workspace_id, id, session_id, user_id, via, prompt, state, epoch, worker_id,
                                       active_since, started_at)
            select lpad(to_hex(n), 32, '0')::uuid, ('2' || lpad(to_hex(n), 31, '0'))::uuid, gen_random_uuid(),
                   gen_random_uuid(), 'bench', 'Go.', 'running', 1, ('1' || lpad(to_hex(n %% %s), 31, '0'))::uuid,
                   now(), now()
            from generate_series(1, %s) n
            """,
            (_NODES, running),
        )
        connection.execute(
            """
            insert into toolcrib.paused_calls (workspace_id, id, kind, call_id, user_id, via, tool, expires_at, input,
                                               arguments_sha256, changes, effects, rule, reason, suggested_rule)
            select lpad(to_hex(1 + n %% %s), 32, '0')::uuid, ('3' || lpad(to_hex(n), 31, '0'))::uuid, 'approval',
                   gen_random_uuid(), gen_random_uuid(), 'bench', 'write', now() + interval '1 day', '{}', '', '[]',
                   '{}', 'bench', 'bench', '{}'
            from generate_series(1, %s) n
            """,
            (workspaces, _PENDING_APPROVALS),
        )
        connection.execute(
            """
            select dbos.enqueue_workflow(
                'advance', 'runs@node-' || n %% %(nodes)s,
                positional_args => array[to_json(gen_random_uuid()), to_json(gen_random_uuid()), to_json('runs'::text)],
                workflow_id => n || '/1', app_version => 'runs-1', priority => n %% 50)
            from generate_series(1, %(entries)s) n
            """,
            {"nodes": _NODES, "entries": running * 2 + _NODES * 20},
        )
        # As many finished as running, which are not deleted yet, and some in each queue that have not begun.
        connection.execute(
            """
            update dbos.workflow_status set application_name = 'toolcrib',
                status = case when split_part(workflow_uuid, '/', 1)::int <= %(running)s then 'PENDING'
                              else 'SUCCESS' end,
                executor_id = ('1' || lpad(to_hex(split_part(workflow_uuid, '/', 1)::int %% %(nodes)s), 31, '0'))::uuid
            where split_part(workflow_uuid, '/', 1)::int <= %(running)s * 2
            """,
            {"running": running, "nodes": _NODES},
        )
        connection.execute("vacuum analyze")


async def record_statements(settings: Settings, database: Database) -> tuple[Recorded, Recorded]:
    """Let a queue look for work, call what a worker repeats, and return the statements of both."""
    processes, runs, jobs = ServerProcessStore(database), RunStepStore(database), PeriodicJobStore(database)
    ours: Recorded = {}
    engines: Recorded = {}
    with _recorded_of_ours(ours):
        await runs.list_cancelled(ProcessId(UUID(f"1{0:031x}")))
        await runs.take_ready(ProcessId(UUID(f"1{0:031x}")), node=settings.node_name, limit=500)
        await runs.let_go({RunId(UUID(f"2{n:031x}")): WorkspaceId(UUID(int=n)) for n in range(1, 201)}, lease=_LEASE)
        await processes.alive(seconds=_LEASE)
        await processes.delete_dead(seconds=_LEASE * 100)
        # Those of one process for the whole installation.
        await PausedCallStore(database).list_expired(limit=100)
        await ToolCallStore(database).interrupted(lease=_LEASE, limit=100)
        await jobs.enter("bench", 10.0)

    async def nothing(*_: object) -> None: ...

    queue = DurableQueue(
        settings.system_url,
        node=settings.node_name,
        process_id=ProcessId(UUID(f"1{0:031x}")),
        slots=200,
        advance=nothing,
        start_queued=nothing,
        resume=nothing,
        fire=nothing,
        periodic=PeriodicJobs(jobs, []),
    )
    with ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=_LEASE) as heartbeat:
        work = asyncio.create_task(queue.run(processes, heartbeat))
        await queue.opened()
        with _recorded_of_engine(engines):
            # Longer than each of its intervals but that of the deletion.
            await asyncio.sleep(_WATCH_SECONDS)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return ours, engines


@contextmanager
def _recorded_of_ours(recorded: Recorded) -> Iterator[None]:
    execute = Connection.execute

    async def record(self: Connection, statement: Any, parameters: Any = None, **how: Any) -> Any:
        recorded.setdefault(statement, parameters)
        return await execute(self, statement, parameters, **how)

    Connection.execute = record  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Connection.execute = execute  # type: ignore[method-assign]


@contextmanager
def _recorded_of_engine(recorded: Recorded) -> Iterator[None]:
    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.lstrip().lower().startswith(_MEASURED):
            recorded.setdefault(statement, parameters)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", record)


def _elsewhere(parameters: Any) -> Any:
    """Ask about the queue of another node: its entries have not begun."""
    if not isinstance(parameters, Mapping):
        return parameters
    return {name: "runs@node-1" if value == "runs@node-0" else value for name, value in parameters.items()}


def _cost(row: Any) -> StatementCost:
    [explained] = row[0]
    plan = explained["Plan"]
    pages = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    return StatementCost(explained["Planning Time"] + explained["Execution Time"], pages)


def _shortened(statement: str) -> str:
    """Return a statement in one short line: its verb, its tables and its conditions."""
    line = re.sub(r"\s+", " ", statement.strip()).replace("|", "¦")
    line = re.sub(r"(?i)^select .*? from ", "select … from ", line)
    return line if len(line) <= 110 else f"{line[:110]}…"
