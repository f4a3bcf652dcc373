"""Resource limits of commands: enforced by cgroups where possible, and by a watcher that kills on excess."""

import asyncio
import os
import re
import resource
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Final, Self

from toolcrib.sandbox.seccomp import LARGEST_SHARED_MAPPING

MIB: Final = 1 << 20
_EVERY_SECONDS: Final = 0.2
# A command with more runnable tasks than this gets only idle processor time.
MOST_EAGER: Final = max(16, 4 * (os.cpu_count() or 1))
# How much is written before a folder that outlives commands is counted again, and how many files it may have.
_RECOUNTED_BYTES: Final = 128 * MIB
_RECOUNTED_ENTRIES: Final = 20_000
_MOST_KEPT: Final = 1_000_000
_PRIVATE: Final = re.compile(r"^(?:RssAnon|VmSwap|HugetlbPages):\s+(\d+) kB$", re.MULTILINE)
_SHARED: Final = re.compile(rb"^\S+ \S+ \S+ (\S+ \d+) +/dev/zero \(deleted\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What one command may use, with all its processes."""

    memory_bytes: int = 2048 * MIB
    processes: int = 256
    # For what it writes to its mounts, /tmp, its home and /dev/shm.
    disk_bytes: int = 2048 * MIB
    entries: int = 200_000
    file_bytes: int = 1024 * MIB
    open_files: int = 4096

    @property
    def shell(self) -> str:
        """The limits as shell commands. Set in the innermost user namespace, which counts its own processes.

        Private memory is also limited per process, at the whole command's limit: the watcher samples, and a process can
        allocate gigabytes in between. Where the server itself has less, as in many containers, commands have that.
        """
        return (
            f"ulimit -c 0; ulimit -f {_settable(resource.RLIMIT_FSIZE, self.file_bytes) // 512}; "
            f"ulimit -n {_settable(resource.RLIMIT_NOFILE, self.open_files)}; "
            f"ulimit -d {_settable(resource.RLIMIT_DATA, self.memory_bytes) // 1024}; "
            f"ulimit -p {_settable(resource.RLIMIT_NPROC, self.processes)}"
        )


def _settable(kind: int, wanted: int) -> int:
    """Return the limit, or the server's own hard limit if that is lower: the shell would fail to exceed it."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


async def watch(
    pid: int,
    folders: Iterable[Path],
    limits: ResourceLimits,
    stop: Callable[[str], None],
    *,
    kept: Sequence["KeptUsage"] = (),
    grouped: bool = False,
) -> None:
    """Watch a process tree and what it writes, until cancelled or the first excess, which is passed to ``stop``.

    ``grouped`` means that it is in a cgroup, which counts shared memory.
    """
    disk = _DiskUsage(tuple(folders), limits)

    def excess() -> str | None:
        reasons = (usage.excess() for usage in kept)
        return _process_excess(pid, limits, grouped=grouped) or disk.excess() or next(filter(None, reasons), None)

    while True:
        began = monotonic()
        # In a thread: a command can make this check slow.
        if reason := await asyncio.to_thread(excess):
            stop(reason)
            return
        # A slow check is followed by an equally long pause, so that watching never takes more than half a core.
        await asyncio.sleep(max(_EVERY_SECONDS, monotonic() - began))


def _process_excess(pid: int, limits: ResourceLimits, *, grouped: bool) -> str | None:
    memory = 0
    shared: set[bytes] = set()
    eager: list[int] = []
    for count, process in enumerate(descendants(pid), start=1):
        memory += _private_memory(process)
        shared |= set() if grouped else _shared_mappings(process)
        eager += _runnable(process)
        if count > limits.processes:
            return f"more than {limits.processes} processes"
        if memory + len(shared) * LARGEST_SHARED_MAPPING > limits.memory_bytes:
            return f"more than {limits.memory_bytes // MIB} MiB of memory"
    if len(eager) > MOST_EAGER:
        _demote(eager)
    return None


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants. In a pid namespace nothing can leave this tree."""
    found = [pid]
    while found:
        process = found.pop()
        yield process
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                found.extend(map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue


def _private_memory(pid: int) -> int:
    """Return a process's own memory, resident or swapped. Excludes mapped files."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(kilobytes) << 10 for kilobytes in _PRIVATE.findall(status))


def _shared_mappings(pid: int) -> set[bytes]:
    """Return the inodes of memory that a process shares without a file.

    Each counts as its maximum size: how much of it is allocated is not visible from here.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return set(_SHARED.findall(maps))


def _runnable(pid: int) -> list[int]:
    """Return the tasks of a process that are runnable now."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            if b") R " in Path(f"/proc/{pid}/task/{task}/stat").read_bytes():
                found.append(int(task))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def _demote(tasks: Iterable[int]) -> None:
    """Give tasks and their children idle priority. They cannot undo it."""
    for task in tasks:
        with suppress(ProcessLookupError, PermissionError):
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))


class DiskGrowth:
    """Measures how much live trees have grown.

    Counts only when their file system has lost much space: writes by others then cost a count, but end nothing.
    """

    def __init__(self, folders: Iterable[Path], limits: ResourceLimits) -> None:
        self._limits = limits
        self._disk = _DiskUsage(tuple(folders), limits)
        self._size, self._entries = self._disk.total()
        self._free = self._disk.free_now()

    def excess(self) -> str | None:
        """Return which limit the growth exceeds, or ``None``."""
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


class KeptUsage:
    """Measures a folder that outlives commands. Counts only when its file system has lost some space."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._disk = _DiskUsage((folder,), ResourceLimits())
        self._free = self._disk.free_now()

    def excess(self) -> str | None:
        """Return which limit the folder exceeds, or ``None``."""
        free = self._disk.free_now()
        if self._free[0] - free[0] <= _RECOUNTED_BYTES and self._free[1] - free[1] <= _RECOUNTED_ENTRIES:
            return None
        self._free = free
        return (
            f"more than {self._most_bytes // MIB} MiB in its cache" if exceeds(self._folder, self._most_bytes) else None
        )


def exceeds(folder: Path, most_bytes: int) -> bool:
    """Whether a folder has more bytes or very many files. What cannot be counted counts as too much."""
    usage = _DiskUsage((folder,), ResourceLimits(disk_bytes=most_bytes, entries=_MOST_KEPT))
    return usage.excess() is not None or usage.is_locked


class _DiskUsage:
    """Disk usage of folders. Unreadable folders are judged by the lost space of the file system."""

    def __init__(self, folders: tuple[Path, ...], limits: ResourceLimits) -> None:
        self._folders = folders
        self._limits = limits
        self._free = self.free_now()
        self._locked = False

    @property
    def is_locked(self) -> bool:
        """Whether the last count found a folder that it could not enter."""
        return self._locked

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
        """Return the total size and number of all entries."""
        size = entries = 0
        for entries, found in enumerate(self._sizes(), start=1):  # noqa: B007 - used after the loop
            size += found
        return size, entries

    def free_now(self) -> tuple[int, int]:
        if not self._folders:
            return 0, 0
        found = os.statvfs(self._folders[0])
        return found.f_bavail * found.f_frsize, found.f_favail

    def _sizes(self) -> Iterator[int]:
        """Yield the size on disk of every entry. Skips what vanishes meanwhile."""
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


_MOUNT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = frozenset({"memory", "pids"})
_TRIES: Final = 50
# systemd marks the groups of units with Delegate= by this attribute.
_DELEGATED: Final = "user.delegate"
# The default is 100.
_CPU_WEIGHT: Final = 20


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One command's cgroup: a folder in the unified hierarchy, or one in each of the two older ones.

    The kernel itself enforces its limits. Where the server may not create groups, only the watcher limits a command.
    """

    folders: tuple[Path, ...]

    @classmethod
    def make(cls, limits: ResourceLimits) -> Self | None:
        """Create a group with these limits; None where that is not possible."""
        parents = available()
        if not parents:
            return None
        name = f"toolcrib-{secrets.token_hex(8)}"
        group = cls(tuple(parent / name for parent in parents))
        for folder in group.folders:
            folder.mkdir()
            for setting, value in _settings(limits).items():
                if (folder / setting).exists():
                    (folder / setting).write_text(value)
        return group

    @property
    def doors(self) -> tuple[str, ...]:
        """The files through which a process enters: it writes 0 there, for itself.

        In the older hierarchies, entering through ``tasks`` does not wait. Moving another process waits until all
        processors have seen it: some 10 ms.
        """
        return tuple(
            str(folder / name)
            for folder in self.folders
            for name in ("tasks" if (folder / "tasks").exists() else "cgroup.procs",)
        )

    async def remove(self) -> None:
        """Remove the group after its processes have ended. Retries while the kernel releases the last one."""
        for folder in self.folders:
            for _ in range(_TRIES):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(0.02)


@cache
def available() -> tuple[Path, ...]:
    """Return the folders where the server may create groups with memory and process limits; empty if nowhere."""
    hierarchies = _hierarchies()
    unified = delegated(hierarchies[""], _MOUNT) if "" in hierarchies else None
    if unified:
        return (unified,)
    older = tuple(hierarchies[name] for name in sorted(_NEEDED) if name in hierarchies)
    if len(older) == len(_NEEDED) and all(os.access(folder, os.W_OK) for folder in older):
        return older
    return ()


def _hierarchies() -> dict[str, Path]:
    """Return the server's own group in each hierarchy, by controller; the unified one has no name."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found[""] = _MOUNT / path.lstrip("/")
        for controller in filter(None, controllers.split(",")):
            found[controller] = _MOUNT / controller / path.lstrip("/")
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def delegated(group: Path, mount: Path) -> Path | None:
    """Return where a server in ``group`` of the unified hierarchy may create groups with limits; None if nowhere.

    A group with processes cannot give controllers to its subgroups, unless it is the root. So a delegated server has
    its own subgroup, and commands get groups beside it.
    """
    for parent in (group, group.parent):
        if parent.is_relative_to(mount) and _is_given_to_us(parent, mount) and _enabled(parent) >= _NEEDED:
            return parent
    return None


def _is_given_to_us(group: Path, mount: Path) -> bool:
    files = (group, group / "cgroup.procs", group / "cgroup.subtree_control")
    if not all(os.access(file, os.W_OK) for file in files):
        return False
    if os.geteuid() != 0 or group == mount:
        return True
    # Root may write everywhere, even where systemd alone manages the groups.
    try:
        return os.getxattr(group, _DELEGATED) == b"1"
    except OSError:
        return False


def _enabled(group: Path) -> frozenset[str]:
    """Enable controllers for subgroups, and return those that are enabled."""
    control = group / "cgroup.subtree_control"
    for controller in ("memory", "pids", "cpu"):
        # EBUSY if processes are in the group; ENOENT if the controller is missing.
        with suppress(OSError), control.open("a") as file:
            file.write(f"+{controller}\n")
    try:
        return frozenset(name.lstrip("+") for name in control.read_text().split())
    except OSError:
        return frozenset()


def _settings(limits: ResourceLimits) -> dict[str, str]:
    # A little above the shell's own limit, which gives the better message, plus room for the sandbox's own processes.
    return {
        "memory.max": str(limits.memory_bytes),
        "memory.swap.max": "0",
        "memory.limit_in_bytes": str(limits.memory_bytes),
        "pids.max": str(limits.processes + 16),
        "cpu.weight": str(_CPU_WEIGHT),
    }
