"""The durable queue: which run starts next, where, and what is left in the queue's tables."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.fakes.model_server import ModelServer
from tests.integration.conftest import new_workspace
from tests.integration.runs.conftest import RunFixture, opened_office, says
from tests.integration.runs.test_durable import at_work, ended
from tests.wait_until import PATIENCE
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import ProcessId, RunId, SessionId, new_id
from toolcrib.core.runs import DEFAULT_PRIORITY, Run, RunEnding, RunState
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs import durable
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.server_processes import forget_those_of


@dataclass(frozen=True)
class Node:
    """A node of its own, so that no other test's runs are in its queue, and its database."""

    settings: Settings
    database: Database
    model: ModelServer
    providers: ProviderRegistry
    owner_url: str

    async def office(self, **settings: Any) -> RunFixture:
        """Create a workspace of this node with a session."""
        workspace = await new_workspace(self.database, self.settings.model_copy(update=settings))
        return await opened_office(workspace, self.model, self.providers)

    def rows(self, statement: str, *parameters: object) -> list[Any]:
        """Execute a statement as the owner and return the first column of its rows."""
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return [row[0] for row in cursor.fetchall()] if cursor.description else []

    def entries(self, column: str, **status: str) -> list[Any]:
        """Return a column of the queue's entries, in the order in which it starts them."""
        return self.rows(
            f"select {column} from dbos.workflow_status where queue_name = %s and status like %s"
            " order by priority, created_at",
            f"runs@{self.settings.node_name}",
            status.get("status", "%"),
        )


@pytest.fixture
async def node(
    settings: Settings, database: Database, model: ModelServer, providers: ProviderRegistry, database_urls: DatabaseUrls
) -> Node:
    own = settings.model_copy(update={"node_name": f"node-{new_id()}"})
    return Node(own, database, model, providers, database_urls.owner)


@dataclass
class Stub:
    """Executes runs: notes each start, and ends the run when the test allows it."""

    runs: RunStepStore
    started: list[Run] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    _starts: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __call__(self, run: Run) -> None:
        async with self._starts:
            self.started.append(run)
            self._starts.notify_all()
        await self.may_end.wait()
        await self.runs.end(run, RunEnding.DONE)

    async def has_started(self, count: int) -> None:
        """Wait until this many runs have started."""
        async with asyncio.timeout(PATIENCE), self._starts:
            await self._starts.wait_for(lambda: len(self.started) >= count)


async def session(office: RunFixture) -> SessionId:
    return (await office.workspace.stores.sessions.create(office.tenant, agent_id=office.agent.id)).id


async def submit(office: RunFixture, session_id: SessionId | None = None, *, priority: int = DEFAULT_PRIORITY) -> Run:
    """Submit a message as another process would: nothing here is notified."""
    session_id = session_id or await session(office)
    return await office.runs.submit(office.tenant, session_id, "Go.", via="test", priority=priority)


async def states(office: RunFixture, runs: list[Run]) -> list[RunState]:
    return [(await office.run(run.id)).state for run in runs]


