"""``python -m bench growth``: what calls and periodic statements cost as workspaces and files become many.

usage: python -m bench growth [--quick]

SQL generates the rows of other workspaces, and files that the calls do not touch. Every size has a database of its own;
rounds alternate between the sizes, so that other load on the machine affects all of them. The cost of a call is the
processor time of this process and of its PostgreSQL sessions, which other load changes less than the time on the clock.
That of a statement is its shortest execution, because other load only adds to it. Fails if a cost at a larger size is
more than 1.2 times that of the smallest.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.engine_statements import Recorded, StatementCost, generate_rows, record_statements, statement_costs
from bench.engines import bench_settings, new_caller
from bench.search import WorkspaceTools
from bench.servers import fresh_database, url_of
from bench.storage_rows import fill_with_files
from toolcrib.core.ids import SessionId
from toolcrib.runs import durable
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.tool_runtime import ToolRuntime, assemble

AIM = 1.2
# Shorter statements are judged by the pages that they touch: their times differ by more than that anyway.
SHORTEST_MS = 0.5
# Of an index that became one level deeper, and the like.
FEW_PAGES = 8
_RUNNING = 200
_FILES, _EVENTS, _CALLS = 10, 20, 10
_WARM_UP = 10


@dataclass(frozen=True)
class Sizes:
    """What is compared, the smallest first, and how often it is repeated."""

    workspaces: tuple[int, ...] = (10, 1_000, 10_000)
    files: tuple[int, ...] = (1_000, 1_000_000)
    rounds: int = 30
    calls: int = 10
    statement_rounds: int = 21


_QUICK = Sizes((10, 100), (100, 10_000), rounds=8, calls=5, statement_rounds=7)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench growth")
    parser.add_argument("--quick", action="store_true")
    sizes = _QUICK if parser.parse_args(arguments).quick else Sizes()
    missed = asyncio.run(_measure(sizes))
    if missed:
        raise SystemExit(f"Not flat: {'; '.join(missed)}.")


async def _measure(sizes: Sizes) -> list[str]:
    table = GrowthTable()
    async with AsyncExitStack() as opened:
        sides = [await opened.enter_async_context(_with_workspaces(count)) for count in sizes.workspaces]
        table.head([f"{count:,} workspaces" for count in sizes.workspaces])
        for name, call in CALLS.items():
            table.add(name, await _alternate(sides, call, sizes), "ms CPU")
        await _compare_statements(sides, sizes, table)
    async with AsyncExitStack() as opened:
        sides = [await opened.enter_async_context(_with_files(count)) for count in sizes.files]
        table.head([f"{count:,} files" for count in sizes.files])
        for name, call in CALLS.items():
            table.add(name, await _alternate(sides, call, sizes), "ms CPU")
    return table.missed


@dataclass(frozen=True)
class Side:
    """One size: a person in a workspace with a session, among generated rows."""

    settings: Settings
    engine: ToolRuntime
    tools: WorkspaceTools
    session: SessionId
    numbers: list[int] = field(default_factory=lambda: [0])

    def next_number(self) -> int:
        self.numbers[0] += 1
        return self.numbers[0]

    def processor_seconds(self) -> float:
        """The time so far of this process and of the sessions in this database."""
        with psycopg.connect(url_of(self.database), autocommit=True) as connection:
            found = connection.execute(
                "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            ).fetchall()
        spent = sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in found)
        return time.process_time() + spent / 1e9

    @property
    def database(self) -> str:
        return str(psycopg.conninfo.conninfo_to_dict(self.settings.database_url)["dbname"])


async def _read(side: Side) -> None:
    await side.tools.call("read", path="/here/f7.txt")


async def _write(side: Side) -> None:
    number = side.next_number()
    await side.tools.call("write", path=f"/here/new-{number}.txt", content=f"{number}\n" * 100)


async def _session_page(side: Side) -> None:
    tenant, sessions = Tenant.of(side.tools.caller), side.engine.stores.sessions
    await sessions.page(tenant, before=None, limit=51, parent_id=None)
    await sessions.events_after(tenant, side.session, 0, limit=200)


CALLS: Mapping[str, Callable[[Side], Awaitable[None]]] = {
    "read": _read,
    "write": _write,
    "session page": _session_page,
}


@asynccontextmanager
async def _opened_side() -> AsyncIterator[Side]:
    """Open a database of its own with a person, a workspace of 50 files and a session of a few calls."""
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        name = opened.enter_context(fresh_database())
        await asyncio.to_thread(durable.upgrade, url_of(name))
        settings = bench_settings(name, folder / "data")
        database = await opened.enter_async_context(
            Database.open(settings.database_url, settings.system_url, pool_size=2)
        )
        engine = assemble(settings, database)
        tools = WorkspaceTools(engine.executor, await new_caller(engine.stores))
        session = await engine.stores.sessions.create(Tenant.of(tools.caller))
        side = Side(settings, engine, tools, session.id)
        for number in range(50):
            await tools.call("write", path=f"/here/f{number}.txt", content=f"{number}\n" * 100)
        yield side


@asynccontextmanager
async def _with_workspaces(count: int) -> AsyncIterator[Side]:
    async with _opened_side() as side:
        await asyncio.to_thread(generate_rows, url_of(side.database), count, _RUNNING)
        await asyncio.to_thread(_fill_workspaces, url_of(side.database), count)
        yield side


@asynccontextmanager
async def _with_files(count: int) -> AsyncIterator[Side]:
    async with _opened_side() as side:
        await asyncio.to_thread(fill_with_files, side.database, side.tools.caller.workspace_id, count)
        yield side


def _fill_workspaces(owner_url: str, count: int) -> None:
    """Give each generated workspace a member, files, a session with events, calls and a run that has ended."""
    given = {"workspaces": count, "files": _FILES, "events": _EVENTS, "calls": _CALLS}
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        for statement in _ROWS:
            connection.execute(statement, given)
        connection.execute("vacuum analyze")


_WORKSPACE = "lpad(to_hex(w), 32, '0')::uuid"
_ROWS = tuple(
    statement.replace("WORKSPACE", _WORKSPACE)
    for statement in (
        """
        insert into toolcrib.members (workspace_id, user_id, role)
        select WORKSPACE, gen_random_uuid(), 'owner' from generate_series(1, %(workspaces)s) w
        """,
        """
        insert into toolcrib.files (workspace_id, id, mount, path, parent, type, deleted, version_id, version_number,
                                    kind, mode, size, line_count, content_kind)
        select WORKSPACE, ('4' || lpad(to_hex(n), 31, '0'))::uuid, 'project', '/f' || n, '/', 'document', false,
               ('5' || lpad(to_hex(n), 31, '0'))::uuid, 1, 'file', 420, 0, 0, 'text'
        from generate_series(1, %(workspaces)s) w, generate_series(1, %(files)s) n
        """,
        """
        insert into toolcrib.versions (workspace_id, id, file_id, version_number, change_set_id, deleted, mount, path,
                                       kind, mode, size, line_count, content_kind)
        select workspace_id, version_id, id, 1, version_id, false, mount, path, kind, mode, size, line_count,
               content_kind from toolcrib.files where path like '/f%%' and parent = '/'
        """,
        """
        insert into toolcrib.sessions (workspace_id, id, created_by, last_seq)
        select WORKSPACE, ('6' || lpad(to_hex(w), 31, '0'))::uuid, gen_random_uuid(), %(events)s
        from generate_series(1, %(workspaces)s) w
        """,
        """
        insert into toolcrib.events (workspace_id, session_id, seq, type, payload)
        select WORKSPACE, ('6' || lpad(to_hex(w), 31, '0'))::uuid, n, 'message', '{"text": "Some words."}'
        from generate_series(1, %(workspaces)s) w, generate_series(1, %(events)s) n
        """,
        """
        insert into toolcrib.tool_calls (workspace_id, id, session_id, user_id, tool, arguments, state, ended_at)
        select WORKSPACE, ('7' || lpad(to_hex(n), 31, '0'))::uuid, ('6' || lpad(to_hex(w), 31, '0'))::uuid,
               gen_random_uuid(), 'read', '{"path": "/f1"}', 'done', now()
        from generate_series(1, %(workspaces)s) w, generate_series(1, %(calls)s) n
        """,
        """
        insert into toolcrib.runs (workspace_id, id, session_id, user_id, via, prompt, state, epoch, ended_at)
        select WORKSPACE, ('8' || lpad(to_hex(w), 31, '0'))::uuid, ('6' || lpad(to_hex(w), 31, '0'))::uuid,
               gen_random_uuid(), 'bench', 'Go.', 'ended', 1, now()
        from generate_series(1, %(workspaces)s) w
        """,
    )
)


async def _alternate(sides: Sequence[Side], call: Callable[[Side], Awaitable[None]], sizes: Sizes) -> list[float]:
    """Return the milliseconds of processor time of one call at each size: the median of rounds that alternate."""
    for side in sides:
        for _ in range(_WARM_UP):
            await call(side)
    rounds: list[list[float]] = [[] for _ in sides]
    for number in range(sizes.rounds):
        # Each begins as often as the others, so that none always has warm caches.
        for turn in range(len(sides)):
            index = (turn + number) % len(sides)
            before = sides[index].processor_seconds()
            for _ in range(sizes.calls):
                await call(sides[index])
            rounds[index].append((sides[index].processor_seconds() - before) / sizes.calls * 1_000)
    return [statistics.median(of_one) for of_one in rounds]


async def _compare_statements(sides: Sequence[Side], sizes: Sizes, table: "GrowthTable") -> None:
    """Compare the statements that every server repeats, each by itself and all of them together."""
    recorded: list[tuple[Recorded, Recorded]] = []
    for side in sides:
        here = side.settings.model_copy(update={"node_name": "node-0"})
        recorded.append(await record_statements(here, side.engine.database))
    costs: list[list[dict[str, StatementCost]]] = [[] for _ in sides]
    for _ in range(sizes.statement_rounds):
        for index, side in enumerate(sides):
            costs[index].append(await statement_costs(side.settings, side.engine.database, *recorded[index]))
    names = [name for name in costs[0][0] if all(name in of_one[0] for of_one in costs)]
    times = {name: [min(one[name].milliseconds for one in of_one) for of_one in costs] for name in names}
    pages = {name: [min(one[name].pages for one in of_one) for of_one in costs] for name in names}
    for unit, of_all in (("ms", times), ("pages", pages)):
        total = [sum(of_all[name][index] for name in names) for index in range(len(sides))]
        table.add(f"all {len(names)} periodic statements", total, unit)
    for name in names:
        if max(times[name]) >= SHORTEST_MS:
            table.add(f"`{name}`, pages {' / '.join(f'{one:.0f}' for one in pages[name])}", times[name], "ms")
        elif max(pages[name]) > AIM * min(pages[name]) + FEW_PAGES:
            table.add(f"`{name}`", pages[name], "pages")


class GrowthTable:
    """Prints the costs at each size beside their ratio to the smallest."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self._sizes: list[str] = []

    def head(self, sizes: list[str]) -> None:
        self._sizes = sizes
        print(f"\nload {os.getloadavg()[0]:.1f}\n\n| what | {' | '.join(sizes)} | ratio | ≤ {AIM} |", flush=True)
        print(f"|---|{'---|' * len(sizes)}---|---|", flush=True)

    def add(self, what: str, costs: Sequence[float], unit: str) -> None:
        ratio = max(costs[1:]) / costs[0]
        is_flat = ratio <= AIM
        shown = " | ".join(f"{cost:.4g} {unit}" for cost in costs)
        print(f"| {what} | {shown} | {ratio:.2f} | {'yes' if is_flat else '**no**'} |", flush=True)
        if not is_flat:
            self.missed.append(f"{what} at {self._sizes[-1]} ({ratio:.2f})")
