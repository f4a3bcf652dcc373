"""Checks whether this node can take requests: its database and its disk answer. Also says what it is still doing."""

import asyncio
import os
import time
from enum import StrEnum
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Final, NamedTuple

from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.storage.database import is_online

if TYPE_CHECKING:
    from toolcrib.api.api_services import ApiServices

# Probes of many balancers, or of a stranger, cost one check in this time.
_KEPT_SECONDS: Final = 1.0
_DISK_SECONDS: Final = 2.0


class CheckState(StrEnum):
    """The state of one check. Only ``failed`` takes the node out of service."""

    OK = "ok"
    FAILED = "failed"
    # The sandbox's isolation is being measured, which takes seconds after the start.
    CHECKING = "checking"
    # Commands are off on this machine, which other nodes of the same kind could not change.
    OFF = "off"


class NodeChecks(NamedTuple):
    """What was found."""

    database: CheckState
    disk: CheckState
    sandbox: CheckState

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [name for name, state in self._asdict().items() if state is CheckState.FAILED]


class Readiness:
    """The checks of one server. A request gets the result of the last second, or waits for the check in progress."""

    def __init__(self) -> None:
        self._checking: asyncio.Task[NodeChecks] | None = None
        self._checked_at = 0.0
        self._writing: asyncio.Future[bool] | None = None

    async def check(self, services: "ApiServices") -> NodeChecks:
        """Return the state of each check. Takes seconds at most, however the database and the disk behave."""
        is_old = time.monotonic() - self._checked_at >= _KEPT_SECONDS
        if self._checking is None or (self._checking.done() and is_old):
            self._checking = asyncio.create_task(self._check(services))
        return await asyncio.shield(self._checking)

    async def _check(self, services: "ApiServices") -> NodeChecks:
        database, disk = await asyncio.gather(
            is_online(services.database), self._is_writable(services.settings.data_dir)
        )
        self._checked_at = time.monotonic()
        return NodeChecks(_state(database), _state(disk), _sandbox_state(services.sandbox))

    async def _is_writable(self, data_dir: Path) -> bool:
        if self._writing is None or self._writing.done():
            # A disk that hangs keeps this one thread, not one for each check.
            self._writing = asyncio.ensure_future(asyncio.to_thread(_write, data_dir))
        try:
            async with asyncio.timeout(_DISK_SECONDS):
                return await asyncio.shield(self._writing)
        except TimeoutError:
            return False


def _state(is_ok: bool) -> CheckState:  # noqa: FBT001 - a result, not an option
    return CheckState.OK if is_ok else CheckState.FAILED


def _sandbox_state(sandbox: Sandbox) -> CheckState:
    if sandbox.isolation is None:
        return CheckState.CHECKING
    return CheckState.OK if sandbox.isolation.offered else CheckState.OFF


def _write(data_dir: Path) -> bool:
    """Whether a file can be written. Creates the directory, as the first workspace does."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, name = mkstemp(prefix=".readiness-", dir=data_dir)
        try:
            os.write(file, b"ready")
        finally:
            os.close(file)
            os.unlink(name)
    except OSError:
        return False
    return True
