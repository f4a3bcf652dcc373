"""A node has one disk: another disk is not served under its name, and a node that is renamed keeps its workspaces."""

import shutil
import time
from uuid import uuid4

import pytest

from tests.fakes.model_server import ModelServer
from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.nodes.test_homes import LEASE, beat, home_of, name, queues_of, silent, workspace_on
from tests.integration.runs.conftest import opened_office
from tests.wait_until import PATIENCE
from toolcrib.core.errors import Conflict, Misconfigured, NotFound, Superseded
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.server_processes import HeartbeatConnection
from toolcrib.wiring.server import services


@pytest.fixture
def homes(database: Database) -> HomeStore:
    return HomeStore(database)


async def test_server_does_not_start_under_another_name_than_its_disk_has(settings: Settings) -> None:
    async with services(settings):
        pass
    disk = DiskIdentity.load(settings.data_dir)

    with pytest.raises(Misconfigured, match="toolcrib nodes rename"):
        async with services(settings.model_copy(update={"node_name": name()})):
            pass

    assert disk is not None
    assert DiskIdentity.load(settings.data_dir) == disk


@pytest.mark.long
async def test_second_disk_of_a_running_node_is_not_served(settings: Settings) -> None:
    settings = settings.model_copy(update={"heartbeat_lease_seconds": LEASE})
    other = settings.model_copy(update={"data_dir": settings.data_dir / "other"})
    async with services(settings), services(settings):
        # Two processes of one disk are one node; those of another disk are not.
        with pytest.raises(Misconfigured, match="TOOLCRIB_NODE_NAME"):
            async with services(other):
                pass

    # The disk was replaced while the node was stopped.
    async with services(other):
        pass


async def test_another_disk_waits_for_the_lease_of_a_killed_process_of_its_node(settings: Settings) -> None:
    node = name()
    began = time.monotonic()
    beat(settings, node)

    # As after a restore, when the dump has a process that was alive.
    with ProcessHeartbeat.start(settings.system_url, node=node, lease=LEASE, disk_id=uuid4()) as heartbeat:
        assert not heartbeat.is_lost()

    assert time.monotonic() - began >= LEASE


async def test_process_whose_disk_was_replaced_is_dead(settings: Settings) -> None:
    node = name()
    suspended = HeartbeatConnection(settings.system_url, ProcessId(new_id()), node, uuid4())
    assert suspended.register(lease=60.0)
    suspended.remove()
    fresh = HeartbeatConnection(settings.system_url, ProcessId(new_id()), node, uuid4())
    assert fresh.register(lease=60.0)

    with pytest.raises(Superseded, match="Another disk"):
        suspended.beat()
    fresh.beat()

    for connection in (suspended, fresh):
        connection.close()


async def test_process_whose_disk_was_replaced_does_not_rebuild_its_trees(
    database: Database, settings: Settings
) -> None:
    disk = DiskIdentity.ensure(settings.data_dir, settings.node_name)
    beat(settings, settings.node_name, disk_id=disk.disk_id)
    suspended = await new_workspace(database, settings)
    await suspended.result("write", path="/a.txt", content="a\n")
    # The same node, with another disk, on which the files are written now.
    replaced = settings.model_copy(update={"data_dir": settings.data_dir / "replaced"})
    fresh = DiskIdentity.ensure(replaced.data_dir, settings.node_name)
    connection = HeartbeatConnection(settings.system_url, ProcessId(new_id()), settings.node_name, fresh.disk_id)
    assert connection.register(lease=0.0)
    connection.close()
    current = suspended.with_engine(replaced)
    await current.result("write", path="/a.txt", content="new\n", overwrite=True)

    for process in (suspended, suspended.with_engine()):
        with pytest.raises(Superseded):
            await process.call("write", path="/b.txt", content="b\n")

    assert (suspended.project / "a.txt").read_text() == "a\n"
    assert (current.project / "a.txt").read_text() == "new\n"
    assert "new" in (await current.result("read", path="/a.txt"))["content"]


async def test_workspaces_of_a_local_server_are_not_taken_over(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    node = name()
    local = HeartbeatConnection(settings.system_url, ProcessId(new_id()), node)
    local.beat()
    local.close()
    await workspace_on(database, settings, node)
    await silent(homes, node)

    assert await homes.take_over(name(), [node], lease=LEASE, limit=10) == []
    assert [one.has_homes for one in await homes.look(lease=LEASE) if one.name == node] == [False]
    assert await homes.successor_of(name(), lease=PATIENCE) is None


async def test_renamed_node_keeps_its_workspaces_and_their_work(
    database: Database, settings: Settings, model: ModelServer, providers: ProviderRegistry, homes: HomeStore
) -> None:
    old, new, other, disk_id = name(), name(), name(), uuid4()
    beat(settings, old, disk_id=disk_id)
    workspace = await workspace_on(database, settings, old)
    office = await opened_office(workspace, model, providers)
    await workspace.result("write", path="/a.txt", content="a\n")
    run = await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
    moved = await workspace_on(database, settings, old)
    assert await homes.give_away(old, [moved.caller.workspace_id], other)

    await silent(homes, old)
    await homes.rename(old, new, disk_id, lease=LEASE)
    # An interrupted renaming is repeated.
    await homes.rename(old, new, disk_id, lease=LEASE)

    assert old not in {one.name for one in await homes.nodes(lease=LEASE)}
    assert (await home_of(workspace)).node == new
    assert await queues_of(database, run.id) == {f"{run.id}/1": f"runs@{new}"}
    # The same tree, also of a workspace that moved away: it is deleted there too.
    after = workspace.with_engine(settings.model_copy(update={"node_name": new}))
    assert (await after.result("read", path="/a.txt"))["content"] == "a\n"
    assert not (settings.data_dir / "aside").exists()
    await moved.stores.workspaces.delete(moved.tenant)
    assert await nodes_to_tidy(database, moved) == {"", new, other}


async def nodes_to_tidy(database: Database, workspace: WorkspaceFixture) -> set[str]:
    async with database.as_system() as connection:
        cursor = await connection.execute(
            "select node from toolcrib.deleted_workspaces where workspace_id = %s", (workspace.caller.workspace_id,)
        )
        return {node for (node,) in await cursor.fetchall()}


async def test_node_is_not_renamed_while_it_runs_or_from_another_disk(
    database: Database, settings: Settings, homes: HomeStore
) -> None:
    node, taken, disk_id = name(), name(), uuid4()
    beat(settings, node, disk_id=disk_id)
    await workspace_on(database, settings, taken)
    beat(settings, taken)

    with pytest.raises(Conflict, match="Stop its servers"):
        await homes.rename(node, name(), disk_id, lease=60.0)
    with pytest.raises(Conflict, match="another data directory"):
        await homes.rename(node, name(), uuid4(), lease=60.0)
    with pytest.raises(NotFound):
        await homes.rename(name(), name(), disk_id, lease=60.0)
    await silent(homes, taken)
    with pytest.raises(Conflict, match="workspaces of its own"):
        await homes.rename(node, taken, disk_id, lease=LEASE)


async def test_emptied_disk_of_a_node_is_another_disk(settings: Settings) -> None:
    async with services(settings):
        pass
    before = DiskIdentity.load(settings.data_dir)
    shutil.rmtree(settings.data_dir)

    async with services(settings):
        after = DiskIdentity.load(settings.data_dir)

    assert before is not None
    assert after is not None
    assert (before.node == after.node, before.disk_id == after.disk_id) == (True, False)