async def end(office: RunFixture, run: Run) -> list[RunId]:
    """Take a ready run and end it. Returns the runs that start instead."""
    node = office.workspace.settings.node_name
    taken = await office.runs.take(ProcessId(new_id()), run.workspace_id, run.id, node=node, lease=0.0)
    assert taken is not None
    return await office.runs.end(taken, RunEnding.DONE)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition on rows."""
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(condition):
            pass


# A busy machine does not lose its heartbeat in this time, so no run is taken twice.
LONG = 60.0
READY, QUEUED, ENDED = RunState.READY, RunState.QUEUED, RunState.ENDED


async def test_workspace_has_a_limit_and_the_next_run_starts_by_priority_then_age(node: Node) -> None:
    office = await node.office(max_workspace_runs=2)
    runs = [await submit(office) for _ in range(5)]
    assert await states(office, runs) == [READY, READY, QUEUED, QUEUED, QUEUED]

    node.rows("update toolcrib.runs set priority = 10 where id = %s", runs[4].id)

    assert await end(office, runs[0]) == [runs[4].id]
    assert await end(office, runs[4]) == [runs[2].id]
    assert await end(office, runs[1]) == [runs[3].id]
    assert await states(office, runs) == [ENDED, ENDED, READY, READY, ENDED]
    assert await end(office, runs[2]) == []


async def test_session_has_one_run_at_a_time_though_its_workspace_has_room(node: Node) -> None:
    office = await node.office(max_workspace_runs=3)
    first = await submit(office, office.session_id)
    later = [await submit(office, office.session_id) for _ in range(2)]
    other = await submit(office)
    node.rows("update toolcrib.runs set priority = 0 where id = %s", later[1].id)

    assert await states(office, [first, *later, other]) == [READY, QUEUED, QUEUED, READY]
    assert await end(office, other) == []
    assert await end(office, first) == [later[1].id]
    assert await end(office, later[1]) == [later[0].id]


async def test_held_runs_do_not_start_until_they_are_released(node: Node) -> None:
    office = await node.office(max_workspace_runs=2)
    first, held = [await submit(office, office.session_id) for _ in range(2)]
    await office.runs.cancel(office.tenant, first.id)

    assert await end(office, first) == []
    assert (await office.run(held.id)).held
    assert (await submit(office)).state is READY
    assert await states(office, [held]) == [QUEUED]
    assert (await office.runs.release_held(office.tenant, held.id)).state is READY


async def test_rolled_back_submission_leaves_neither_run_nor_entry(node: Node) -> None:
    office = await node.office()
    seen: list[str] = []
    with pytest.raises(_RolledBack):
        await _submit_and_fail(node, office, seen)

    assert len(seen) == 1
    assert await office.runs.page(office.tenant, office.session_id) == []
    assert node.entries("workflow_uuid") == []
    kept = await submit(office)
    assert node.entries("workflow_uuid") == [f"{kept.id}/1"]


class _RolledBack(Exception):
    """The transaction fails after everything was written."""


async def _submit_and_fail(node: Node, office: RunFixture, seen: list[str]) -> None:
    """Write what a submission writes, note the entries that the transaction itself sees, and fail."""
    run_id, tenant = new_id(), office.tenant
    async with node.database.transaction(replace(tenant, user_id=None), WorkspaceRole.MEMBER) as connection:
        await connection.execute(
            """
            insert into toolcrib.runs (workspace_id, id, session_id, user_id, agent_id, via, prompt, state)
            values (%s, %s, %s, %s, %s, 'test', 'Go.', 'queued')
            """,
            (tenant.workspace_id, run_id, office.session_id, tenant.user_id, office.agent.id),
        )
        await connection.execute("select toolcrib.start_queued_runs(%s, 50)", (tenant.workspace_id,))
        cursor = await connection.execute(
            "select workflow_uuid from dbos.workflow_status where workflow_uuid = %s", (f"{run_id}/1",)
        )
        seen += [id_ for (id_,) in await cursor.fetchall()]
        raise _RolledBack


async def test_run_submitted_in_another_process_is_started_by_the_queue(node: Node) -> None:
    office = await node.office()
    elsewhere = replace(office, workspace=office.workspace.with_engine())
    async with at_work(office, lease=LONG):
        node.model.say(says("Done."))
        done = await ended(office, (await submit(elsewhere)).id)

    assert (done.end_reason, done.epoch) == (RunEnding.DONE, 1)


async def test_runs_of_a_killed_process_continue_once_under_a_new_epoch(
    node: Node, database_urls: DatabaseUrls
) -> None:
    office = await node.office()
    runs = [await submit(office) for _ in range(3)]
    async with _other_process(node, database_urls) as killed:
        await until(lambda: len(node.entries("workflow_uuid", status="PENDING")) == 3)
        assert await _taken(killed, 3) == {str(run.id) for run in runs}
        killed.kill()
    forget_those_of(node.settings.node_name, database_urls.system)

    stub = Stub(office.runs)
    stub.may_end.set()
    async with at_work(office, lease=LONG, execute=stub):
        for run in runs:
            assert (await ended(office, run.id)).epoch == 2
        await until(lambda: node.entries("status") == ["SUCCESS"] * 3)

    assert sorted(run.id for run in stub.started) == [run.id for run in runs]
    assert {run.takeovers for run in stub.started} == {1}


# A server process that takes runs and never ends them.
_HOLDS_RUNS = """
import asyncio, sys
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.wiring.runs import run_service
from toolcrib.wiring.tool_runtime import assemble

