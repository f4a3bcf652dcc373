"""Makes this node the home of workspaces whose node is silent, and gives its own away while it drains."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from toolcrib.core.errors import ToolcribError
from toolcrib.core.ids import WorkspaceId
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.sandbox.transaction import remove_staging
from toolcrib.storage.database import OperationalError
from toolcrib.storage.homes import HomeStore, NodeHeartbeat
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.workspace.fs.mounts import MountTable
from toolcrib.workspace.sync.rebuild import TreeRebuilder

log = structlog.get_logger(__name__)

# How soon a silent node is noticed, after its lease.
_LOOK_SECONDS: Final = 1.0
# How often entries are moved that came into the queue of a dead node after it was taken over.
_MOVE_SECONDS: Final = 5.0
# How often this disk is searched for trees that other nodes have taken over, and for old ones that were put aside.
_SWEEP_SECONDS: Final = 60.0
_ASIDE_SECONDS: Final = 3600.0
# Other nodes take over at the same time: small batches share the work between them.
_BATCH: Final = 100
# Trees that are put aside, or taken back, at a time.
_AT_ONCE: Final = 8


class HomeKeeper:
    """One per server process. Processes of one node may do this at the same time."""

    def __init__(
        self,
        homes: HomeStore,
        processes: ServerProcessStore,
        heartbeat: ProcessHeartbeat,
        queue: DurableQueue,
        mounts: MountTable,
        trees: TreeRebuilder,
        *,
        node: str,
        taken: Callable[[], Awaitable[None]],
        leaving: Callable[[WorkspaceId], Awaitable[None]],
    ) -> None:
        """Create the keeper.

        Args:
            queue: The node's queue, which gets the work of workspaces that it takes over.
            taken: Starts what waits in workspaces that were taken over. Their trees are rebuilt when they are used.
            leaving: Stores what only the disk knows of a workspace that is given away.
        """
        self._homes = homes
        self._processes = processes
        self._heartbeat = heartbeat
        self._queue = queue
        self._mounts = mounts
        self._trees = trees
        self._node = node
        self._taken = taken
        self._leaving = leaving
        # When this process first read the last heartbeat of each node.
        self._read_at: dict[tuple[str, datetime], float] = {}
        self._moved = time.monotonic() - _MOVE_SECONDS

    async def run(self) -> None:
        """Look, and tidy the disk, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self.look, min(_LOOK_SECONDS, self._heartbeat.lease / 4)))
            # Beside it: a disk with many trees must not delay a takeover.
            group.create_task(self._repeat(self.sweep, _SWEEP_SECONDS))
            group.create_task(self._repeat(self.sweep_aside, _ASIDE_SECONDS))

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            # If this process could not reach the database, others could not either: nobody is dead.
            if not self._heartbeat.is_steady:
                await asyncio.sleep(min(_LOOK_SECONDS, self._heartbeat.lease / 4))
                continue
            try:
                await work()
            except OperationalError as error:
                log.warning("homes.database_error", error=str(error))
            except Exception:
                # No other task here does this, so no error may end this loop.
                log.exception("homes.failed", work=work.__name__)
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Take over the workspaces of silent nodes or, while this node drains, give its own away."""
        nodes = await self._homes.look(lease=self._heartbeat.lease)
        is_draining = any(node.is_draining for node in nodes if node.name == self._node)
        silent = self._silent(nodes)
        names = [node.name for node in silent]
        if is_draining:
            await self._give_away()
        elif any(node.has_homes for node in silent):
            await self._take_over(names)
        if silent and time.monotonic() >= self._moved + _MOVE_SECONDS:
            # What was delayed there comes into the queue of a dead node at its time.
            await self._queue.move_here(names, self._homes)
            self._moved = time.monotonic()

    async def sweep(self) -> None:
        """Settle the trees of workspaces that other nodes took over while this one was away.

        It takes those back that were not used there, unless it drains, and puts the others aside.
        """
        elsewhere = await self._homes.elsewhere(self._node, await in_thread(self._mounts.stored))
        is_home = False
        for start in range(0, len(elsewhere), _AT_ONCE):
            is_home |= any(await asyncio.gather(*map(self._settle, elsewhere[start : start + _AT_ONCE])))
        if is_home:
            await self._taken()

    async def _settle(self, workspace_id: WorkspaceId) -> bool:
        """Settle the trees of one workspace. If that fails, they stay, and the others are settled."""
        try:
            return await self._trees.discard(workspace_id, takes_back=True)
        except (OSError, ToolcribError) as error:
            log.error("homes.not_settled", workspace_id=str(workspace_id), error=str(error))
            return False

    async def sweep_aside(self) -> None:
        """Delete trees that were put aside long ago, or that take too much space."""
        for tree in await in_thread(self._mounts.aside.expired, datetime.now(UTC)):
            log.info("homes.aside_deleted", tree=tree.name)
            await in_thread(remove_staging, tree)

    def _silent(self, nodes: Sequence[NodeHeartbeat]) -> list[NodeHeartbeat]:
        """Return the other nodes that have sent nothing for a lease, by the clock of this process too.

        The database's clock jumps when its machine slept, or when another one takes its place.
        """
        now = time.monotonic()
        known, self._read_at = self._read_at, {}
        for node in nodes:
            self._read_at[node.name, node.seen_at] = known.get((node.name, node.seen_at), now)
        return [
            node
            for node in nodes
            if node.name != self._node
            and node.is_silent
            # A beat may be a second older than its first reading here.
            and now >= self._read_at[node.name, node.seen_at] + self._heartbeat.lease - _LOOK_SECONDS
        ]

    async def _take_over(self, silent: Sequence[str]) -> None:
        lease = self._heartbeat.lease
        # A process that is suspended, or cut off, keeps its locks.
        await self._processes.end_sessions_of_dead(seconds=lease)
        count, told = 0, time.monotonic()
        while workspaces := await self._homes.take_over(self._node, silent, lease=lease, limit=_BATCH):
            count += len(workspaces)
            if time.monotonic() > told + _LOOK_SECONDS:
                await self._start_taken(silent)
                told = time.monotonic()
        if count:
            log.warning("homes.taken_over", workspaces=count, nodes=silent)
            await self._start_taken(silent)

    async def _start_taken(self, silent: Sequence[str]) -> None:
        await self._queue.move_here(silent, self._homes)
        await self._taken()

    async def _give_away(self) -> None:
        after: WorkspaceId | None = None
        while idle := await self._homes.idle_at(self._node, after=after, limit=_BATCH):
            after = idle[-1]
            successor = await self._homes.successor_of(self._node, lease=self._heartbeat.lease)
            if successor is None:
                log.warning("homes.no_successor")
                return
            recorded = [workspace_id for workspace_id in idle if await self._is_recorded(workspace_id)]
            given = await self._homes.give_away(self._node, recorded, successor)
            log.info("homes.given_away", workspaces=len(given), to=successor)

    async def _is_recorded(self, workspace_id: WorkspaceId) -> bool:
        """Record what only the disk knows. If that fails, the workspace stays, and the others move."""
        try:
            await self._leaving(workspace_id)
        except (OSError, ToolcribError) as error:
            log.error("homes.not_recorded", workspace_id=str(workspace_id), error=str(error))
            return False
        return True
