"""Processes that go on: started on the live tree, read by offset, written to, stopped. None outlives the server.

Unlike a command of a transaction they see the tree as it is and change it as they go; whoever starts one takes in what
it did. Masked files are covered in their view, and a process is ended when one is replaced underneath its cover, or
when a guard of whoever started it finds something amiss.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, thread_time
from typing import Final, Self
from uuid import uuid4

from toolcrib.core.errors import NotFound, ToolFailed
from toolcrib.sandbox.bubblewrap import BindMount, ViewMount, arguments
from toolcrib.sandbox.command import SandboxCommand, StartedProcess, admit, start
from toolcrib.sandbox.fork_client import SpawnRequest, staged
from toolcrib.sandbox.live_view import LiveView
from toolcrib.sandbox.resource_limits import Cgroup, DiskGrowth, watch
from toolcrib.sandbox.sandbox import Sandbox

KEPT_BYTES: Final = 1_000_000
_GUARD_SECONDS: Final = 0.1
# Looking takes no more than this part of a processor.
_GUARD_SHARE: Final = 0.25

Guard = Callable[[], str | None]
"""Asked now and then, in a thread, while a process runs; what it says is why the process must end."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """What is known of a background process. ``exit_code`` is None while it runs, and if it was ended by us."""

    id: str
    owner: str
    command: str
    running: bool
    exit_code: int | None
    stopped: str | None
    seconds: float
    written: int


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """Output from ``offset`` on; ``missed`` bytes before it are kept no more. Ask for ``next`` next."""

    data: bytes
    offset: int
    next: int
    missed: int


def pause_after(spent: float) -> float:
    """How long nobody looks after a look. By the processor's time: that others keep it busy is no reason to wait."""
    return max(_GUARD_SECONDS, spent / _GUARD_SHARE)


class BackgroundSandbox:
    """The background processes of one server. ``owner`` is whatever they end with: a session."""

    def __init__(self, sandbox: Sandbox, staging: Path) -> None:
        self._sandbox = sandbox
        self._staging = staging
        self._processes: dict[str, _SandboxedProcess] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._end(list(self._processes.values()), "the server ends")

    async def start(
        self,
        command: SandboxCommand,
        zones: Sequence[ViewMount],
        *,
        owner: str,
        name: str | None = None,
        guard: Guard = lambda: None,
        emit: Callable[[bytes], None] = lambda _: None,
    ) -> ProcessStatus:
        """Start it on the live zones. It has no time limit; its other limits hold. ``emit`` gets what it says."""
        isolation = await self._sandbox.probe()
        isolation.require()
        if command.hosts:
            raise ToolFailed("A background process gets no network yet. Run it without hosts.")
        process = _SandboxedProcess(name or uuid4().hex, owner, command, guard, emit)
        await process.begin(self._sandbox, zones, self._staging)
        self._processes[process.id] = process
        return process.state

    def list(self, owner: str) -> tuple[ProcessStatus, ...]:
        return tuple(process.state for process in self._processes.values() if process.owner == owner)

    def state(self, process: str, *, owner: str) -> ProcessStatus:
        return self._require(process, owner).state

    def output(self, process: str, *, owner: str, offset: int = 0, most: int = 100_000) -> OutputChunk:
        return self._require(process, owner).piece(offset, most)

    async def wait_for_output(self, process: str, *, owner: str, offset: int) -> OutputChunk:
        """Wait until there is output after ``offset``, or the process has ended."""
        found = self._require(process, owner)
        await found.news(offset)
        return found.piece(offset, KEPT_BYTES)

    def write(self, process: str, data: bytes, *, owner: str) -> int:
        """Write to its standard input; how many bytes it took. Nothing waits for a process that does not read."""
        return self._require(process, owner).write(data)

    def close_stdin(self, process: str, *, owner: str) -> None:
        self._require(process, owner).end_input()

    async def stop(self, process: str, *, owner: str, reason: str = "it was asked to stop") -> ProcessStatus:
        found = self._require(process, owner)
        await self._end([found], reason)
        return found.state

    async def ended(self, process: str, *, owner: str) -> ProcessStatus:
        """Wait until nothing of it runs."""
        found = self._require(process, owner)
        await found.ended.wait()
        return found.state

    def remove(self, process: str, *, owner: str) -> None:
        """Let go of what one that has ended said."""
        if self._require(process, owner).ended.is_set():
            del self._processes[process]

    async def stop_all(self, owner: str) -> None:
        """A session ended: end what it started, and forget it."""
        ending = [process for process in self._processes.values() if process.owner == owner]
        await self._end(ending, "its session ended")
        for process in ending:
            self._processes.pop(process.id, None)

    def _require(self, process: str, owner: str) -> "_SandboxedProcess":
        found = self._processes.get(process)
        # A foreign one is answered like an unknown one.
        if found is None or found.owner != owner:
            raise NotFound(f"No background process {process} is known here. List them to see which are.")
        return found

    async def _end(self, processes: Sequence["_SandboxedProcess"], reason: str) -> None:
        for process in processes:
            process.end(reason)
        await asyncio.gather(*(process.ended.wait() for process in processes))


