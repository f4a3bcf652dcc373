"""Runs functions in worker processes: killed at a deadline, limited in memory, shared fairly between accounts."""

import asyncio
import marshal
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import structlog

from toolcrib.core import errors
from toolcrib.core.errors import (
    MemoryLimitExceeded,
    Overloaded,
    TimeLimitExceeded,
    ToolcribError,
    WorkerAnswerLost,
    WorkerDied,
)
from toolcrib.runtime.fair_queue import FairQueue
from toolcrib.runtime.worker_answers import AnswerNotAsDeclared, rebuild_for, unwrapped
from toolcrib.runtime.worker_program import MOST_MEMORY, OUT_OF_MEMORY, read_message, write_message

log = structlog.get_logger(__name__)

T = TypeVar("T")

# CPU time. On a busy machine a worker takes longer by the clock.
SECONDS: Final = 5.0
# How much longer. The kernel ends what computes; this ends the wait for a machine without a moment for the worker.
_BY_THE_CLOCK: Final = 30
AT_ONCE: Final = max(2, min(4, os.cpu_count() or 2))
_PROGRAM: Final = "toolcrib.runtime.worker_program"
_ENDS_WITHIN: Final = 5.0
_MOST_ERRORS: Final = 10_000
# Places in the code and what ended it, and no line that could quote what a user wrote.
_STACK_LINE: Final = re.compile(r'\s*File ".*|Fatal Python error: .*|(Current thread|Thread) 0x.*|[\w.]+Error\b')

# Each thread has its own worker and waits for it; the threads themselves compute nothing.
_threads = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="worker")
_own = threading.local()
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()


async def in_worker(work: Callable[..., T], *arguments: Any, seconds: float = SECONDS) -> T:
    """Run ``work`` in a worker process and return its result.

    ``work`` is a module-level function, or a partial call of one. Its return annotation declares the result: numbers,
    strings, bytes, enums, and lists, tuples, named tuples and dicts of them. Modules that import quickly make workers
    start quickly.

    Raises:
        ToolcribError: Raised by ``work``.
        TimeLimitExceeded: It computed for longer than ``seconds``.
        MemoryLimitExceeded: It needed more memory than a worker has.
        WorkerDied: The process ended by itself, twice. That says nothing about the arguments.
        WorkerAnswerLost: Its result cannot be sent, or is not what ``work`` declares.
        Overloaded: Too much waits already, no process can be started, or the machine gave it no time.
    """
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault(loop, FairQueue(AT_ONCE, what="comparisons and the like"))
    job = _Job(work, arguments, seconds)
    async with turns.turn():
        try:
            result: T = await loop.run_in_executor(_threads, job.run)
            return result
        except asyncio.CancelledError:
            job.end()
            raise


