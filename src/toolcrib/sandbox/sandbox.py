"""The public interface of the sandbox: isolation probe and transactions. Runs nothing below the minimum level."""

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
    """One per server. Runs nothing until ``probe`` has verified isolation."""

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
        """The path of bubblewrap. Only valid where commands are on."""
        assert self._binary
        return self._binary

    async def probe(self) -> Isolation:
        """Return the isolation, determined by attempted escapes at the first call and cached."""
        async with self._probing:
            if self._isolation is None:
                self._isolation = await probe(self._binary, minimum=self._minimum, overlay=self._overlay)
            return self._isolation

    @asynccontextmanager
    async def transaction(
        self, mounts: Sequence[ViewMount], staging: Path, *, dispose: Dispose = dropped
    ) -> AsyncIterator[Transaction]:
        """Open copy-on-write views of ``mounts`` in a new folder below ``staging``.

        Raises ``ToolFailed`` if commands are off.

        At the end, ``dispose`` receives the folder, which is no longer needed.
        """
        isolation = await self.probe()
        isolation.require()
        async with begin(
            mounts,
            staging,
            isolation=isolation,
            binary=self.binary,
            largest_copy=self._largest_copy,
            network=self._network,
            dispose=dispose,
        ) as begun:
            yield begun
