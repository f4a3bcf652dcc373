"""How much a command may use, and the watcher that ends it when it uses more. Knows processes by their numbers."""

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Final, Self

from toolcrib.sandbox.seccomp import LARGEST_SHARED_MAPPING

MIB: Final = 1 << 20
_EVERY_SECONDS: Final = 0.2
# A command that keeps more tasks running than this at once gets only what nobody else wants of the processors.
MOST_EAGER: Final = max(16, 4 * (os.cpu_count() or 1))
_PRIVATE: Final = re.compile(r"^(?:RssAnon|VmSwap|HugetlbPages):\s+(\d+) kB$", re.MULTILINE)
_SHARED: Final = re.compile(rb"^\S+ \S+ \S+ (\S+ \d+) +/dev/zero \(deleted\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ResourceLimits:
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


async def watch(
    pid: int, folders: Iterable[Path], limits: ResourceLimits, stop: Callable[[str], None], *, grouped: bool = False
) -> None:
    """Look at a process tree and what it writes, until cancelled or the first excess, which ``stop`` is told.

    ``grouped`` if it is in a control group, which counts the memory that processes share.
    """
    disk = _DiskUsage(tuple(folders), limits)

    def excess() -> str | None:
        return _process_excess(pid, limits, grouped=grouped) or disk.excess()

    while True:
        began = monotonic()
        # Not in the event loop: a command can make looking at it take long.
        if reason := await asyncio.to_thread(excess):
            stop(reason)
            return
        # A long look is followed by a pause as long, so that watching never takes more than half a core.
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


def _private_memory(pid: int) -> int:
    """What a process has for itself, in memory or swapped out. What it maps of files is the files'."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(kilobytes) << 10 for kilobytes in _PRIVATE.findall(status))


def _shared_mappings(pid: int) -> set[bytes]:
    """The inodes of memory that a process shares with others and that is no file's.

    Each counts as the most that it can hold: how much of it is there, mapped or not, nobody can see from here.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return set(_SHARED.findall(maps))


def _runnable(pid: int) -> list[int]:
    """The tasks of a process that want the processor now."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            if b") R " in Path(f"/proc/{pid}/task/{task}/stat").read_bytes():
                found.append(int(task))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def _demote(tasks: Iterable[int]) -> None:
    """Let them run when nobody else wants to, for good: their children too. None of them can take it back."""
    for task in tasks:
        with suppress(ProcessLookupError, PermissionError):
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))


class DiskGrowth:
    """How much trees have grown on which a program works live. Counted only when their file system has lost much room:

    what others write there costs a count, and ends nothing.
    """

    def __init__(self, folders: Iterable[Path], limits: ResourceLimits) -> None:
        self._limits = limits
        self._disk = _DiskUsage(tuple(folders), limits)
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


class _DiskUsage:
    """What lies in some folders. What cannot be looked into is judged by what is gone from the file system."""

    def __init__(self, folders: tuple[Path, ...], limits: ResourceLimits) -> None:
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


# Limits that the kernel itself enforces, where we may make control groups. Elsewhere the watcher stands alone.

_MOUNT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = frozenset({"memory", "pids"})
_TRIES: Final = 50
# By which systemd marks the groups of units with Delegate=.
_DELEGATED: Final = "user.delegate"
# Of 100, which everybody has.
_CPU_WEIGHT: Final = 20


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One command's control group: a folder in the unified hierarchy, or one in each of the two older ones."""

    folders: tuple[Path, ...]

    @classmethod
    def make(cls, limits: ResourceLimits) -> Self | None:
        """A fresh group with these limits; None where we may not make one."""
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
        """The files by which a process enters: it writes 0 there, for itself.

        Through the older hierarchies' door for threads one that enters by itself waits for nobody. Whoever moves
        another waits until all processors have taken note of it: some 10 ms.
        """
        return tuple(
            str(folder / name)
            for folder in self.folders
            for name in ("tasks" if (folder / "tasks").exists() else "cgroup.procs",)
        )

    async def remove(self) -> None:
        """Once its processes are dead; the kernel may need a moment to let go of the last."""
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
    """The folders in which we may make groups with limits of memory and processes; none if we may not."""
    hierarchies = _hierarchies()
    unified = delegated(hierarchies[""], _MOUNT) if "" in hierarchies else None
    if unified:
        return (unified,)
    older = tuple(hierarchies[name] for name in sorted(_NEEDED) if name in hierarchies)
    if len(older) == len(_NEEDED) and all(os.access(folder, os.W_OK) for folder in older):
        return older
    return ()


def _hierarchies() -> dict[str, Path]:
    """Our own group in each hierarchy, by controller; the unified one has no name."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found[""] = _MOUNT / path.lstrip("/")
        for controller in filter(None, controllers.split(",")):
            found[controller] = _MOUNT / controller / path.lstrip("/")
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def delegated(group: Path, mount: Path) -> Path | None:
    """Where a server that is in ``group`` of the unified hierarchy may make groups with limits; none if nowhere.

    A group that holds processes can give no controllers to groups in it, unless it is the hierarchy's root. So whoever
    delegates puts the server into a group of its own, and the one around it is where commands get theirs.
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
    # Root may write everywhere, also where systemd alone has the say.
    try:
        return os.getxattr(group, _DELEGATED) == b"1"
    except OSError:
        return False


def _enabled(group: Path) -> frozenset[str]:
    """What groups in this one can limit, once we have asked for it."""
    control = group / "cgroup.subtree_control"
    for controller in ("memory", "pids", "cpu"):
        # EBUSY where processes are in the group; ENOENT where the controller is not there.
        with suppress(OSError), control.open("a") as file:
            file.write(f"+{controller}\n")
    try:
        return frozenset(name.lstrip("+") for name in control.read_text().split())
    except OSError:
        return frozenset()


def _settings(limits: ResourceLimits) -> dict[str, str]:
    # A little above the shell's own limit, which gives the better message, and room for what holds the command.
    return {
        "memory.max": str(limits.memory_bytes),
        "memory.swap.max": "0",
        "memory.limit_in_bytes": str(limits.memory_bytes),
        "pids.max": str(limits.processes + 16),
        "cpu.weight": str(_CPU_WEIGHT),
    }
