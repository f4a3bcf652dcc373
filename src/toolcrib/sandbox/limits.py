"""How much a command may use, and the watcher that ends it when it uses more. Knows processes by their numbers."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

MIB: Final = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command, with all its processes, may use."""

    memory_bytes: int = 2048 * MIB
    processes: int = 256
    # What it writes to its zones, /tmp, its home and /dev/shm.
    disk_bytes: int = 2048 * MIB
    entries: int = 100_000
    file_bytes: int = 1024 * MIB
    open_files: int = 4096

    @property
    def shell(self) -> str:
        """As a shell sets them on itself. Set within the innermost user namespace, which counts its own processes.

        Private memory is bounded per process too, at the whole command's limit: the watcher looks now and then, and a
        process can take gigabytes in between.
        """
        return (
            f"ulimit -c 0; ulimit -f {self.file_bytes // 512}; ulimit -n {self.open_files}; "
            f"ulimit -d {self.memory_bytes // 1024}; ulimit -p {self.processes}"
        )


async def watch(pid: int, folders: Iterable[Path], limits: Limits, stop: Callable[[str], None]) -> None:
    """Look at a process tree and what it writes, until cancelled or the first excess, which ``stop`` is told."""
    disk = _Disk(tuple(folders), limits)
    while True:
        began = monotonic()
        reason = _process_excess(pid, limits) or await asyncio.to_thread(disk.excess)
        if reason:
            stop(reason)
            return
        # A long look is followed by a pause as long, so that watching never takes more than half a core.
        await asyncio.sleep(max(_EVERY_SECONDS, monotonic() - began))


def _process_excess(pid: int, limits: Limits) -> str | None:
    memory = 0
    for count, process in enumerate(descendants(pid), start=1):
        memory += _resident(process)
        if count > limits.processes:
            return f"more than {limits.processes} processes"
        if memory > limits.memory_bytes:
            return f"more than {limits.memory_bytes // MIB} MiB of memory"
    return None


def descendants(pid: int) -> Iterator[int]:
    """The process and all that come from it. Within a pid namespace nothing can leave this tree."""
    found = [pid]
    while found:
        process = found.pop()
        yield process
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                found.extend(map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


class Growth:
    """How much trees have grown on which a program works live. Counted only when their file system has lost much room:

    what others write there costs a count, and ends nothing.
    """

    def __init__(self, folders: Iterable[Path], limits: Limits) -> None:
        self._limits = limits
        self._disk = _Disk(tuple(folders), limits)
        self._size, self._entries = self._disk.total()
        self._free = self._disk.free_now()

    def excess(self) -> str | None:
        limits, free = self._limits, self._disk.free_now()
        if self._free[0] - free[0] <= limits.disk_bytes // 2 and self._free[1] - free[1] <= limits.entries // 2:
            return None
        self._free = free
        size, entries = self._disk.total()
        if size - self._size > limits.disk_bytes:
            return f"more than {limits.disk_bytes // MIB} MiB written"
        if entries - self._entries > limits.entries:
            return f"more than {limits.entries} files and folders written"
        return None


class _Disk:
    """What lies in some folders. What cannot be looked into is judged by what is gone from the file system."""

    def __init__(self, folders: tuple[Path, ...], limits: Limits) -> None:
        self._folders = folders
        self._limits = limits
        self._free = self.free_now()
        self._locked = False

    def excess(self) -> str | None:
        limits = self._limits
        size = 0
        self._locked = False
        for count, found in enumerate(self._sizes(), start=1):
            size += found
            if count > limits.entries:
                return f"more than {limits.entries} files and folders written"
            if size > limits.disk_bytes:
                return f"more than {limits.disk_bytes // MIB} MiB written"
        if not self._locked:
            return None
        used = [was - now for was, now in zip(self._free, self.free_now(), strict=True)]
        if used[0] > limits.disk_bytes or used[1] > limits.entries:
            return "too much written, in folders that it locked"
        return None

    def total(self) -> tuple[int, int]:
        """The bytes of everything below, and how many things there are."""
        size = entries = 0
        for entries, found in enumerate(self._sizes(), start=1):  # noqa: B007 - the last number counts
            size += found
        return size, entries

    def free_now(self) -> tuple[int, int]:
        if not self._folders:
            return 0, 0
        found = os.statvfs(self._folders[0])
        return found.f_bavail * found.f_frsize, found.f_favail

    def _sizes(self) -> Iterator[int]:
        """The size on disk of every entry below. What vanishes meanwhile is passed over."""
        left = [str(folder) for folder in self._folders]
        while left:
            try:
                with os.scandir(left.pop()) as entries:
                    for entry in entries:
                        try:
                            found = entry.stat(follow_symlinks=False)
                        except PermissionError:
                            self._locked = True
                            continue
                        except OSError:
                            continue
                        yield found.st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            left.append(entry.path)
            except PermissionError:
                self._locked = True
            except OSError:
                continue