async def hold(run):
    print(run.id, flush=True)
    await asyncio.Future()

async def main():
    settings = Settings()
    with ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=60.0) as heartbeat:
        async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
            async with run_service(assemble(settings, database, process_id=heartbeat.id), hold, heartbeat):
                await asyncio.Future()

{before}
asyncio.run(main())
"""


@asynccontextmanager
async def _other_process(
    node: Node, urls: DatabaseUrls, *, before: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "TOOLCRIB_DATABASE_URL": urls.app,
        "TOOLCRIB_SYSTEM_DATABASE_URL": urls.system,
        "TOOLCRIB_JWT_SECRET": node.settings.jwt_secret.get_secret_value(),
        "TOOLCRIB_AUDIT_SEAL_KEY": node.settings.audit_seal_key.get_secret_value(),
        "TOOLCRIB_DATA_DIR": str(node.settings.data_dir),
        "TOOLCRIB_NODE_NAME": node.settings.node_name,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _HOLDS_RUNS.replace("{before}", before),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _taken(process: asyncio.subprocess.Process, count: int) -> set[str]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return {(await process.stdout.readline()).decode().strip() for _ in range(count)}


async def test_first_run_of_a_workspace_comes_before_later_ones_of_a_busy_workspace(node: Node) -> None:
    busy, other = await node.office(), await node.office()
    many = [await submit(busy) for _ in range(10)]
    first = await submit(other)

    order = [entry.split("/")[0] for entry in node.entries("workflow_uuid")]

    assert order[:2] == [str(many[0].id), str(first.id)]
    assert order[2:] == [str(run.id) for run in many[1:]]
    assert sorted(node.entries("priority"))[:3] == [1, 1, 2]


async def test_background_run_comes_after_those_of_all_workspaces(node: Node) -> None:
    office, other = await node.office(), await node.office()
    background = await submit(office, priority=500)
    runs = [await submit(other) for _ in range(3)]

    order = [entry.split("/")[0] for entry in node.entries("workflow_uuid")]

    assert order == [str(run.id) for run in (*runs, background)]


async def test_entry_of_a_run_that_ends_before_its_turn_leaves_the_queue(node: Node) -> None:
    office = await node.office()
    ends, stays = [await submit(office) for _ in range(2)]

    await end(office, ends)

    assert node.entries("workflow_uuid") == [f"{stays.id}/1"]
    assert node.rows("select count(*) from dbos.workflow_input where workflow_uuid like %s", f"{ends.id}/%") == [0]


async def test_processes_that_take_a_burst_share_it_in_the_order_of_the_queue(node: Node) -> None:
    busy, other, elsewhere = await node.office(), await node.office(), await node.office()
    many = [await submit(busy) for _ in range(20)]
    first = await submit(other)
    background = await submit(elsewhere, priority=500)

    async def take(limit: int) -> list[RunId]:
        taken = await busy.runs.take_ready(ProcessId(new_id()), node=node.settings.node_name, limit=limit)
        return [run.id for run in taken]

    begun = await take(2)
    shares = await asyncio.gather(*(take(5) for _ in range(3)))
    rest = await take(25)

    assert set(begun) == {many[0].id, first.id}
    shared = [run_id for share in shares for run_id in share]
    assert len(shared) == len(set(shared)) <= 15
    assert background.id in rest
    assert sorted([*begun, *shared, *rest]) == sorted(run.id for run in (*many, first, background))


async def test_finished_entries_are_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_KEEP_FINISHED", timedelta(0))
    monkeypatch.setattr(durable, "_TIDY_SECONDS", 0.0)
    office = await node.office()
    stub = Stub(office.runs)
    async with at_work(office, execute=stub):
        held = await submit(office)
        await until(lambda: node.entries("status") == ["PENDING"])
        stub.may_end.set()
        await ended(office, held.id)
        await until(lambda: node.entries("status") == [])


@pytest.mark.parametrize(
    "statement",
    [
        "select * from dbos.workflow_status",
        "insert into dbos.workflow_status (workflow_uuid) values ('x')",
        "update dbos.workflow_status set status = 'ENQUEUED'",
        "delete from dbos.workflow_status",
        "select * from dbos.queues",
        "select dbos.enqueue_workflow('advance', 'runs@x')",
        "select toolcrib.enqueue_workflow('advance', gen_random_uuid(), gen_random_uuid(), 'x', 0, 0)",
    ],
)
def test_app_role_reaches_the_queue_only_through_its_runs(database_urls: DatabaseUrls, statement: str) -> None:
    with (
        psycopg.connect(database_urls.app, autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


@pytest.mark.long
async def test_servers_of_one_program_share_the_queue_and_one_may_stop(node: Node) -> None:
    second = replace(node, settings=node.settings.model_copy(update={"node_name": f"node-{new_id()}"}))
    one, other = await node.office(), await second.office()
    stubs = Stub(one.runs), Stub(other.runs)
    async with at_work(one, lease=LONG, execute=stubs[0]):
        begun = await submit(one)
        await until(lambda: node.entries("status") == ["PENDING"])
        async with at_work(other, lease=LONG, execute=stubs[1]):
            runs = [await submit(one), await submit(other)]
            await stubs[0].has_started(2)
            await stubs[1].has_started(1)
            stubs[1].may_end.set()
            await ended(other, runs[1].id)
        late = await submit(one)
        await stubs[0].has_started(3)
        stubs[0].may_end.set()
        assert [(await ended(one, run.id)).epoch for run in (begun, runs[0], late)] == [1, 1, 1]
        await until(lambda: node.entries("status") == ["SUCCESS"] * 3)

    assert [run.id for run in stubs[0].started] == [begun.id, runs[0].id, late.id]


async def test_stopped_server_leaves_nothing_behind_in_its_program(node: Node) -> None:
    office = await node.office()
    stub = Stub(office.runs)
    name, system_url = node.settings.node_name, node.settings.system_url
    elsewhere = await submit(office)
    before = asyncio.all_tasks()
    with ProcessHeartbeat.start(system_url, node=name, lease=LONG) as other:
        await office.runs.take(other.id, elsewhere.workspace_id, elsewhere.id, node=name, lease=LONG)
        async with at_work(office, lease=LONG, execute=stub):
            run = await submit(office)
            await until(lambda: node.entries("status") == ["PENDING"] * 2)
            await stub.has_started(1)

        assert asyncio.all_tasks() - before == set()
        assert await states(office, [run, elsewhere]) == [READY, RunState.RUNNING]


async def test_program_that_uses_dbos_itself_is_told_to_run_a_server(node: Node, database_urls: DatabaseUrls) -> None:
    theirs = f'from dbos import DBOS\nDBOS(config={{"name": "theirs", "system_database_url": "{database_urls.owner}"}})'
    async with _other_process(node, database_urls, before=theirs) as process, asyncio.timeout(PATIENCE):
        _, said = await process.communicate()

    assert process.returncode == 1
    assert "This program uses DBOS itself. Run Toolcrib as a server of its own: `toolcrib serve`." in said.decode()
