"""Watches the event loop from a thread: what blocks it for too long is logged with the loop's stack."""

import asyncio
import json
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

LIMIT_SECONDS: Final = 0.25
# Each ping wakes two threads. Of the stalls below half a second, some are missed.
_POLL_SECONDS: Final = 0.25
_POLL_SECONDS_WHEN_WRITTEN: Final = 0.02
_STEP_SECONDS: Final = 0.02
# For log entries; the file gets all stalls.
_LOG_EVERY_SECONDS: Final = 10.0
_MOST_FRAMES: Final = 30

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoopStall:
    """The event loop was blocked for ``seconds``.

    ``cpu_seconds``: its own thread computed. ``queued_seconds``: it was runnable, but the machine ran something else.
    The rest of the time it slept: in a system call, or because another thread held the interpreter lock.
    """

    at: float
    seconds: float
    cpu_seconds: float
    queued_seconds: float
    stack: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        """Whether our own code caused the stall, not a busy machine."""
        return self.cpu_seconds > LIMIT_SECONDS


class LoopWatchdog:
    """Pings the loop repeatedly. ``count`` and ``worst_cpu_seconds`` summarize the stalls."""

    def __init__(self, *, file: Path | None = None) -> None:
        self.count = 0
        self.worst_cpu_seconds = 0.0
        self._file = file
        self._poll_seconds = _POLL_SECONDS if file is None else _POLL_SECONDS_WHEN_WRITTEN
        self._ended = threading.Event()
        self._logged = float("-inf")

    @contextmanager
    def watching(self) -> Iterator["LoopWatchdog"]:
        """Watch the running loop of this thread while the context lasts."""
        loop, thread = asyncio.get_running_loop(), threading.current_thread()
        watcher = threading.Thread(target=self._watch, args=(loop, thread), name="loop-watchdog", daemon=True)
        watcher.start()
        try:
            yield self
        finally:
            self._ended.set()
            watcher.join()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        while not self._ended.wait(self._poll_seconds):
            answered = threading.Event()
            asked = _Clocks.of(thread)
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                # The loop is closed already.
                return
            if not answered.wait(LIMIT_SECONDS):
                self._wait_out(answered, asked, thread)

    def _wait_out(self, answered: threading.Event, asked: "_Clocks", thread: threading.Thread) -> None:
        """Wait until the loop answers.

        The stack is from when it exceeded the CPU limit, or from the start of the wait.
        """
        assert thread.ident is not None
        stack = _stack_of(thread.ident)
        was_ours = False
        while not answered.wait(_STEP_SECONDS) and not self._ended.is_set():
            if not was_ours and _Clocks.of(thread).cpu - asked.cpu > LIMIT_SECONDS:
                was_ours, stack = True, _stack_of(thread.ident)
        now = _Clocks.of(thread)
        self._report(
            LoopStall(
                at=time.time(),
                seconds=round(now.wall - asked.wall, 3),
                cpu_seconds=round(now.cpu - asked.cpu, 3),
                queued_seconds=round(now.queued - asked.queued, 3),
                stack=stack,
            )
        )

    def _report(self, stall: LoopStall) -> None:
        self.worst_cpu_seconds = max(self.worst_cpu_seconds, stall.cpu_seconds)
        self.count += stall.is_ours
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(stall)) + "\n")
        now = time.monotonic()
        if stall.is_ours and now - self._logged > _LOG_EVERY_SECONDS:
            self._logged = now
            fields = {name: value for name, value in asdict(stall).items() if name not in ("at", "stack")}
            _log.warning("event_loop.stalled", **fields, stalls=self.count, stack="".join(stall.stack))


@dataclass(frozen=True, slots=True)
class _Clocks:
    """The clocks of a thread, in seconds."""

    wall: float
    cpu: float
    queued: float

    @classmethod
    def of(cls, thread: threading.Thread) -> "_Clocks":
        """Read the clocks."""
        assert thread.ident is not None and thread.native_id is not None
        cpu = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        return cls(time.monotonic(), cpu, _queued(thread.native_id))


def _queued(thread_id: int) -> float:
    """Return how long the thread waited for a CPU; 0 where the kernel does not count it."""
    try:
        return int(Path(f"/proc/self/task/{thread_id}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _stack_of(ident: int) -> tuple[str, ...]:
    # Documented for this purpose, despite its name.
    frame: FrameType | None = sys._current_frames().get(ident)
    return tuple(traceback.format_stack(frame)[-_MOST_FRAMES:]) if frame is not None else ()
