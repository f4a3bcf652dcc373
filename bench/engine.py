"""Measure the durable queue with two worker processes, and its repeated statements at scale: the campaign ``engine``.

usage: python -m bench engine [--quick]

Fails if a goal is missed. ``--quick`` takes small numbers, to try it on a busy machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.engine_statements import statement_times
from bench.engine_worker import HOLD
from bench.engines import NODE, bench_settings, new_caller
from bench.servers import ADMIN, fresh_database, our_server, url_of
from toolcrib.core.ids import SessionId
from toolcrib.core.runs import Run
from toolcrib.runs import durable
from toolcrib.settings import Settings
from toolcrib.storage import migrate
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.tool_runtime import Stores

_LOOK_SECONDS = 0.05
_SETTLE_SECONDS = 3.0
_GIVE_UP_SECONDS = 300.0


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    busy_runs: int = 10_000
    workspaces: int = 1_000
    submitted_here: int = 300
    submitted_elsewhere: int = 100
    cancelled: int = 20
    idle_seconds: float = 15.0
    workspace_rows: int = 1_000_000
    running_rows: int = 20_000


_QUICK = Sizes(300, 50, 20, 10, 3, 4.0, 10_000, 2_000)


@dataclass
class Table:
    """The measured values beside their goals."""

    goals: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, what: str, value: float, goal: float, unit: str) -> None:
        print(
            f"| {what} | ≤ {goal:g} {unit} | {value:.3g} {unit} | {'yes' if value <= goal else '**no**'} |", flush=True
        )
        self.goals += 1
        if value > goal:
            self.missed.append(what)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench engine")
    parser.add_argument("--quick", action="store_true")
    sizes = _QUICK if parser.parse_args(arguments).quick else Sizes()
    table = Table()
    print(f"load {os.getloadavg()[0]:.1f}\n\n| what | goal | measured | met |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        durable.upgrade(url_of(name))
        settings = bench_settings(name, Path(folder) / "data")
        asyncio.run(_measure_workers(settings, url_of(name), sizes, table))
        _measure_idle(Path(folder), name, sizes, table)
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        durable.upgrade(url_of(name))
        settings = bench_settings(name, Path(folder) / "data")
        rows = {"workspaces": sizes.workspace_rows, "running": sizes.running_rows}
        for statement, milliseconds in asyncio.run(statement_times(settings, url_of(name), **rows)).items():
            table.add(f"statement `{statement}`", milliseconds, 5, "ms")
    print(f"{table.goals} tried, {table.goals - len(table.missed)} held")
    if table.missed:
        raise SystemExit(f"Missed {len(table.missed)} goals: {'; '.join(table.missed)}.")


async def _measure_workers(settings: Settings, owner_url: str, sizes: Sizes, table: Table) -> None:
    async with (
        _pair_of_workers(settings) as workers,
        Database.open(settings.database_url, settings.system_url, pool_size=4) as database,
    ):
        place = Place(Stores(settings, database), owner_url, workers)
        took = await place.busy_beside_other(sizes.busy_runs)
        table.add(f"10 runs beside {sizes.busy_runs} of another workspace: last start", took, 2, "s")
        table.add(f"{sizes.workspaces} workspaces: last start", await place.many(sizes.workspaces), 3, "s")
        here = await place.submitted_here(sizes.submitted_here)
        table.add("commit to start where submitted, p50", statistics.median(here) * 1000, 50, "ms")
        table.add("commit to start where submitted, p99", _p99(here) * 1000, 50, "ms")
        elsewhere = await place.submitted_elsewhere(sizes.submitted_elsewhere)
        table.add("commit to start elsewhere, p50", statistics.median(elsewhere) * 1000, 700, "ms")
        table.add("commit to start elsewhere, p99", _p99(elsewhere) * 1000, 700, "ms")
        table.add("cancel from another process, slowest", max(await place.cancelled(sizes.cancelled)), 1, "s")


class Worker:
    """A worker process. It answers one command at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, *command: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{' '.join(map(str, command))}\n".encode())
        line = await self._process.stdout.readline()
        if not line:
            raise SystemExit("A worker process ended before its time. Its messages are above.")
        return json.loads(line)


