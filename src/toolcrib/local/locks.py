"""Locks between processes of one user. The kernel lets go of them when a process dies, however it dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileLock:
    """A lock on a file. Held by one, or shared by several."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, shared: bool = False) -> None:
        """Waits until it is free."""
        fcntl.flock(self._opened(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Whether it was free, and is ours now."""
        try:
            fcntl.flock(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock for as long as the context lasts."""
    lock = FileLock(path)
    lock.take()
    try:
        yield
    finally:
        lock.release()
