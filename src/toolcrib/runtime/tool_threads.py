"""Threads for functions of other authors: one that never returns holds up neither the event loop nor the end."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from toolcrib.core.errors import Overloaded

T = TypeVar("T")

# Functions that run at once, with those that did not end when their call timed out.
AT_ONCE: Final = 64
# A workspace may have this many threads for each one that is free. So one alone gets three quarters of them, and each
# further one three quarters of the rest: only four greedy workspaces together could take them all.
FOR_EACH_FREE: Final = 3


class _Places:
    """Counts the functions that run. Threads release their places."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[Hashable] = Counter()

    def take(self, owner: Hashable) -> None:
        with self._lock:
            running, of_owner = self._taken.total(), self._taken[owner]
            if of_owner >= FOR_EACH_FREE * (AT_ONCE - running):
                raise Overloaded(
                    f"{running} calls of Python tools are running, or did not end when they timed out, {of_owner} of "
                    "them of this workspace. The free threads are for other workspaces. Try again later."
                    if running < AT_ONCE
                    else f"{running} calls of Python tools are running, or did not end when they timed out. Try again "
                    "later."
                )
            self._taken[owner] += 1

    def release(self, owner: Hashable) -> None:
        with self._lock:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


_places = _Places()


async def in_tool_thread(work: Callable[[], T], *, owner: Hashable) -> T:
    """Run ``work`` in a thread of its own. If the caller stops waiting, the thread goes on.

    Args:
        owner: The workspace of the call. It never gets all threads.

    Raises:
        Overloaded: Too many are running.
    """
    _places.take(owner)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            deliver = partial(_set_result, ended, work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            deliver = partial(_set_exception, ended, error)
        finally:
            _places.release(owner)
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver)

    # A daemon: the executors of the standard library wait for their threads when the process ends.
    thread = threading.Thread(target=copy_context().run, args=(run,), name="tool", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The machine has no room for another thread.
        _places.release(owner)
        raise
    return await ended


async def in_tool_loop(work: Callable[[], Coroutine[Any, Any, T]], *, owner: Hashable) -> T:
    """Run a coroutine on an event loop of its own, in a thread of its own. It is cancelled with the caller.

    Fails like ``in_tool_thread``.
    """
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        return await work()

    try:
        return await in_tool_thread(lambda: asyncio.run(run()), owner=owner)
    except asyncio.CancelledError:
        for loop, task in running:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        raise


def _set_result(ended: "asyncio.Future[T]", result: T) -> None:
    if not ended.done():
        ended.set_result(result)


def _set_exception(ended: "asyncio.Future[Any]", error: BaseException) -> None:
    if not ended.done():
        # The end of a tool is not the server's, and a future cannot hold a StopIteration.
        ends = isinstance(error, SystemExit | KeyboardInterrupt | StopIteration | asyncio.CancelledError)
        ended.set_exception(RuntimeError(f"The tool raised {error!r}") if ends else error)
