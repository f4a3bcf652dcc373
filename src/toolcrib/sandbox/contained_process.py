"""One contained process: start, read output, wait and kill."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from toolcrib.sandbox.fork_client import SpawnRequest, spawn

_PIECE: Final = 1 << 16
_PIECES_AT_ONCE: Final = 8
# How long the kernel may take to remove a namespace whose first process is dead.
_BURIAL_SECONDS: Final = 10.0
# The first byte of output, written inside once bubblewrap has set up its processes.
READY: Final = b"\x06"
_DECODER: Final = json.JSONDecoder()


class ContainedProcess:
    """bubblewrap with everything inside. Killing it kills everything: its processes cannot leave their namespace.

    Start and use it in the thread of the event loop: the parent death signal is bound to the starting thread.
    """

    def __init__(self, pid: int, output: int, status: int) -> None:
        self.pid = pid
        # The exit status, once the process was waited for. Until then its pid cannot be reused.
        self.returned: int | None = None
        self._output = output
        self._status = status
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._quiet = asyncio.Event()
        # Set at its first output, or when there will be none.
        self.ready = asyncio.Event()
        self._first: int | None = None
        self._loop.add_reader(self._status, self._meet_first)
        self._met = asyncio.Event()
        self._status_text = b""
        self._status_ended = False
        self._is_over = False

    @classmethod
    def start(
        cls,
        staged: Callable[[int], SpawnRequest],
        *,
        inherit: Sequence[int] = (),
        stdin: int,
    ) -> Self:
        """Start a request. ``staged`` receives the descriptor on which bubblewrap reports its status."""
        output, write_end = os.pipe2(os.O_CLOEXEC)
        status, reported = os.pipe2(os.O_CLOEXEC)
        try:
            pid = spawn(staged(reported), stdin=stdin, output=write_end, inherit=(reported, *inherit))
        except BaseException:
            os.close(output)
            os.close(status)
            raise
        finally:
            os.close(write_end)
            os.close(reported)
        return cls(pid, output, status)

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Pass every piece of output to ``take``, until the last writer has closed it."""
        os.set_blocking(self._output, False)

        def readable() -> None:
            for _ in range(_PIECES_AT_ONCE):
                try:
                    piece = os.read(self._output, _PIECE)
                except BlockingIOError:
                    return
                if not piece:
                    self._loop.remove_reader(self._output)
                    self._quiet.set()
                    self.ready.set()
                    return
                if not self.ready.is_set():
                    piece = piece.removeprefix(READY)
                    self.ready.set()
                take(piece)

        self._loop.add_reader(self._output, readable)

    async def first_inside(self) -> int | None:
        """Return the host pid of the namespace's first process; None if it was never created."""
        await self._met.wait()
        return self._reported().get("child-pid")

    def kill(self) -> None:
        """Kill the process group and the namespace's first process, and with it everything inside."""
        if self.returned is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    async def ended(self) -> int | None:
        """Wait until nothing of it runs and all output was read. Returns None if it was killed or never ran."""
        if not self._is_over:
            await self._over()
        return self._reported().get("exit-code")

    async def _over(self) -> None:
        await readable(self._pidfd)
        self._reap()
        self._meet_first()
        if self._first is not None:
            self.kill()
            async with asyncio.timeout(_BURIAL_SECONDS):
                # The kernel reaps the first process of a namespace only after all the others.
                await readable(self._first)
        await self._quiet.wait()
        self._is_over = True

    def _reap(self) -> None:
        if self.returned is not None:
            return
        # Kill what is not yet tied to it, while its pid cannot be reused.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.returned = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        """Close the descriptors. The caller kills and awaits what still runs first."""
        self._loop.remove_reader(self._output)
        self._loop.remove_reader(self._status)
        for descriptor in (self._output, self._status, self._pidfd, self._first):
            if descriptor is not None:
                os.close(descriptor)
        self._first = None

    def _meet_first(self) -> None:
        """Open a pidfd of the namespace's first process while its pid cannot be reused."""
        report = self._reported()
        if self._met.is_set() or not ("child-pid" in report or self._status_ended):
            return
        self._loop.remove_reader(self._status)
        self._met.set()
        if "child-pid" in report:
            with suppress(ProcessLookupError):
                self._first = os.pidfd_open(report["child-pid"])

    def _reported(self) -> dict[str, int]:
        """Return everything that bubblewrap reported so far: JSON documents, one after the other."""
        os.set_blocking(self._status, False)
        try:
            while piece := os.read(self._status, 4096):
                self._status_text += piece
            self._status_ended = True
        except BlockingIOError:
            pass
        report: dict[str, int] = {}
        rest = self._status_text.decode().lstrip()
        while rest:
            try:
                document, end = _DECODER.raw_decode(rest)
            except json.JSONDecodeError:
                break  # The document is not complete yet.
            report |= document
            rest = rest[end:].lstrip()
        return report


async def readable(descriptor: int) -> None:
    """Wait until a descriptor is readable: data, end of file or, for a pidfd, the end of the process."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
