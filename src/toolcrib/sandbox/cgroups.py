"""Limits that the kernel itself enforces, where we may make control groups. Elsewhere the watcher stands alone."""

import asyncio
import os
import secrets
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self

from toolcrib.sandbox.limits import Limits

_MOUNT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = frozenset({"memory", "pids"})
_TRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One command's control group: a folder in the unified hierarchy, or one in each of the two older ones."""

    folders: tuple[Path, ...]

    @classmethod
    def make(cls, limits: Limits) -> Self | None:
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
    unified = hierarchies.get("")
    if unified and _delegated(unified) >= _NEEDED and os.access(unified, os.W_OK):
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


def _delegated(group: Path) -> frozenset[str]:
    try:
        return frozenset((group / "cgroup.subtree_control").read_text().split())
    except OSError:
        return frozenset()


def _settings(limits: Limits) -> dict[str, str]:
    # A little above the shell's own limit, which gives the better message, and room for what holds the command.
    return {
        "memory.max": str(limits.memory_bytes),
        "memory.swap.max": "0",
        "memory.limit_in_bytes": str(limits.memory_bytes),
        "pids.max": str(limits.processes + 16),
    }
