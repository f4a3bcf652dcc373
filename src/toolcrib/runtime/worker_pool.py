"""Runs functions in worker processes: killed at a deadline, limited in memory, shared fairly between accounts."""

import asyncio
import marshal
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from toolcrib.core import errors
from toolcrib.core.errors import Overloaded, TooCostly, ToolcribError
from toolcrib.runtime.fair_queue import FairQueue
from toolcrib.runtime.worker_program import read_message, write_message

T = TypeVar("T")

# CPU time. On a busy machine a worker may take longer by the clock.
SECONDS: Final = 5.0
_BY_THE_CLOCK: Final = 10
AT_ONCE: Final = max(2, min(4, os.cpu_count() or 2))
_PROGRAM: Final = "toolcrib.runtime.worker_program"

# Each thread has its own worker and waits for it; the threads themselves compute nothing.
_threads = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="worker")
_own = threading.local()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()


async def in_worker(work: Callable[..., T], *arguments: Any, seconds: float = SECONDS) -> T:
    """Run ``work`` in a worker process and return its result.

    ``work`` is a module-level function, or a partial call of one. Its result is a plain value: a number, a string,
    bytes, or a list, tuple or dict of them; of a named tuple, its values come back. Modules that import quickly make
    workers start quickly.

    Raises:
        ToolcribError: Raised by ``work``.
        TooCostly: It took too much time or memory.
    """
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault(loop, FairQueue(AT_ONCE, what="comparisons and the like"))
    job = _Job((work, arguments), seconds)
    async with turns.turn():
        try:
            return await loop.run_in_executor(_threads, job.run)
        except asyncio.CancelledError:
            job.end()
            raise


class _Job:
    """One function call, in the worker of the thread that runs it."""

    def __init__(self, call: tuple[Callable[..., Any], tuple[Any, ...]], seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        # Set while it runs. The lock keeps a finished job from killing the worker of the next.
        self._worker: _Worker | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def run(self) -> Any:
        worker = _workers_of_this_thread()
        with self._lock:
            if self._is_over:
                raise Overloaded("The caller no longer waits for this.")
            self._worker = worker
        clock = threading.Timer(self._seconds * _BY_THE_CLOCK, self.end)
        clock.start()
        try:
            answer = worker.ask((self._seconds, pickle.dumps(self._call)))
        except (OSError, EOFError):
            _own.worker = None
            worker.reap()
            raise TooCostly(
                f"This exceeds the time limit of {self._seconds:.0f} s or the memory limit of one call."
            ) from None
        finally:
            clock.cancel()
            with self._lock:
                self._worker = None
        return _result_of(answer)

    def end(self) -> None:
        """Kill the work, whatever its state. The result is no longer needed."""
        with self._lock:
            self._is_over = True
            if self._worker is not None:
                self._worker.kill()


class _Worker:
    """A process, and the pipes to it."""

    def __init__(self) -> None:
        # Isolated: neither the working directory nor the environment affects imports.
        command = [sys.executable, "-I", "-m", _PROGRAM]
        self._process = subprocess.Popen(  # noqa: S603 - fixed arguments
            command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: tuple[Any, ...]) -> Any:
        """Send a request and return the response. Raises ``EOFError`` or ``OSError`` if the process ends instead."""
        assert self._process.stdin is not None and self._process.stdout is not None
        write_message(self._process.stdin, marshal.dumps(question))
        if (answer := read_message(self._process.stdout)) is None:
            raise EOFError
        # Not pickle: the worker has read untrusted input.
        return marshal.loads(answer)  # noqa: S302 - written by the worker program

    def kill(self) -> None:
        self._process.kill()

    def reap(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()


def _workers_of_this_thread() -> _Worker:
    worker: _Worker | None = getattr(_own, "worker", None)
    if worker is not None and worker.is_alive:
        return worker
    if worker is not None:
        worker.reap()
        _own.worker = None
    try:
        worker = _own.worker = _Worker()
    except OSError as error:
        raise Overloaded(f"Cannot start a worker process: {error.strerror}. Try again in a moment.") from None
    return worker


def _result_of(answer: Any) -> Any:
    match answer:
        case ("done", result):
            return result
        case ("failed", str(kind), str(message), dict(fields)):
            raise _error(kind, message, fields)
        case ("costly",):
            raise TooCostly("This exceeds the memory limit of one call.")
        case _:
            raise RuntimeError(f"A worker failed: {answer}")


def _error(kind: str, message: str, fields: dict[str, str]) -> ToolcribError:
    """Rebuild the error that was raised in the worker."""
    error: ToolcribError = getattr(errors, kind).__new__(getattr(errors, kind))
    ToolcribError.__init__(error, message, fields=fields)
    return error
