"""The staging directory of one server process, where commands write before their effects are imported."""

import asyncio
import fcntl
import os
import secrets
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolcrib.runtime.private_directory import make_private
from toolcrib.sandbox.transaction import remove_staging

_LOCK: Final = "lock"
# Folders that may wait for removal before commands wait for it too.
_MOST_LITTER: Final = 16


class StagingDirectory:
    """A directory of this process. Creating it removes those of dead processes."""

    def __init__(self, above: Path) -> None:
        self._above = above
        self._folder: Path | None = None
        self._lock = -1
        self._sweeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sweeper")
        self._litter: deque[Future[None]] = deque()

    @property
    def folder(self) -> Path:
        """The directory, created at first use: a server that runs no commands leaves none."""
        if self._folder is None:
            self._folder = self._made()
        return self._folder

    async def dispose(self, folder: Path) -> None:
        """Remove a command's folder in the background. Waits only if many are waiting already."""
        while self._litter and (self._litter[0].done() or len(self._litter) >= _MOST_LITTER):
            await asyncio.wrap_future(self._litter.popleft())
        self._litter.append(self._sweeper.submit(remove_staging, folder))

    def close(self) -> None:
        """Wait for pending removals, and remove the directory."""
        self._sweeper.shutdown()
        if self._folder is not None:
            remove_staging(self._folder)
            os.close(self._lock)
            self._folder = None

    def _made(self) -> Path:
        make_private(self._above, self._above.parent)
        for left in self._above.iterdir():
            _drop_if_nobodys(left)
        folder = self._above / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        self._lock = _locked(folder)
        return folder


def _locked(folder: Path) -> int:
    """Return a descriptor that keeps the folder locked as long as this process lives."""
    # Renamed after it is locked, so that no other process can find it unlocked and take the folder for a dead one's.
    unnamed = folder / f"{_LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / _LOCK)
    return lock


def _drop_if_nobodys(folder: Path) -> None:
    # A folder without a lock is just being created by another process.
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_staging(folder)
        finally:
            os.close(lock)