class _Job:
    """One function call, in the worker of the thread that runs it."""

    def __init__(self, work: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> None:
        self._work = unwrapped(work)
        self._rebuild = rebuild_for(self._work)
        self._call = (work, arguments)
        self._seconds = seconds
        # Set while it runs. The lock keeps a finished job from killing the worker of the next.
        self._worker: _Worker | None = None
        self._lock = threading.Lock()
        self._is_over = False
        self._is_late = False

    @property
    def name(self) -> str:
        return f"{self._work.__module__}.{self._work.__qualname__}"

    def run(self) -> Any:
        call = pickle.dumps(self._call)
        try:
            answer = self._answer(call)
        except _Died as first:
            # Nothing but the process is lost, so the work is repeated once. Work that ends processes fails again.
            log.warning("worker.died", work=self.name, ended=first.how, stack=first.stack)
            try:
                answer = self._answer(call)
            except _Died as died:
                log.error("worker.died_again", work=self.name, ended=died.how, stack=died.stack)
                raise WorkerDied(
                    f"A worker process of this server ended in the middle of its work ({died.how}), twice. That is a "
                    "failure of the server and says nothing about your files. Try again; if it fails again, ask the "
                    "operator to look for `worker.died` in the log."
                ) from None
        return self._result_of(answer)

    def end(self) -> None:
        """Kill the work, whatever its state. The result is no longer needed."""
        with self._lock:
            self._is_over = True
            if self._worker is not None:
                self._worker.kill()

    def _answer(self, call: bytes) -> Any:
        """Return the worker's answer. Raises ``_Died`` if the process ended for none of its limits."""
        worker = _workers_of_this_thread()
        with self._lock:
            if self._is_over:
                raise Overloaded("The caller no longer waits for this.")
            self._worker = worker
        clock = threading.Timer(self._seconds * _BY_THE_CLOCK, self._end_late)
        clock.start()
        try:
            return worker.ask((self._seconds, call))
        except (OSError, EOFError):
            _own.worker = None
            status, stack = worker.reap()
            if self._is_late:
                raise Overloaded(
                    f"This server is so busy that a computation of at most {self._seconds:.0f} s did not end within "
                    f"{self._seconds * _BY_THE_CLOCK:.0f} s. Try again in a moment."
                ) from None
            if self._is_over:
                raise Overloaded("The caller no longer waits for this.") from None
            if status == -signal.SIGXCPU:
                raise TimeLimitExceeded(
                    f"This takes more than the {self._seconds:.0f} s of computing that one call may use."
                ) from None
            if status == OUT_OF_MEMORY:
                raise _too_much_memory() from None
            raise _Died(_ending(status), stack) from None
        finally:
            clock.cancel()
            with self._lock:
                self._worker = None

    def _end_late(self) -> None:
        self._is_late = True
        self.end()

    def _result_of(self, answer: Any) -> Any:
        match answer:
            case ("done", result):
                try:
                    return self._rebuild(result)
                except AnswerNotAsDeclared as error:
                    raise self._lost(str(error)) from None
            case ("failed", str(kind), str(message), dict(fields)):
                raise _error(kind, message, fields)
            case ("memory",):
                raise _too_much_memory()
            case ("unencodable", str(what)):
                raise self._lost(what)
            case ("bug", str(stack)):
                # The log leaves out the messages of unexpected errors, and the stack would be lost with this one.
                log.error("worker.bug", work=self.name, stack=stack)
                raise RuntimeError(f"{self.name} failed in a worker:\n{stack}")
            case _:
                raise self._lost("an unknown answer")

    def _lost(self, what: str) -> WorkerAnswerLost:
        log.error("worker.answer_lost", work=self.name, what=what)
        return WorkerAnswerLost(
            "A worker process of this server computed a result that it could not send. That is a defect of the server "
            "and says nothing about your files. Ask the operator to look for `worker.answer_lost` in the log, and to "
            "report it."
        )


class _Died(Exception):
    """A worker process ended for none of its limits."""

    def __init__(self, how: str, stack: str) -> None:
        super().__init__(how)
        self.how = how
        self.stack = stack


def _too_much_memory() -> MemoryLimitExceeded:
    return MemoryLimitExceeded(f"This needs more than the {MOST_MEMORY >> 20:,} MiB of memory that one call may use.")


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class _Worker:
    """A process, and the pipes to it."""

    def __init__(self) -> None:
        # Isolated: neither the working directory nor the environment affects imports.
        command = [sys.executable, "-I", "-m", _PROGRAM]
        # In memory: neither a full pipe nor a full disk can stop the worker.
        self._errors = os.fdopen(os.memfd_create("worker-errors"), "rb")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - fixed arguments
                command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError:
            self._errors.close()
            raise

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

    def reap(self) -> tuple[int, str]:
        """Wait for the end of the process. Returns its exit status, and its stack if it crashed."""
        with suppress(subprocess.TimeoutExpired):
            # Its pipes close just before it has ended, and only its own status says why.
            self._process.wait(_ENDS_WITHIN)
        self._process.kill()
        status = self._process.wait()
        self._errors.seek(max(0, os.fstat(self._errors.fileno()).st_size - _MOST_ERRORS))
        lines = self._errors.read().decode(errors="replace").splitlines()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        return status, "\n".join(found.group() for line in lines if (found := _STACK_LINE.match(line)))


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


def _error(kind: str, message: str, fields: dict[str, str]) -> ToolcribError:
    """Rebuild the error that was raised in the worker."""
    error: ToolcribError = getattr(errors, kind).__new__(getattr(errors, kind))
    ToolcribError.__init__(error, message, fields=fields)
    return error
