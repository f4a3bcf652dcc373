"""A process that commits a change in the database and dies at a chosen step of applying it to disk."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.faults.processes import FORKED, Site, engine_at
from toolcrib.core.callers import Caller
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.tool_calls import ToolCall
from toolcrib.workspace.changes import commit
from toolcrib.workspace.fs import mount_writer

# The process did every step and died before it could record that in the database.
ALL_STEPS_DONE = 77
_NEVER_APPLIED = 78
_NAMES = ("write", "fchmod", "fsync", "rename", "unlink", "rmdir", "mkdir", "chmod", "utime", "symlink")
_CHANGING = [*((os, name) for name in _NAMES), (mount_writer, "renameat2")]


@dataclass(frozen=True)
class Doomed:
    """A call, and how many steps on disk its process does before it dies."""

    site: Site
    caller: Caller
    call: ToolCall
    steps: int


def crash(doomed: Doomed) -> bool:
    """Make the call in a process that it kills. Return True if all steps were done before: there is no later crash."""
    process = FORKED.Process(target=_die, args=(doomed,), daemon=True)
    process.start()
    process.join()
    assert process.exitcode in (-signal.SIGKILL, ALL_STEPS_DONE), f"ended with {process.exitcode}"
    return process.exitcode == ALL_STEPS_DONE


def _die(doomed: Doomed) -> None:
    _Death(doomed.steps).lie_in_wait()
    asyncio.run(_call(doomed))
    os._exit(_NEVER_APPLIED)


async def _call(doomed: Doomed) -> None:
    async with engine_at(doomed.site) as engine:
        await engine.executor.execute(doomed.call, doomed.caller)


class _Death:
    """Raised when the disk is changed more than ``steps`` times. Reads are no steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._applying = False

    def lie_in_wait(self) -> None:
        for module, name in _CHANGING:
            _replace(module, name, self._counted)
        os.open = self._counted(os.open, when=lambda _, flags, *__: bool(flags & os.O_CREAT))
        _replace(commit, "apply", self._fatal)

    def begin(self) -> None:
        """Count from here on, whatever changes the disk."""
        self._applying = True

    def end(self) -> None:
        self._applying = False

    def _counted(self, real: Callable[..., Any], *, when: Callable[..., bool] | None = None) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._applying and (when is None or when(*arguments)):
                if self._left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                self._left -= 1
            return real(*arguments, **options)

        return counted

    def _fatal(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def apply_and_die(*arguments: Any) -> None:
            self._applying = True
            apply(*arguments)
            os._exit(ALL_STEPS_DONE)

        return apply_and_die


def _replace(module: ModuleType, name: str, wrapped: Callable[[Any], Any]) -> None:
    setattr(module, name, wrapped(getattr(module, name)))


def crash_rebuild(site: Site, workspace_id: WorkspaceId, *, steps: int) -> bool:
    """Rebuild a lost tree in a process that is killed after some steps on disk. Return True if it came to its end."""
    process = FORKED.Process(target=_die_in_rebuild, args=(site, workspace_id, steps), daemon=True)
    process.start()
    process.join()
    assert process.exitcode in (-signal.SIGKILL, ALL_STEPS_DONE), f"ended with {process.exitcode}"
    return process.exitcode == ALL_STEPS_DONE


def _die_in_rebuild(site: Site, workspace_id: WorkspaceId, steps: int) -> None:
    asyncio.run(_rebuild(site, workspace_id, _Death(steps)))
    os._exit(ALL_STEPS_DONE)


async def _rebuild(site: Site, workspace_id: WorkspaceId, death: _Death) -> None:
    async with engine_at(site) as engine:
        death.lie_in_wait()
        death.begin()
        await engine.workspace_services.sync.trees.complete(workspace_id)
        death.end()
