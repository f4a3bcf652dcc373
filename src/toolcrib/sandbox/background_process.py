"""Processes in the sandbox that run on: read by offset, written to and stopped. None outlives the server.

A background process sees the live tree and changes it directly; its starter imports the changes. Masked files are
covered in its view. The server ends it when a masked file is replaced underneath its cover, or when a guard finds a
problem. A process can run on the views of a transaction instead; it ends before the transaction.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Final

from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import HostContact, SandboxCommand, end, start
from toolcrib.sandbox.contained_process import ContainedProcess, SpawnRequest
from toolcrib.sandbox.live_view import LiveView
from toolcrib.sandbox.resource_limits import Cgroup, DiskGrowth, KeptUsage, watch
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.transaction import Transaction

KEPT_BYTES: Final = 1_000_000
_GUARD_SECONDS: Final = 0.1
# The share of a processor that the checks may use.
_GUARD_SHARE: Final = 0.25

Guard = Callable[[], str | None]
"""Called repeatedly in a thread while a process runs. Returns why the process must end, or ``None``."""


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """Output from ``offset`` on. ``missed`` bytes before it were dropped; continue with ``next``."""

    data: bytes
    offset: int
    next: int
    missed: int


def pause_after(spent: float) -> float:
    """Return how long to pause after a check, by the CPU time it took: waiting for a busy processor does not count."""
    return max(_GUARD_SECONDS, spent / _GUARD_SHARE)


class BackgroundSandbox:
    """Starts background processes, and ends all of them with the server."""

    def __init__(self, sandbox: Sandbox, staging: Path) -> None:
        self._sandbox = sandbox
        self._staging = staging
        self._processes: set[SandboxedProcess] = set()

    async def close(self) -> None:
        """Stop all processes."""
        await asyncio.gather(*(process.stop("the server stops") for process in self._processes))

    async def start(
        self,
        command: SandboxCommand,
        mounts: Sequence[ViewMount],
        *,
        guard: Guard = lambda: None,
        emit: Callable[[bytes], None] = lambda _: None,
    ) -> "SandboxedProcess":
        """Start a process on the live mounts.

        It has no time limit, but all other limits. ``emit`` receives its output.
        """
        await self._sandbox.require()
        if command.hosts:
            raise ToolFailed("Background processes have no network. Run it without hosts.")
        process = SandboxedProcess(command, guard=guard, emit=emit, at_end=self._processes.discard)
        await process.begin(self._sandbox, mounts, self._staging)
        if process.is_running:
            self._processes.add(process)
        return process


@asynccontextmanager
async def running(
    transaction: Transaction, command: SandboxCommand, *, on_contact: Callable[[HostContact], None] = lambda _: None
) -> AsyncIterator["SandboxedProcess"]:
    """Run a process on the views of a transaction while the context lasts. It has no time limit.

    Args:
        on_contact: Receives every host that it contacts, or is denied.
    """
    async with transaction.reaching(command.hosts, on_contact):
        process = SandboxedProcess(command)
        await process.begin_in(transaction)
        try:
            yield process
        finally:
            await asyncio.shield(process.stop("its session ended"))


class SandboxedProcess:
    """One process. It is reachable only through the reference that ``start`` or ``running`` returns.

    Attributes:
        exit_code: None while it runs, and if the server ended it.
        stopped: Why the server ended it, if it did.
        written: The number of bytes that it has output.
    """

    def __init__(
        self,
        command: SandboxCommand,
        *,
        guard: Guard = lambda: None,
        emit: Callable[[bytes], None] = lambda _: None,
        at_end: Callable[["SandboxedProcess"], None] = lambda _: None,
    ) -> None:
        self.exit_code: int | None = None
        self.stopped: str | None = None
        self.written = 0
        self._command = command
        self._guard = guard
        self._emit = emit
        self._at_end = at_end
        self._contained: ContainedProcess | None = None
        self._group: Cgroup | None = None
        self._kept = bytearray()
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether any of its processes runs."""
        return not self._ended.is_set()

    def output(self, offset: int = 0, *, most: int = 100_000) -> OutputChunk:
        """Return output from ``offset`` on, at most ``most`` bytes."""
        first = self.written - len(self._kept)
        begin = min(max(offset, first), self.written)
        data = bytes(self._kept[begin - first : begin - first + most])
        return OutputChunk(data, begin, begin + len(data), missed=max(0, begin - offset))

    async def wait_for_output(self, offset: int) -> OutputChunk:
        """Wait for output after ``offset``, or for the end of the process."""
        while self.written <= offset and self.is_running:
            self._news.clear()
            await self._news.wait()
        return self.output(offset, most=KEPT_BYTES)

    def write(self, data: bytes) -> int:
        """Write to its standard input without blocking. Returns how many bytes it accepted."""
        if self._contained is None or self._contained.input is None:
            raise ToolFailed("The input of this process was closed. Start another.")
        try:
            return os.write(self._contained.input, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ToolFailed("The process no longer reads input.") from None

    def end_input(self) -> None:
        """Close its standard input."""
        if self._contained:
            self._contained.end_input()

    async def stop(self, reason: str = "stopped on request") -> None:
        """Kill it, and wait for its end."""
        self._end(reason)
        await self.wait()

    async def wait(self) -> None:
        """Wait until all of its processes have ended."""
        await self._ended.wait()

    async def begin(self, sandbox: Sandbox, mounts: Sequence[ViewMount], staging: Path) -> None:
        """Start it on the live mounts."""
        command = self._command
        view = LiveView(mounts, staging)
        try:
            await asyncio.to_thread(view.prepare)
            request = view.request(sandbox.binary, command.argv(reads_input=True), command.environment, command.cwd)
            # Through an overlay, a Unix socket of the tree is another socket. On the live tree it would reach a
            # listening daemon.
            contained = await self._start(request, view.require_laid, unix_sockets=False)
        except BaseException:
            await view.discard()
            raise
        self._task = asyncio.create_task(self._live(contained, view.written, live=view))

    async def begin_in(self, transaction: Transaction) -> None:
        """Start it on the views of a transaction."""
        contained = await self._start(transaction.request(self._command, reads_input=True))
        self._task = asyncio.create_task(self._live(contained, transaction.written, kept=transaction.kept_usage()))

    async def _start(
        self, request: SpawnRequest, check: Callable[[int], None] = lambda _: None, *, unix_sockets: bool = True
    ) -> ContainedProcess:
        """Start it and let it run, after ``check`` of a process inside."""
        self._group = Cgroup.make(self._command.limits)
        contained = self._contained = start(request, self._group, unix_sockets=unix_sockets)
        try:
            contained.listen(self._take)
            await contained.ready.wait()
            if (first := await contained.first_inside()) is not None:
                await asyncio.to_thread(check, first)
            await contained.admit()
        except BaseException:
            await end(contained, self._group)
            raise
        return contained

    async def _live(
        self,
        contained: ContainedProcess,
        written: Sequence[Path],
        *,
        kept: Sequence[KeptUsage] = (),
        live: LiveView | None = None,
    ) -> None:
        limits, grouped = self._command.limits, self._group is not None
        watching = [
            asyncio.create_task(watch(contained.pid, written, limits, self._end, kept=kept, grouped=grouped)),
            *([asyncio.create_task(self._keep_guard(live))] if live else []),
        ]
        try:
            code = await contained.ended()
            self.exit_code = None if self.stopped else code
        finally:
            for task in watching:
                task.cancel()
            contained.close()
            if self._group:
                await self._group.remove()
            if live:
                await live.discard()
            self._ended.set()
            self._news.set()
            self._at_end(self)

    async def _keep_guard(self, view: LiveView) -> None:
        """Check repeatedly.

        A file renamed over a covered one from outside removes its cover, and no event reports that.
        """
        growth = await asyncio.to_thread(DiskGrowth, view.worked_on, self._command.limits)
        while True:
            reason, spent = await asyncio.to_thread(self._amiss, view, growth)
            if reason:
                self._end(reason)
                return
            await asyncio.sleep(pause_after(spent))

    def _amiss(self, view: LiveView, growth: DiskGrowth) -> tuple[str | None, float]:
        """Return why the process must end, if it must, and the CPU time of the check."""
        began = thread_time()
        if replaced := view.uncovered():
            return f"a masked file was replaced while it ran ({replaced}); start it again", 0.0
        return self._guard() or growth.excess(), thread_time() - began

    def _end(self, reason: str) -> None:
        if self.is_running and self._contained is not None:
            self.stopped = self.stopped or reason
            self._contained.kill()

    def _take(self, piece: bytes) -> None:
        self.written += len(piece)
        self._kept += piece
        self._emit(piece)
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        self._news.set()
