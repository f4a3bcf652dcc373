"""The sandbox's public face: what holds here, and transactions in it. Below the minimum it runs nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from toolcrib.sandbox.bubblewrap import ViewMount, find_bubblewrap
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.isolation import Isolation, IsolationLevel
from toolcrib.sandbox.probe import probe
from toolcrib.sandbox.resource_limits import MIB
from toolcrib.sandbox.transaction import Dispose, Transaction, begin, dropped

LARGEST_COPY: Final = 512 * MIB


class Sandbox:
    """One per server. ``probe`` first; everything else refuses until isolation was proved."""

    def __init__(
        self,
        *,
        minimum: IsolationLevel = IsolationLevel.NAMESPACES,
        binary: str | None = None,
        overlay: bool = True,
        largest_copy: int = LARGEST_COPY,
        network: EgressNetwork | None = None,
    ) -> None:
        self._minimum = minimum
        self._binary = binary or find_bubblewrap()
        self._overlay = overlay
        self._largest_copy = largest_copy
        self._network = network or EgressNetwork()
        self._isolation: Isolation | None = None
        self._probing = asyncio.Lock()

    @property
    def binary(self) -> str:
        """bubblewrap's path; only to be asked where commands are on."""
        assert self._binary
        return self._binary

    async def probe(self) -> Isolation:
        """What holds here, found out by attempted escapes at the first asking and remembered."""
        async with self._probing:
            if self._isolation is None:
                self._isolation = await probe(self._binary, minimum=self._minimum, overlay=self._overlay)
            return self._isolation

    @asynccontextmanager
    async def transaction(
        self, zones: Sequence[ViewMount], staging: Path, *, dispose: Dispose = dropped
    ) -> AsyncIterator[Transaction]:
        """Views on ``zones`` that copy on write into a fresh folder below ``staging``; ToolFailed if they are off.

        At the end ``dispose`` is given the folder, of which nothing counts any more.
        """
        isolation = await self.probe()
        isolation.require()
        async with begin(
            zones,
            staging,
            isolation=isolation,
            binary=self.binary,
            largest_copy=self._largest_copy,
            network=self._network,
            dispose=dispose,
        ) as begun:
            yield begun
