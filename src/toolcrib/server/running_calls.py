"""Calls that came over WebSockets and are running on this node, so that anyone in their session can cancel them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from toolcrib.domain.ids import CallId, SessionId, WorkspaceId

Key = tuple[WorkspaceId, SessionId]


class RunningCalls:
    """The tasks, by session and call."""

    def __init__(self) -> None:
        self._tasks: dict[Key, dict[CallId, asyncio.Task[None]]] = {}

    def start(self, key: Key, call_id: CallId, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.setdefault(key, {})[call_id] = task
        task.add_done_callback(lambda _: self._forget(key, call_id))
        return task

    def cancel(self, key: Key) -> list[CallId]:
        """Ends what runs in a session; which calls that were."""
        running = self._tasks.get(key, {})
        for task in running.values():
            task.cancel()
        return list(running)

    def _forget(self, key: Key, call_id: CallId) -> None:
        calls = self._tasks.get(key, {})
        calls.pop(call_id, None)
        if not calls:
            self._tasks.pop(key, None)
