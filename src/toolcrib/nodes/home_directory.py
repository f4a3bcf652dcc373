"""Knows which node is the home of each workspace, where it can be reached, and which is to be a new one's."""

from collections import OrderedDict
from typing import Final

from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.node_addresses import HomeAddress, NodeAddressStore

_REMEMBERED: Final = 50_000


class HomeDirectory:
    """Looks a home up once. What it remembers may be out of date: the home itself says so, and is looked up again."""

    def __init__(self, addresses: NodeAddressStore, *, node: str, lease: float) -> None:
        self._addresses = addresses
        self._node = node
        self._lease = lease
        self._known: OrderedDict[WorkspaceId, HomeAddress] = OrderedDict()

    async def elsewhere(self, workspace_id: WorkspaceId) -> HomeAddress | None:
        """Return the other node that has the workspace's files; None if this node does, or none has them yet."""
        home = self._known.get(workspace_id)
        if home is None:
            home = await self._addresses.home_of(workspace_id)
            if home is None:
                return None
            self._known[workspace_id] = home
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return None if home.node == self._node else home

    async def for_new_workspace(self) -> str:
        """Return the node that is to be the home of a new workspace. The nodes get about as many each."""
        return await self._addresses.for_new_workspace(lease=self._lease) or self._node

    async def silent_nodes(self) -> frozenset[str]:
        """Return the other nodes without a heartbeat for a lease. None, if this one has none either."""
        silent = await self._addresses.silent(seconds=self._lease)
        return frozenset() if self._node in silent else frozenset(silent)

    def forget(self, workspace_id: WorkspaceId) -> None:
        """Look the home up again when it is needed next."""
        self._known.pop(workspace_id, None)

    def forget_node(self, node: str) -> None:
        """Look all homes at a node up again: it may be dead."""
        for workspace_id in [id_ for id_, home in self._known.items() if home.node == node]:
            del self._known[workspace_id]