class _SandboxedProcess:
    """One of them."""

    def __init__(
        self, number: str, owner: str, command: SandboxCommand, guard: Guard, emit: Callable[[bytes], None]
    ) -> None:
        self.id = number
        self._guard = guard
        self._emit = emit
        self.owner = owner
        self.ended = asyncio.Event()
        self._command = command
        self._began = monotonic()
        self._seconds: float | None = None
        self._contained: StartedProcess | None = None
        self._exit_code: int | None = None
        self._reason: str | None = None
        self._kept = bytearray()
        self._written = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> ProcessStatus:
        return ProcessStatus(
            self.id,
            self.owner,
            self._command.text,
            running=not self.ended.is_set(),
            exit_code=self._exit_code,
            stopped=self._reason,
            seconds=self._seconds or monotonic() - self._began,
            written=self._written,
        )

    async def begin(self, sandbox: Sandbox, zones: Sequence[ViewMount], staging: Path) -> None:
        view = await LiveView.lay(zones, staging)
        group: Cgroup | None = None
        try:
            group = Cgroup.make(self._command.limits)
            self._contained = self._started(sandbox.binary, view, group)
            self._contained.listen(self._take)
            await self._contained.ready.wait()
            if (first := await self._contained.first_inside()) is not None:
                await asyncio.to_thread(view.require_laid, first)
            await admit(self._contained)
        except BaseException:
            if self._contained:
                self._contained.kill()
                await self._contained.ended()
                self._contained.close()
            await view.discard()
            raise
        self._task = asyncio.create_task(self._live(self._contained, view, group))

    def _started(self, binary: str, view: LiveView, group: Cgroup | None) -> StartedProcess:
        command = self._command
        argv, environment = command.argv(reads_input=True), command.environment
        cwd = view.working_directory(command.cwd)
        binds: Sequence[BindMount] = view.binds()

        def words(program: int, status: int) -> SpawnRequest:
            inner = arguments(
                binary,
                argv,
                binds=binds,
                cwd=cwd,
                environment=environment,
                seccomp=program,
                status=status,
            )
            return staged(inner, view.layers(), staging=view.folder, root_for=view.owner)

        # Through an overlay a socket of the tree is another socket; on the live tree it is the daemon's that listens.
        return start(words, group, unix_sockets=False)

    async def _live(self, contained: StartedProcess, view: LiveView, group: Cgroup | None) -> None:
        watching = [
            asyncio.create_task(
                watch(contained.pid, view.written, self._command.limits, self.end, grouped=group is not None)
            ),
            asyncio.create_task(self._keep_guard(view)),
        ]
        try:
            code = await contained.ended()
            self._exit_code = None if self._reason else code
        finally:
            for task in watching:
                task.cancel()
            contained.close()
            if group:
                await group.remove()
            await view.discard()
            self._seconds = monotonic() - self._began
            self.ended.set()
            self._news.set()

    async def _keep_guard(self, view: LiveView) -> None:
        """A file that is renamed over a covered one, from outside, takes its cover away; nothing tells us of it."""
        growth = await asyncio.to_thread(DiskGrowth, view.worked_on, self._command.limits)
        while True:
            reason, spent = await asyncio.to_thread(self._amiss, view, growth)
            if reason:
                self.end(reason)
                return
            await asyncio.sleep(pause_after(spent))

    def _amiss(self, view: LiveView, growth: DiskGrowth) -> tuple[str | None, float]:
        """Why the process must end, if it must, and the processor's time that looking took."""
        began = thread_time()
        if replaced := view.uncovered():
            return f"a masked file was replaced while it ran ({replaced}); start it again", 0.0
        return self._guard() or growth.excess(), thread_time() - began

    def end(self, reason: str) -> None:
        if self.ended.is_set() or self._contained is None:
            return
        self._reason = self._reason or reason
        self._contained.kill()

    def piece(self, offset: int, most: int) -> OutputChunk:
        first = self._written - len(self._kept)
        begin = min(max(offset, first), self._written)
        data = bytes(self._kept[begin - first : begin - first + most])
        return OutputChunk(data, begin, begin + len(data), missed=max(0, begin - offset))

    async def news(self, offset: int) -> None:
        while self._written <= offset and not self.ended.is_set():
            self._news.clear()
            await self._news.wait()

    def write(self, data: bytes) -> int:
        if self._contained is None or self._contained.input is None:
            raise ToolFailed(f"The input of process {self.id} was closed. Start another.")
        try:
            return os.write(self._contained.input, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ToolFailed(f"Process {self.id} reads no input any more.") from None

    def end_input(self) -> None:
        if self._contained:
            self._contained.end_input()

    def _take(self, piece: bytes) -> None:
        self._written += len(piece)
        self._kept += piece
        self._emit(piece)
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        self._news.set()
