"""Homes move: a silent node's workspaces go to another node, with their work, and a draining one gives its own away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from tests.fakes.model_server import ModelServer
from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.runs.conftest import RunFixture, opened_office, says
from tests.wait_until import PATIENCE
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import NotFound, Superseded
from toolcrib.core.ids import ProcessId, RunId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.events.event_bus import WakeSignal
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.periodic_jobs import PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.storage.files import WorkspaceHome
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.server_processes import HeartbeatConnection, ServerProcessStore
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.run_wiring import run_service

pytestmark = pytest.mark.req("SC-1", part="a silent home is taken over")

LEASE = 2.0


def name() -> str:
    return f"node-{new_id()}"


def beat(settings: Settings, node: str, *, disk_id: UUID | None = None) -> None:
    """The only heartbeat of a node."""
    connection = HeartbeatConnection(settings.system_url, ProcessId(new_id()), node, disk_id or uuid4())
    connection.beat()
    connection.close()


async def silent(homes: HomeStore, node: str, *, lease: float = LEASE) -> None:
    async with asyncio.timeout(PATIENCE):
        while not any(one.is_silent for one in await homes.look(lease=lease) if one.name == node):
            pass


async def home_of(workspace: WorkspaceFixture) -> WorkspaceHome:
    seen = await workspace.stores.files.lookup(workspace.tenant, [WorkspacePath(Mount.PROJECT, "/")])
    return seen.home


async def workspace_on(database: Database, settings: Settings, node: str) -> WorkspaceFixture:
    return await new_workspace(database, settings.model_copy(update={"node_name": node}))


@pytest.fixture
def homes(database: Database) -> HomeStore:
    return HomeStore(database)


async def test_workspaces_of_a_silent_node_get_another_home(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    dead, other = name(), name()
    beat(settings, dead)
    workspace = await workspace_on(database, settings, dead)
    before = await home_of(workspace)
    too_early = await homes.take_over(other, [dead], lease=60.0, limit=10)
    await silent(homes, dead)

    taken = await homes.take_over(other, [dead], lease=LEASE, limit=10)

    assert (too_early, taken) == ([], [workspace.caller.workspace_id])
    after = await home_of(workspace)
    assert (after.node, after.epoch) == (other, before.epoch + 1)


async def test_old_home_commits_nothing_more(database: Database, settings: Settings, homes: HomeStore) -> None:
    dead, other = name(), name()
    beat(settings, dead)
    workspace = await workspace_on(database, settings, dead)
    await workspace.result("write", path="/a.txt", content="a\n")
    await silent(homes, dead)
    await homes.take_over(other, [dead], lease=LEASE, limit=10)

    with pytest.raises(Superseded):
        await workspace.call("write", path="/b.txt", content="b\n")

    assert not (workspace.project / "b.txt").exists()
    found = await workspace.stores.files.lookup(workspace.tenant, [WorkspacePath(Mount.PROJECT, "/b.txt")])
    assert found.files == (None,)


async def test_workspace_is_not_taken_while_a_commit_is_under_way(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    dead, other = name(), name()
    beat(settings, dead)
    workspace = await workspace_on(database, settings, dead)
    await silent(homes, dead)
    path = WorkspacePath(Mount.PROJECT, "/a.txt")
    async with workspace.stores.changes.lock(workspace.tenant, [path]) as change:
        await change.lookup([path], WorkspaceRole.MEMBER)
        during = await homes.take_over(other, [dead], lease=LEASE, limit=10)

    assert (during, await homes.take_over(other, [dead], lease=LEASE, limit=10)) == (
        [],
        [workspace.caller.workspace_id],
    )


async def test_two_nodes_share_the_workspaces_of_a_third(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    dead, first, second = name(), name(), name()
    beat(settings, dead)
    made = {(await workspace_on(database, settings, dead)).caller.workspace_id for _ in range(6)}
    await silent(homes, dead)

    taken: list[list[object]] = []
    for node in (first, second, first, second):
        taken.append([*await homes.take_over(node, [dead], lease=LEASE, limit=2)])

    assert [len(batch) for batch in taken] == [2, 2, 2, 0]
    assert {id_ for batch in taken for id_ in batch} == made


async def test_own_directory_of_a_user_stays_with_its_node(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    dead = name()
    beat(settings, dead)
    workspace = await workspace_on(database, settings, dead)
    assert workspace.tenant.user_id is not None
    await workspace.stores.workspaces.create(
        ActingUser(workspace.tenant.user_id), name="own", node=dead, root_path="/home/ada/project"
    )
    await silent(homes, dead)

    assert await homes.take_over(name(), [dead], lease=LEASE, limit=10) == [workspace.caller.workspace_id]


@asynccontextmanager
async def server(
    fixture: RunFixture, node: str, *, advance: Callable[[Run], Awaitable[None]] | None = None
) -> AsyncIterator[WakeSignal]:
    """The loop of a server of this node, with its own disk."""
    settings = fixture.workspace.settings
    there = settings.model_copy(
        update={"node_name": node, "data_dir": settings.data_dir / node, "take_over_homes": True}
    )
    here = replace(fixture, workspace=fixture.workspace.with_engine(there))
    disk = DiskIdentity.ensure(there.data_dir, node)
    with ProcessHeartbeat.start(settings.system_url, node=node, lease=LEASE, disk_id=disk.disk_id) as heartbeat:
        async with run_service(here.workspace.engine, advance or here.advance, heartbeat):
            yield here.workspace.engine.wake_signal


async def ended(fixture: RunFixture, run_id: RunId) -> Run:
    async with asyncio.timeout(PATIENCE):
        while (run := await fixture.run(run_id)).state is not RunState.ENDED:
            pass
    return run


@pytest.mark.req("RN-5", part="another node goes on")
@pytest.mark.parametrize("state", ["queued for the dead node", "begun by the dead node"])
async def test_runs_of_a_dead_node_are_finished_by_another(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, state: str
) -> None:
    dead, other = name(), name()
    beat(settings, dead)
    workspace = await workspace_on(database, settings, dead)
    office = await opened_office(workspace, model, providers)
    run = await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
    if state.startswith("begun"):
        process = ProcessId(new_id())
        assert await office.runs.take(process, run.workspace_id, run.id, node=dead, lease=LEASE)
    office.model.say(says("Done."))

    async with server(office, other):
        done = await ended(office, run.id)

    assert done.end_reason is RunEnding.DONE
    assert (await home_of(workspace)).node == other


async def test_run_whose_entry_came_to_a_former_home_is_queued_at_its_home(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry
) -> None:
    former, other = name(), name()
    workspace = await workspace_on(database, settings, former)
    office = await opened_office(workspace, model, providers)
    run = await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
    at_home = await office.runs.requeue_moved(run.workspace_id, run.id, node=former)
    assert await HomeStore(database).give_away(former, [workspace.caller.workspace_id], other)

    assert not at_home
    assert await office.runs.requeue_moved(run.workspace_id, run.id, node=former)
    assert await queues_of(database, run.id) == {f"{run.id}/1": f"runs@{former}", f"{run.id}/2": f"runs@{other}"}


async def test_entries_of_a_silent_node_are_moved_to_the_new_home_only(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    dead, other = name(), name()
    offices = [await opened_office(await workspace_on(database, settings, dead), model, providers) for _ in range(2)]
    runs = [await office.runs.submit(office.tenant, office.session_id, "Go.", via="test") for office in offices]
    assert await homes.give_away(dead, [runs[0].workspace_id], other)

    async def leave(*_: object) -> None:
        await asyncio.Future()

    with ProcessHeartbeat.start(settings.system_url, node=other, lease=LEASE) as heartbeat:
        queue = DurableQueue(
            settings.system_url,
            node=other,
            process_id=heartbeat.id,
            slots=0,
            advance=leave,
            start_queued=leave,
            resume=leave,
            fire=leave,
            periodic=PeriodicJobs(PeriodicJobStore(database), ()),
        )
        queueing = asyncio.create_task(queue.run(ServerProcessStore(database), heartbeat))
        try:
            moved = await queue.move_here([dead], homes)
        finally:
            queueing.cancel()
            await asyncio.gather(queueing, return_exceptions=True)

    assert moved == 1
    assert await queues_of(database, runs[0].id) == {f"{runs[0].id}/1": f"runs@{other}"}
    assert await queues_of(database, runs[1].id) == {f"{runs[1].id}/1": f"runs@{dead}"}


async def queues_of(database: Database, run_id: RunId) -> dict[str, str]:
    """The entries of a run, and the queue of each."""
    async with database.as_system() as connection:
        cursor = await connection.execute(
            "select workflow_uuid, queue_name from dbos.workflow_status where workflow_uuid like %s", (f"{run_id}/%",)
        )
        return dict(await cursor.fetchall())


async def test_tree_is_put_aside_only_if_another_node_took_it_over(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    node, other = name(), name()
    workspace = await workspace_on(database, settings, node)
    await workspace.result("write", path="/a.txt", content="a\n")
    workspace_id = workspace.caller.workspace_id
    renamed = workspace.with_engine(settings.model_copy(update={"node_name": other}))
    assert await homes.elsewhere(other, [workspace_id]) == [workspace_id]

    # The same disk, under another name.
    await renamed.engine.workspace_services.sync.trees.discard(workspace_id)
    kept = (workspace.project / "a.txt").read_text()
    assert await homes.give_away(node, [workspace_id], other)
    await workspace.engine.workspace_services.sync.trees.discard(workspace_id)

    assert kept == "a\n"
    [aside] = (settings.data_dir / "aside").iterdir()
    assert (aside / "project/a.txt").read_text() == "a\n"
    assert not (settings.data_dir / "workspaces" / str(workspace_id)).exists()


@pytest.mark.req("SC-7", part="a draining node gives its workspaces away")
async def test_draining_node_gives_its_workspaces_away_with_what_only_its_disk_had(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    leaving, other = name(), name()
    workspace = await workspace_on(database, settings, leaving)
    office = await opened_office(workspace, model, providers)
    async with server(office, leaving), server(office, other):
        there = settings.data_dir / leaving / "workspaces" / str(workspace.caller.workspace_id) / "project"
        there.mkdir(parents=True, exist_ok=True)
        (there / "by-hand.txt").write_text("written beside the server\n")
        await homes.set_draining(leaving, is_draining=True)
        async with asyncio.timeout(PATIENCE):
            while (await home_of(workspace)).node == leaving:
                pass
        found = await workspace.stores.files.lookup(workspace.tenant, [WorkspacePath(Mount.PROJECT, "/by-hand.txt")])
        shown = {one.name: one for one in await homes.nodes(lease=LEASE)}

    assert found.files[0] is not None
    assert (shown[leaving].is_draining, shown[leaving].workspaces) == (True, 0)
    assert (shown[other].is_alive, shown[other].processes) == (True, 1)


async def test_draining_node_is_not_chosen(database: Database, settings: Settings, homes: HomeStore) -> None:
    drained, leaving = name(), name()
    for node in (drained, leaving):
        beat(settings, node)
        await homes.set_draining(node, is_draining=True)

    assert await homes.successor_of(leaving, lease=60.0) != drained
    with pytest.raises(NotFound):
        await homes.set_draining(name(), is_draining=True)
