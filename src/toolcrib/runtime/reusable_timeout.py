"""A timeout that costs almost nothing while it is not reached, for code that waits thousands of times a second."""

import asyncio
from types import TracebackType
from typing import Self


class ReusableTimeout:
    """Ends a wait of one task after some seconds by raising ``TimeoutError``, as ``asyncio.timeout`` does.

    ``asyncio.timeout`` creates a timer and a scope for every wait. This one can be set repeatedly, for one wait at a
    time, and keeps its timer: only when the timer fires, it checks whether the current wait took too long.
    """

    __slots__ = ("_cancelling", "_due", "_fired", "_loop", "_task", "_timer", "_when")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The timer and its time. For a time that is due at once, uvloop returns a handle that does not know it.
        self._timer: asyncio.Handle | None = None
        self._when = 0.0
        self._task: asyncio.Task[object] | None = None
        self._due = 0.0
        self._cancelling = 0
        self._fired = False

    def after(self, seconds: float) -> Self:
        """Set the deadline in seconds from now."""
        return self.at(self._loop.time() + seconds)

    def at(self, due: float) -> Self:
        """Set the deadline, by the loop's clock."""
        self._due = due
        if self._timer is None or self._when > due:
            self._set()
        return self

    def close(self) -> None:
        """Cancel the timer, after the last wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if not self._fired:
            return
        self._fired = False
        assert task is not None
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._when = self._due
        self._timer = self._loop.call_at(self._due, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._due:
            self._set()
            return
        self._fired = True
        self._task.cancel()
