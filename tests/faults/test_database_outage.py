"""A database that is away for longer than the lease: each run goes on when it is back, and can be cancelled."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.fakes import strictness
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.database_server import DatabaseServer
from tests.faults.scripted import said
from tests.faults.server import Server, client_of
from tests.faults.test_run_zombie import RULES, until
from tests.wait_until import PATIENCE

pytestmark = pytest.mark.xdist_group("kill")

AT_WORK = 10
UNFINISHED = "select count(*) from toolcrib.runs where state <> 'ended'"
DONE = "select count(*) from toolcrib.runs where end_reason = 'done'"


@pytest.fixture
def database_server(tmp_path: Path) -> Iterator[DatabaseServer]:
    with DatabaseServer(tmp_path) as started:
        yield started


@pytest.fixture
def server(tmp_path: Path, database_server: DatabaseServer) -> Iterator[Server]:
    with Server(tmp_path, database_server.urls) as server:
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "4",
            "TOOLCRIB_DATABASE_ANSWER_SECONDS": "4",
        }
        yield server


class HeldModel:
    """A model whose answers are held until the test lets some of them go."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.asked = 0
        self.all_asked = asyncio.Event()

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        if refusal := strictness.openai_refusal(request.body):
            return plain(400, {"error": {"message": refusal}})
        self.asked += 1
        if self.asked == AT_WORK:
            self.all_asked.set()
        return said("Done.", held=self.first if self.asked % 2 else self.second)


@pytest.fixture
def held() -> HeldModel:
    return HeldModel()


@pytest.fixture
async def model(held: HeldModel) -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=held.answer)) as server:
        yield server


class Outage:
    """Ten runs that wait for their model, and what happens to their database."""

    def __init__(self, server: Server, database: DatabaseServer, model: ModelServer, held: HeldModel) -> None:
        self.server = server
        self.database = database
        self.model = model
        self.held = held

    async def begin(self) -> None:
        await asyncio.to_thread(self.server.start)
        self.cluster = cluster = await ServerCluster.opened(self.server)
        project = self.server.data_dir / "workspaces" / cluster.workspace / "project"
        self.truth = Workspace(self.database.urls.owner, UUID(cluster.workspace), project)
        self.agent = await cluster.agent(self.server, self.model, RULES, provider="openai-compatible")
        for _ in range(AT_WORK):
            await cluster.say(self.server, await cluster.session(self.server, self.agent), "Go.")
        async with asyncio.timeout(PATIENCE):
            await self.held.all_asked.wait()

    async def logged(self, event: str, times: int = 1) -> None:
        """Wait until the server has logged an event so often since the outage began."""
        pattern = re.compile(re.escape(event))
        async with asyncio.timeout(PATIENCE):
            while len(pattern.findall(await asyncio.to_thread(self.server.logged))) < times:
                pass

    async def all_done(self) -> None:
        await until(self.truth, UNFINISHED, 0)
        assert self.truth.rows(DONE) == [(AT_WORK,)]


@pytest.fixture
def outage(server: Server, database_server: DatabaseServer, model: ModelServer, held: HeldModel) -> Outage:
    return Outage(server, database_server, model, held)


async def test_all_runs_go_on_after_an_outage_longer_than_the_lease(outage: Outage) -> None:
    await outage.begin()
    await asyncio.to_thread(outage.database.stop)
    # Half of the runs have an answer that they cannot commit; they are to be released when the heartbeat is lost.
    outage.held.first.set()
    await outage.logged("run_worker.heartbeat_lost", times=2)
    await outage.logged("run_worker.release_failed", times=AT_WORK)
    outage.held.second.set()
    await asyncio.to_thread(outage.database.start)
    await outage.all_done()
    outage.truth.assert_true()


@pytest.mark.crash
async def test_all_runs_go_on_after_an_outage_of_hundred_seconds_with_the_settings_of_production(
    outage: Outage,
) -> None:
    for name in ("TOOLCRIB_HEARTBEAT_LEASE_SECONDS", "TOOLCRIB_DATABASE_ANSWER_SECONDS"):
        del outage.server.environment[name]
    await outage.begin()
    await asyncio.to_thread(outage.database.stop)
    outage.held.first.set()
    # The length of the outage is the case, so nothing else can be waited for.
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(100, over.set)
    await over.wait()
    outage.held.second.set()
    await asyncio.to_thread(outage.database.start)
    await outage.all_done()
    outage.truth.assert_true()


async def test_locked_tables_end_no_run_and_are_not_called_a_conflict_of_files(outage: Outage) -> None:
    await outage.begin()
    idle = await outage.cluster.session(outage.server, outage.agent)
    with psycopg.connect(outage.database.urls.owner, autocommit=True) as connection:
        # What a statement gets after it has waited for a lock, as while an operator alters a table.
        connection.execute(
            """
            create function toolcrib.no_lock() returns trigger language plpgsql as $$
            begin raise exception using errcode = 'lock_not_available'; end $$;
            create trigger no_lock before insert on toolcrib.messages for each row execute function toolcrib.no_lock();
            """
        )
        outage.held.first.set()
        outage.held.second.set()
        async with client_of(outage.server, outage.cluster.token) as http:
            refused = await http.post(outage.cluster.at(f"sessions/{idle}/messages"), json={"text": "a"})
        await outage.logged("run_worker.database_error", times=AT_WORK)
        connection.execute("drop trigger no_lock on toolcrib.messages")
    assert (refused.status_code, refused.json()["code"]) == (503, "OVERLOADED")
    assert "database is busy" in refused.json()["error"]
    await outage.all_done()


async def test_database_that_falls_silent_is_given_up_and_all_runs_go_on(outage: Outage) -> None:
    """It answers nothing and closes nothing, as a machine that is gone does; then it is back at the same address."""
    await outage.begin()
    outage.database.proxy.block()
    outage.held.first.set()
    outage.held.second.set()
    # Statements that wait for ever would hold every connection: nothing would be tried again.
    await outage.logged("run_worker.heartbeat_lost", times=2)
    await outage.logged("has not answered", times=2)
    await asyncio.to_thread(outage.database.proxy.replace)
    await outage.all_done()
    outage.truth.assert_true()
