"""Homes move: a silent node's workspaces go to another node, with their work, and a draining one gives its own away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
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
from toolcrib.gate.workspace_deletion import WorkspaceDeletion
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.periodic_jobs import PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.storage.files import WorkspaceHome
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.server_processes import HeartbeatConnection, ServerProcessStore
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.runs import run_service

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


@pytest.mark.long
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


@pytest.mark.long
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
    fixture: RunFixture,
    node: str,
    *,
    advance: Callable[[Run], Awaitable[None]] | None = None,
    data_dir: Path | None = None,
    take_over_homes: bool = True,
) -> AsyncIterator[WakeSignal]:
    """The loop of a server of this node, with its own disk; by default, a new one."""
    settings = fixture.workspace.settings
    there = settings.model_copy(
        update={
            "node_name": node,
            "data_dir": data_dir or settings.data_dir / node,
            "take_over_homes": take_over_homes,
        }
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


@pytest.mark.gate_cases(1)
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


@pytest.mark.long
async def test_nodes_that_are_not_to_take_homes_over_leave_them_where_they_are(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    dead, passive, draining, active = name(), name(), name(), name()
    beat(settings, dead)
    workspace = await workspace_on(database, settings, dead)
    kept = await workspace_on(database, settings, draining)
    office = await opened_office(workspace, model, providers)
    async with server(office, passive, take_over_homes=False), server(office, draining, take_over_homes=False):
        await homes.set_draining(draining, is_draining=True)
        await silent(homes, dead)
        # It comes last, and would find the workspace taken.
        async with server(office, active), asyncio.timeout(PATIENCE):
            while (home := (await home_of(workspace)).node) == dead:
                pass

    assert home == active
    assert (await home_of(kept)).node == draining


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


async def at_node(database: Database, settings: Settings, node: str) -> WorkspaceFixture:
    """A workspace on a node with its own disk, with a file and an ignored one."""
    there = settings.model_copy(update={"node_name": node, "data_dir": settings.data_dir / node})
    workspace = await new_workspace(database, there)
    await workspace.result("write", path="/.gitignore", content="out/\n")
    await workspace.result("write", path="/a.txt", content="a\n")
    (workspace.project / "out").mkdir()
    (workspace.project / "out/built.bin").write_text("only on this disk\n")
    return workspace


def aside_of(workspace: WorkspaceFixture) -> list[Path]:
    return workspace.engine.workspace_services.mounts.aside.of(workspace.caller.workspace_id)


async def test_node_that_comes_back_takes_back_what_was_not_used(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    away, other = name(), name()
    beat(settings, away, disk_id=DiskIdentity.ensure(settings.data_dir / away, away).disk_id)
    unused, used = [await at_node(database, settings, away) for _ in range(2)]
    office = await opened_office(unused, model, providers)
    await silent(homes, away)
    assert len(await homes.take_over(other, [away], lease=LEASE, limit=10)) == 2
    there = used.with_engine(settings.model_copy(update={"node_name": other, "data_dir": settings.data_dir / other}))
    await there.result("write", path="/b.txt", content="b\n")

    async with server(office, away, data_dir=unused.settings.data_dir), asyncio.timeout(PATIENCE):
        while (await home_of(unused)).node == other or not aside_of(used):
            pass

    # With what the history does not have, and for a process that was at work all the time.
    await unused.result("write", path="/c.txt", content="c\n")
    assert {path.name for path in unused.project.iterdir()} == {".gitignore", "a.txt", "c.txt", "out"}
    assert aside_of(unused) == []
    # Where another node has written, its tree counts; what only this one had is in `aside`.
    assert (await home_of(used)).node == other
    await there.engine.workspace_services.sync.trees.complete(there.caller.workspace_id)
    assert {path.name for path in there.project.iterdir()} == {".gitignore", "a.txt", "b.txt"}
    [aside] = aside_of(used)
    assert (aside / "project/out/built.bin").read_text() == "only on this disk\n"


async def test_draining_node_takes_nothing_back(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    leaving, other = name(), name()
    beat(settings, leaving, disk_id=DiskIdentity.ensure(settings.data_dir / leaving, leaving).disk_id)
    workspace = await at_node(database, settings, leaving)
    office = await opened_office(workspace, model, providers)
    await homes.set_draining(leaving, is_draining=True)
    assert await homes.give_away(leaving, [workspace.caller.workspace_id], other)

    async with server(office, leaving, data_dir=workspace.settings.data_dir), asyncio.timeout(PATIENCE):
        while not await in_thread(aside_of, workspace):
            pass

    assert (await home_of(workspace)).node == other


async def test_workspace_that_is_in_use_elsewhere_is_not_taken_back(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    away, other = name(), name()
    beat(settings, away, disk_id=DiskIdentity.ensure(settings.data_dir / away, away).disk_id)
    workspace = await at_node(database, settings, away)
    office = await opened_office(workspace, model, providers)
    run = await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
    assert await homes.give_away(away, [workspace.caller.workspace_id], other)
    with ProcessHeartbeat.start(settings.system_url, node=other, lease=60.0, disk_id=uuid4()) as heartbeat:
        assert await office.runs.take(heartbeat.id, run.workspace_id, run.id, node=other, lease=60.0)
        trees = workspace.engine.workspace_services.sync.trees

        assert not await trees.discard(workspace.caller.workspace_id, takes_back=True)

    assert (await home_of(workspace)).node == other


@pytest.mark.parametrize("state", ["not swept", "put aside"])
async def test_deleted_workspace_leaves_nothing_on_its_former_homes(
    database: Database, settings: Settings, homes: HomeStore, state: str
) -> None:
    former, between, last = name(), name(), name()
    workspace = await at_node(database, settings, former)
    workspace_id, engine = workspace.caller.workspace_id, workspace.engine
    for old, new in ((former, between), (between, last)):
        assert await homes.give_away(old, [workspace_id], new)
    if state == "put aside":
        assert not await engine.workspace_services.sync.trees.discard(workspace_id)
        assert aside_of(workspace)

    await workspace.stores.workspaces.delete(workspace.tenant)
    deletion = WorkspaceDeletion(
        engine.stores.deleted_workspaces,
        engine.workspace_services.mounts,
        engine.background.end_all_of,
        data_dir=engine.settings.data_dir,
        node=former,
        process_id=ProcessId(new_id()),
        lease=LEASE,
        deleted=asyncio.Event(),
    )
    while await deletion.remove_some():
        pass

    assert aside_of(workspace) == []
    assert not (engine.settings.data_dir / "workspaces" / str(workspace_id)).exists()


async def test_old_trees_are_removed_from_aside(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    former, other = name(), name()
    kept, old = [await at_node(database, settings, former) for _ in range(2)]
    office = await opened_office(kept, model, providers)
    for workspace in (kept, old):
        workspace_id = workspace.caller.workspace_id
        assert await homes.give_away(former, [workspace_id], other)
        assert not await workspace.engine.workspace_services.sync.trees.discard(workspace_id)
    [tree] = aside_of(old)
    tree.rename(tree.with_name(f"{old.caller.workspace_id}-20200101T000000Z-{tree.name[-8:]}"))

    async with server(office, former, data_dir=kept.settings.data_dir), asyncio.timeout(PATIENCE):
        while await in_thread(aside_of, old):
            pass

    assert len(aside_of(kept)) == 1


@pytest.mark.long
async def test_takeover_does_not_wait_for_workspaces_that_the_node_has_already(
    database: Database,
    settings: Settings,
    model: ModelServer,
    providers: ProviderRegistry,
    homes: HomeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolcrib.nodes.home_keeper._BATCH", 2)
    dead, other = name(), name()
    beat(settings, dead)
    workspaces = [await workspace_on(database, settings, dead) for _ in range(5)]
    own = await at_node(database, settings, other)
    office = await opened_office(own, model, providers)
    # Its last change is not on disk, and someone else is at work in it.
    own.project.chmod(0o500)
    assert (await own.call("write", path="/late.txt", content="late\n")).error is not None
    own.project.chmod(0o700)
    path = WorkspacePath(Mount.PROJECT, "/other.txt")
    async with own.stores.changes.lock(own.tenant, [path]) as locked:
        await locked.lookup([path], WorkspaceRole.MEMBER)
        async with server(office, other, data_dir=own.settings.data_dir), asyncio.timeout(PATIENCE):
            while {(await home_of(one)).node for one in workspaces} != {other}:
                pass


async def test_node_with_fewer_workspaces_gets_those_of_a_draining_one(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    busy, idle, leaving = name(), name(), name()
    for node in (busy, idle, leaving):
        beat(settings, node)
    await workspace_on(database, settings, busy)

    assert await homes.successor_of(leaving, lease=60.0) == idle


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


@pytest.mark.long
async def test_busy_workspace_of_a_draining_node_moves_when_its_run_has_ended(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    leaving, other = name(), name()
    busy, idle = [await workspace_on(database, settings, leaving) for _ in range(2)]
    office = await opened_office(busy, model, providers)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work(run: Run) -> None:
        begun.set()
        await may_end.wait()
        await office.advance(run)

    office.model.say(says("Done."))
    async with (
        server(office, leaving, advance=work, data_dir=busy.settings.data_dir),
        server(office, other, advance=work),
        asyncio.timeout(PATIENCE),
    ):
        await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
        await begun.wait()
        await homes.set_draining(leaving, is_draining=True)
        while (await home_of(idle)).node == leaving:
            pass
        home_while_busy = (await home_of(busy)).node
        may_end.set()
        while (await home_of(busy)).node == leaving:
            pass

    assert home_while_busy == leaving


async def test_draining_node_is_not_chosen(database: Database, settings: Settings, homes: HomeStore) -> None:
    drained, leaving = name(), name()
    for node in (drained, leaving):
        beat(settings, node)
        await homes.set_draining(node, is_draining=True)

    assert await homes.successor_of(leaving, lease=60.0) != drained
    with pytest.raises(NotFound):
        await homes.set_draining(name(), is_draining=True)
