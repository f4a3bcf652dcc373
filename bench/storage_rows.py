"""``python -m bench storage_rows``: the same calls in workspaces of a thousand and a million files, interleaved.

usage: python -m bench storage_rows [--few 1000] [--many 1000000] [--reps 200]

SQL inserts the rows; only files that the calls touch are on disk.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.engines import bench_settings, new_caller
from bench.search import WorkspaceTools
from bench.servers import fresh_database, url_of
from toolcrib.core.ids import WorkspaceId
from toolcrib.runs import durable
from toolcrib.storage.database import Database
from toolcrib.wiring.tool_runtime import assemble

AIM = 1.2
# The same number in both, since a call that lists plans returns all of them.
PLANS = 10
# One in this many files is deleted.
DELETED = 10

ROWS = """
with made as (insert into toolcrib.change_sets (workspace_id, id, state, author_kind)
              values (%(workspace)s, gen_random_uuid(), 'committed', 'system') returning id),
rows as materialized (
    select n, gen_random_uuid() as file_id,
           -- Ids ascend, as those that the program makes.
           (lpad(to_hex(n), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid as version_id,
           '/d' || n / 1000 || '/s' || n / 50 %% 20 as parent, n %% %(deleted)s = 0 as deleted
    from generate_series(1, %(count)s) n
), kept as (
    insert into toolcrib.files (workspace_id, id, mount, path, parent, type, deleted, version_id, version_number, kind,
                                mode, size, line_count, content_kind)
    select %(workspace)s, file_id, 'project', parent || '/f' || n || '.txt', parent, 'document', deleted, version_id, 1,
           'file', 420, 0, 0, 'text' from rows
)
insert into toolcrib.versions (workspace_id, id, file_id, version_number, change_set_id, deleted, mount, path, kind,
                               mode, size, line_count, content_kind)
select %(workspace)s, version_id, file_id, 1, made.id, deleted, 'project', parent || '/f' || n || '.txt', 'file', 420,
       0, 0, 'text' from rows, made
"""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench storage_rows")
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--reps", type=int, default=200)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        durable.upgrade(url_of(name))
        asyncio.run(_measure(Path(folder), name, options))


async def _measure(folder: Path, name: str, options: argparse.Namespace) -> None:
    settings = bench_settings(name, folder / "data")
    async with Database.open(settings.database_url, settings.system_url) as database:
        engine = assemble(settings, database)
        workspaces = []
        for size in (options.few, options.many):
            tree = folder / f"tree-{size}"
            tree.mkdir()
            tools = WorkspaceTools(engine.executor, await new_caller(engine.stores, tree))
            fill_with_files(name, tools.caller.workspace_id, size)
            workspaces.append(tools)
            await _furnish(tools)
        print(f"| call | ms at {options.few:,} | ms at {options.many:,} | ratio | target |\n|---|---|---|---|---|")
        for case in CASES:
            await _compare(case, workspaces, options.reps)


def fill_with_files(name: str, workspace_id: WorkspaceId, count: int) -> None:
    """Insert rows of files that are not on disk into a database."""
    with psycopg.connect(url_of(name), autocommit=True) as connection:
        # Copies of existing rows, so that a million foreign keys need no check.
        connection.execute("set session_replication_role = replica")
        connection.execute(ROWS, {"workspace": workspace_id, "count": count, "deleted": DELETED})
        connection.execute("analyze")


async def _furnish(tools: WorkspaceTools) -> None:
    for number in range(50):
        await tools.call("write", path=f"/here/f{number}.txt", content=f"{number}\n" * 100)
    for number in range(PLANS):
        await tools.call("plan_write", path=f"/plans/p{number}.plan", title=f"Plan {number}", content="- [ ] one\n")


@dataclass(frozen=True)
class Case:
    """A call that is repeated with another number each time."""

    name: str
    call: Callable[[WorkspaceTools, int], Awaitable[None]]


CASES = (
    Case("read", lambda tools, _: tools.call("read", path="/here/f7.txt")),
    Case("write", lambda tools, n: tools.call("write", path=f"/here/new-{n}.txt", content=f"{n}\n" * 100)),
    Case("edit", lambda tools, n: tools.call("edit", path="/here/f8.txt", insert_line=0, insert_content=f"{n}\n")),
    Case("rm", lambda tools, n: tools.call("rm", path=f"/here/new-{n}.txt")),
    Case("ls", lambda tools, _: tools.call("ls", path="/here")),
    Case("plan_list", lambda tools, _: tools.call("plan_list")),
    Case("deleted_files", lambda tools, _: tools.call("deleted_files")),
)


async def _compare(case: Case, workspaces: list[WorkspaceTools], reps: int) -> None:
    """Alternate both, so that other load on the machine affects both."""
    times: tuple[list[float], list[float]] = ([], [])
    for rep in range(reps + 5):
        # The first one alternates, so that neither always has warm caches.
        for side in ((0, 1), (1, 0))[rep % 2]:
            started = time.perf_counter()
            await case.call(workspaces[side], rep)
            # The first rounds create plans and warm caches.
            if rep >= 5:
                times[side].append(time.perf_counter() - started)
    few, many = (statistics.median(side) * 1000 for side in times)
    print(f"| {case.name} | {few:.2f} | {many:.2f} | {many / few:.2f} | ≤ {AIM} |", flush=True)