@asynccontextmanager
async def _pair_of_workers(settings: Settings) -> AsyncIterator[list[Worker]]:
    environment = {
        "TOOLCRIB_DATABASE_URL": settings.database_url,
        "TOOLCRIB_SYSTEM_DATABASE_URL": settings.system_url,
        "TOOLCRIB_JWT_SECRET": settings.jwt_secret.get_secret_value(),
        "TOOLCRIB_AUDIT_SEAL_KEY": settings.audit_seal_key.get_secret_value(),
        "TOOLCRIB_DATA_DIR": str(settings.data_dir),
        "TOOLCRIB_NODE_NAME": settings.node_name,
    }
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.engine_worker",
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=2**26,
        )
        for _ in range(2)
    ]
    try:
        workers = [Worker(process) for process in processes]
        for worker in workers:
            await worker.ask("ready")
        yield workers
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


@dataclass(frozen=True)
class Place:
    """This process, which submits and cancels and executes nothing, and the two workers."""

    stores: Stores
    owner_url: str
    workers: list[Worker]

    async def busy_beside_other(self, runs: int) -> float:
        """Return the seconds until the last of ten runs started, behind many of another workspace."""
        busy, other = await self._tenant(), await self._tenant()
        self._queue(busy, runs)
        self._queue(other, 10)
        self._execute("select toolcrib.start_queued_runs(%s, 50)", busy.workspace_id)
        self._execute("select toolcrib.start_queued_runs(%s, 50)", other.workspace_id)
        committed = time.time()
        started = await self._started("workspace_id = %s", other.workspace_id, count=10)
        # The rest of them is not needed.
        self._execute(
            "update toolcrib.runs set held = true where workspace_id = %s and state = 'queued'", busy.workspace_id
        )
        await self._ended()
        return max(started) - committed

    async def many(self, workspaces: int) -> float:
        """Return the seconds until one run of each of many workspaces started, all committed at once."""
        tenant = await self._tenant()
        self._execute(
            """
            insert into toolcrib.workspaces (id, name, home_node, created_by)
            select gen_random_uuid(), 'many', %s, %s from generate_series(1, %s)
            """,
            NODE,
            tenant.user_id,
            workspaces,
        )
        self._execute(
            """
            with made as (
                insert into toolcrib.sessions (workspace_id, id, created_by)
                select id, gen_random_uuid(), created_by from toolcrib.workspaces where name = 'many'
                returning workspace_id, id, created_by)
            insert into toolcrib.runs (workspace_id, id, session_id, user_id, via, prompt, state)
            select workspace_id, gen_random_uuid(), id, created_by, 'many', 'Go.', 'queued' from made
            """
        )
        self._execute("select toolcrib.start_queued_runs(id, 50) from toolcrib.workspaces where name = 'many'")
        committed = time.time()
        started = await self._started("via = %s", "many", count=workspaces)
        await self._ended()
        return max(started) - committed

    async def submitted_here(self, count: int) -> list[float]:
        """Return the seconds from commit to start of runs that a worker submits."""
        tenant = await self._tenant()
        session = await self._session(tenant)
        committed = await self.workers[0].ask("submit", tenant.workspace_id, tenant.user_id, session, count)
        await self._ended()
        starts, _ = await self._notes()
        return [starts[run_id] - moment for run_id, moment in committed.items()]

    async def submitted_elsewhere(self, count: int) -> list[float]:
        """Return the seconds from commit to start of runs that this process submits."""
        tenant = await self._tenant()
        committed: dict[str, float] = {}
        for _ in range(count):
            run = await self._submit(tenant, "Go.")
            committed[str(run.id)] = time.time()
            # So that the commits fall anywhere between two looks of the queue.
            await asyncio.sleep(_LOOK_SECONDS)
        await self._ended()
        starts, _ = await self._notes()
        return [starts[run_id] - moment for run_id, moment in committed.items()]

    async def cancelled(self, count: int) -> list[float]:
        """Return the seconds from the commit of each cancellation until the run was stopped."""
        tenant = await self._tenant()
        runs = [await self._submit(tenant, HOLD) for _ in range(count)]
        await self._started("workspace_id = %s", tenant.workspace_id, count=count)
        committed: dict[str, float] = {}
        for run in runs:
            await self.stores.runs.cancel(tenant, run.id)
            committed[str(run.id)] = time.time()
        await self._ended()
        _, cancels = await self._notes()
        return [cancels[run_id] - moment for run_id, moment in committed.items()]

    async def _tenant(self) -> Tenant:
        return Tenant.of(await new_caller(self.stores))

    async def _session(self, tenant: Tenant) -> SessionId:
        return (await self.stores.sessions.create(tenant)).id

    async def _submit(self, tenant: Tenant, text: str) -> Run:
        return await self.stores.runs.submit(tenant, await self._session(tenant), text, via="bench")

    def _queue(self, tenant: Tenant, runs: int) -> None:
        """Queue runs, each in a session of its own."""
        self._execute(
            """
            with made as (
                insert into toolcrib.sessions (workspace_id, id, created_by)
                select %s, gen_random_uuid(), %s from generate_series(1, %s) returning workspace_id, id, created_by)
            insert into toolcrib.runs (workspace_id, id, session_id, user_id, via, prompt, state)
            select workspace_id, gen_random_uuid(), id, created_by, 'bench', 'Go.', 'queued' from made
            """,
            tenant.workspace_id,
            tenant.user_id,
            runs,
        )

    def _execute(self, statement: str, *parameters: object) -> list[Any]:
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    async def _started(self, condition: str, value: object, *, count: int) -> list[float]:
        """Wait until this many runs have started, and return when they did."""
        selected = f"select id::text from toolcrib.runs where {condition} and started_at is not null"
        found = await self._until(selected, value, count=count)
        # A row says that a run was taken; a moment later the worker notes that it starts.
        while not set(found) <= (starts := (await self._notes())[0]).keys():
            pass
        return [starts[run_id] for run_id in found]

    async def _ended(self) -> None:
        await self._until(
            """
            select true where not exists (select from toolcrib.runs
                                          where state in ('queued', 'ready', 'running') and not held)
            """,
            count=1,
        )

    async def _until(self, statement: str, *parameters: object, count: int) -> list[Any]:
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while len(found := await asyncio.to_thread(self._execute, statement, *parameters)) < count:
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"The workers do not come to an end: {len(found)} of {count} after {_GIVE_UP_SECONDS} s."
                )
            await asyncio.sleep(_LOOK_SECONDS)
        return [row[0] for row in found]

    async def _notes(self) -> tuple[dict[str, float], dict[str, float]]:
        starts: dict[str, float] = {}
        cancels: dict[str, float] = {}
        for worker in self.workers:
            their_starts, their_cancels = await worker.ask("notes")
            starts |= their_starts
            cancels |= their_cancels
        return starts, cancels


def _measure_idle(folder: Path, name: str, sizes: Sizes, table: Table) -> None:
    with our_server(folder, url_of(name, migrate.APP_ROLE)) as server, _statistics(name) as transactions:
        time.sleep(_SETTLE_SECONDS)
        count, used, began = transactions(), _cpu_seconds(server.pid), time.monotonic()
        time.sleep(sizes.idle_seconds)
        seconds = time.monotonic() - began
        table.add("idle server: transactions", (transactions() - count) / seconds, 30, "/s")
        table.add("idle server: CPU", (_cpu_seconds(server.pid) - used) / seconds * 100, 3, "%")


@contextmanager
def _statistics(name: str) -> Iterator[Any]:
    """Provide the number of a database's transactions. It is read from another database, and so not counted."""
    with psycopg.connect(ADMIN, autocommit=True) as connection:

        def transactions() -> int:
            row = connection.execute(
                "select xact_commit + xact_rollback from pg_stat_database where datname = %s", (name,)
            ).fetchone()
            assert row is not None
            return int(row[0])

        yield transactions


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]
