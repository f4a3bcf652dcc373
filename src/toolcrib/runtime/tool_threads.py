"""Threads for functions of other authors: one that never returns holds up neither the event loop nor the end."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from toolcrib.core.errors import Overloaded

T = TypeVar("T")

# Functions that run at once, with those that did not end when their call timed out.
AT_ONCE: Final = 64

_free = threading.BoundedSemaphore(AT_ONCE)


async def in_tool_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread of its own. If the caller stops waiting, the thread goes on.

    Raises:
        Overloaded: Too many are running.
    """
    if not _free.acquire(blocking=False):
        raise Overloaded(
            f"{AT_ONCE} calls of Python tools are running, or did not end when they timed out. Try again later."
        )
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            deliver = partial(_set_result, ended, work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            deliver = partial(_set_exception, ended, error)
        finally:
            _free.release()
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver)

    # A daemon: the executors of the standard library wait for their threads when the process ends.
    thread = threading.Thread(target=copy_context().run, args=(run,), name="tool", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The machine has no room for another thread.
        _free.release()
        raise
    return await ended


async def in_tool_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on an event loop of its own, in a thread of its own. It is cancelled with the caller."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        return await work()

    try:
        return await in_tool_thread(lambda: asyncio.run(run()))
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
