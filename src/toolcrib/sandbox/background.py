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
from time import monotonic
from typing import Final, Self
from uuid import uuid4

from toolcrib.domain.errors import NotFound, ToolFailed
from toolcrib.sandbox.bubblewrap import Bind, arguments
from toolcrib.sandbox.cgroups import Cgroup
from toolcrib.sandbox.command import Command, Started, admit, start
from toolcrib.sandbox.limits import Growth, watch
from toolcrib.sandbox.live import LiveView
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.stage import Staged, staged
from toolcrib.sandbox.zones import Zone

KEPT_BYTES: Final = 1_000_000
_GUARD_SECONDS: Final = 0.1
# Looking takes no more than this part of the time.
_GUARD_SHARE: Final = 0.1

Guard = Callable[[], str | None]
"""Asked now and then, in a thread, while a process runs; what it says is why the process must end."""


@dataclass(frozen=True, slots=True)
class ProcessState:
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
class Piece:
    """Output from ``offset`` on; ``missed`` bytes before it are kept no more. Ask for ``next`` next."""

    data: bytes
    offset: int
    next: int
    missed: int


class Background:
    """The background processes of one server. ``owner`` is whatever they end with: a session."""

    def __init__(self, sandbox: Sandbox, staging: Path) -> None:
        self._sandbox = sandbox
        self._staging = staging
        self._processes: dict[str, _Process] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._end(list(self._processes.values()), "the server ends")

    async def start(
        self,
        command: Command,
        zones: Sequence[Zone],
        *,
        owner: str,
        name: str | None = None,
        guard: Guard = lambda: None,
        emit: Callable[[bytes], None] = lambda _: None,
    ) -> ProcessState:
        """Start it on the live zones. It has no time limit; its other limits hold. ``emit`` gets what it says."""
        isolation = await self._sandbox.probe()
        isolation.require()
        if command.hosts:
            raise ToolFailed("A background process gets no network yet. Run it without hosts.")
        process = _Process(name or uuid4().hex, owner, command, guard, emit)
        await process.begin(self._sandbox, zones, self._staging)
        self._processes[process.id] = process
        return process.state

    def list(self, owner: str) -> tuple[ProcessState, ...]:
        return tuple(process.state for process in self._processes.values() if process.owner == owner)

    def state(self, process: str, *, owner: str) -> ProcessState:
        return self._require(process, owner).state

    def output(self, process: str, *, owner: str, offset: int = 0, most: int = 100_000) -> Piece:
        return self._require(process, owner).piece(offset, most)

    async def more(self, process: str, *, owner: str, offset: int) -> Piece:
        """Wait until there is output after ``offset``, or the process has ended."""
        found = self._require(process, owner)
        await found.news(offset)
        return found.piece(offset, KEPT_BYTES)

    def write(self, process: str, data: bytes, *, owner: str) -> int:
        """Write to its standard input; how many bytes it took. Nothing waits for a process that does not read."""
        return self._require(process, owner).write(data)

    def end_input(self, process: str, *, owner: str) -> None:
        self._require(process, owner).end_input()

    async def stop(self, process: str, *, owner: str, reason: str = "it was asked to stop") -> ProcessState:
        found = self._require(process, owner)
        await self._end([found], reason)
        return found.state

    async def ended(self, process: str, *, owner: str) -> ProcessState:
        """Wait until nothing of it runs."""
        found = self._require(process, owner)
        await found.ended.wait()
        return found.state

    def forget(self, process: str, *, owner: str) -> None:
        """Let go of what one that has ended said."""
        if self._require(process, owner).ended.is_set():
            del self._processes[process]

    async def stop_all(self, owner: str) -> None:
        """A session ended: end what it started, and forget it."""
        ending = [process for process in self._processes.values() if process.owner == owner]
        await self._end(ending, "its session ended")
        for process in ending:
            self._processes.pop(process.id, None)

    def _require(self, process: str, owner: str) -> "_Process":
        found = self._processes.get(process)
        # A foreign one is answered like an unknown one.
        if found is None or found.owner != owner:
            raise NotFound(f"No background process {process} is known here. List them to see which are.")
        return found

    async def _end(self, processes: Sequence["_Process"], reason: str) -> None:
        for process in processes:
            process.end(reason)
        await asyncio.gather(*(process.ended.wait() for process in processes))


class _Process:
    """One of them."""

    def __init__(self, number: str, owner: str, command: Command, guard: Guard, emit: Callable[[bytes], None]) -> None:
        self.id = number
        self._guard = guard
        self._emit = emit
        self.owner = owner
        self.ended = asyncio.Event()
        self._command = command
        self._began = monotonic()
        self._seconds: float | None = None
        self._contained: Started | None = None
        self._exit_code: int | None = None
        self._reason: str | None = None
        self._kept = bytearray()
        self._written = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> ProcessState:
        return ProcessState(
            self.id,
            self.owner,
            self._command.text,
            running=not self.ended.is_set(),
            exit_code=self._exit_code,
            stopped=self._reason,
            seconds=self._seconds or monotonic() - self._began,
            written=self._written,
        )

    async def begin(self, sandbox: Sandbox, zones: Sequence[Zone], staging: Path) -> None:
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
            await view.drop()
            raise
        self._task = asyncio.create_task(self._live(self._contained, view, group))

    def _started(self, binary: str, view: LiveView, group: Cgroup | None) -> Started:
        command = self._command
        argv, environment = command.argv(reads_input=True), command.environment
        cwd = view.working_directory(command.cwd)
        binds: Sequence[Bind] = view.binds()

        def words(program: int, status: int) -> Staged:
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

        return start(words, group)

    async def _live(self, contained: Started, view: LiveView, group: Cgroup | None) -> None:
        watching = [
            asyncio.create_task(watch(contained.pid, view.written, self._command.limits, self.end)),
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
            await view.drop()
            self._seconds = monotonic() - self._began
            self.ended.set()
            self._news.set()

    async def _keep_guard(self, view: LiveView) -> None:
        """A file that is renamed over a covered one, from outside, takes its cover away; nothing tells us of it."""
        growth = await asyncio.to_thread(Growth, view.worked_on, self._command.limits)
        while True:
            began = monotonic()
            if reason := await asyncio.to_thread(self._amiss, view, growth):
                self.end(reason)
                return
            await asyncio.sleep(max(_GUARD_SECONDS, (monotonic() - began) / _GUARD_SHARE))

    def _amiss(self, view: LiveView, growth: Growth) -> str | None:
        if replaced := view.uncovered():
            return f"a masked file was replaced while it ran ({replaced}); start it again"
        return self._guard() or growth.excess()

    def end(self, reason: str) -> None:
        if self.ended.is_set() or self._contained is None:
            return
        self._reason = self._reason or reason
        self._contained.kill()

    def piece(self, offset: int, most: int) -> Piece:
        first = self._written - len(self._kept)
        begin = min(max(offset, first), self._written)
        data = bytes(self._kept[begin - first : begin - first + most])
        return Piece(data, begin, begin + len(data), missed=max(0, begin - offset))

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
