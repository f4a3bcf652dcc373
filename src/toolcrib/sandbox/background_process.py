"""Background processes in the sandbox: started on the live tree, read by offset, written to and stopped.

Unlike the command of a transaction, a background process sees the live tree and changes it directly; its starter
imports the changes. Masked files are covered in its view. The server ends a process when a masked file is replaced
underneath its cover, or when a guard finds a problem. No process outlives the server.
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
# The share of a processor that the checks may use.
_GUARD_SHARE: Final = 0.25

Guard = Callable[[], str | None]
"""Called repeatedly in a thread while a process runs. Returns why the process must end, or ``None``."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The state of a background process. ``exit_code`` is None while it runs, and if the server ended it."""

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
    """Output from ``offset`` on. ``missed`` bytes before it were dropped; continue with ``next``."""

    data: bytes
    offset: int
    next: int
    missed: int


def pause_after(spent: float) -> float:
    """Return how long to pause after a check, by the CPU time it took: waiting for a busy processor does not count."""
    return max(_GUARD_SECONDS, spent / _GUARD_SHARE)


class BackgroundSandbox:
    """The background processes of one server. Each belongs to an ``owner``, such as a session, and ends with it."""

    def __init__(self, sandbox: Sandbox, staging: Path) -> None:
        self._sandbox = sandbox
        self._staging = staging
        self._processes: dict[str, _SandboxedProcess] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all processes."""
        await self._end(list(self._processes.values()), "the server stops")

    async def start(
        self,
        command: SandboxCommand,
        mounts: Sequence[ViewMount],
        *,
        owner: str,
        name: str | None = None,
        guard: Guard = lambda: None,
        emit: Callable[[bytes], None] = lambda _: None,
    ) -> ProcessStatus:
        """Start a process on the live mounts.

        It has no time limit, but all other limits. ``emit`` receives its output.
        """
        isolation = await self._sandbox.probe()
        isolation.require()
        if command.hosts:
            raise ToolFailed("Background processes have no network. Run it without hosts.")
        process = _SandboxedProcess(name or uuid4().hex, owner, command, guard, emit)
        await process.begin(self._sandbox, mounts, self._staging)
        self._processes[process.id] = process
        return process.state

    def list(self, owner: str) -> tuple[ProcessStatus, ...]:
        """List the processes of an owner."""
        return tuple(process.state for process in self._processes.values() if process.owner == owner)

    def state(self, process: str, *, owner: str) -> ProcessStatus:
        """Return the state of a process."""
        return self._require(process, owner).state

    def output(self, process: str, *, owner: str, offset: int = 0, most: int = 100_000) -> OutputChunk:
        """Return output from ``offset`` on, at most ``most`` bytes."""
        return self._require(process, owner).piece(offset, most)

    async def wait_for_output(self, process: str, *, owner: str, offset: int) -> OutputChunk:
        """Wait for output after ``offset``, or for the end of the process."""
        found = self._require(process, owner)
        await found.news(offset)
        return found.piece(offset, KEPT_BYTES)

    def write(self, process: str, data: bytes, *, owner: str) -> int:
        """Write to its standard input without blocking. Returns how many bytes it accepted."""
        return self._require(process, owner).write(data)

    def close_stdin(self, process: str, *, owner: str) -> None:
        """Close the standard input of a process."""
        self._require(process, owner).end_input()

    async def stop(self, process: str, *, owner: str, reason: str = "stopped on request") -> ProcessStatus:
        """Kill a process and wait for its end."""
        found = self._require(process, owner)
        await self._end([found], reason)
        return found.state

    async def ended(self, process: str, *, owner: str) -> ProcessStatus:
        """Wait until all of its processes have ended."""
        found = self._require(process, owner)
        await found.ended.wait()
        return found.state

    def remove(self, process: str, *, owner: str) -> None:
        """Drop the output of a process that has ended."""
        if self._require(process, owner).ended.is_set():
            del self._processes[process]

    async def stop_all(self, owner: str) -> None:
        """Stop and drop all processes of an ended session."""
        ending = [process for process in self._processes.values() if process.owner == owner]
        await self._end(ending, "its session ended")
        for process in ending:
            self._processes.pop(process.id, None)

    def _require(self, process: str, owner: str) -> "_SandboxedProcess":
        found = self._processes.get(process)
        # A process of another owner is reported like an unknown one.
        if found is None or found.owner != owner:
            raise NotFound(f"There is no background process {process}. List them with `bash_list`.")
        return found

    async def _end(self, processes: Sequence["_SandboxedProcess"], reason: str) -> None:
        for process in processes:
            process.end(reason)
        await asyncio.gather(*(process.ended.wait() for process in processes))


class _SandboxedProcess:
    """One background process."""

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

    async def begin(self, sandbox: Sandbox, mounts: Sequence[ViewMount], staging: Path) -> None:
        view = await LiveView.lay(mounts, staging)
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

        # Through an overlay, a Unix socket of the tree is another socket. On the live tree it would reach a listening
        # daemon.
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
        """Check repeatedly.

        A file renamed over a covered one from outside removes its cover, and no event reports that.
        """
        growth = await asyncio.to_thread(DiskGrowth, view.worked_on, self._command.limits)
        while True:
            reason, spent = await asyncio.to_thread(self._amiss, view, growth)
            if reason:
                self.end(reason)
                return
            await asyncio.sleep(pause_after(spent))

    def _amiss(self, view: LiveView, growth: DiskGrowth) -> tuple[str | None, float]:
        """Return why the process must end, if it must, and the CPU time of the check."""
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
            raise ToolFailed(f"Process {self.id} no longer reads input.") from None

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
