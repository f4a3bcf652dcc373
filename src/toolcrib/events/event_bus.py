"""Interfaces between nodes and publishers: notifications that something was committed, and deltas.

Notifications are hints. A lost one only delays delivery, because the hub also polls.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from toolcrib.core.events import Delta
from toolcrib.core.ids import RunId, SessionId, WorkspaceId

# Session ids are unique only within a workspace.

Key = tuple[WorkspaceId, SessionId]


def key_of(delta: Delta) -> Key:
    """Return the session that a delta belongs to."""
    return delta.workspace_id, delta.session_id


class NodeBusListener(Protocol):
    """Receives what other nodes send."""

    def on_notify(self, key: Key) -> None: ...

    def on_delta(self, delta: Delta) -> None: ...

    def partial_texts(self, key: Key) -> Sequence[Delta]:
        """Return the text so far of this node's own sources, for a node that joins."""

    def reconnected(self) -> None:
        """Handle a new connection: messages may have been missed."""


class NodeBus:
    """The connection to the other nodes. Its synchronous methods never block and never raise.

    This one belongs to a single node, or one that cannot reach the others: polling finds what other nodes commit.
    """

    @property
    def is_up(self) -> bool:
        """Whether messages from other nodes arrive."""
        return False

    def notify(self, key: Key) -> None:
        pass

    def publish_delta(self, delta: Delta) -> None:
        pass

    async def join(self, key: Key) -> Sequence[Delta]:
        """Join a session. Returns the text so far of other nodes' sources."""
        return ()

    def leave(self, key: Key) -> None:
        pass


class WakeSignal:
    """Wakes the workers of this process when something was decided or submitted here.

    A missed signal only costs time.
    """

    def __init__(self) -> None:
        self._subscribers: list[asyncio.Event] = []
        self._starters: list[Callable[[WorkspaceId, RunId], None]] = []

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set with every notification. The waiting task clears it."""
        subscriber = asyncio.Event()
        self._subscribers.append(subscriber)
        return subscriber

    def start_with(self, start: Callable[[WorkspaceId, RunId], None]) -> None:
        """Call ``start`` for every run that becomes ready in this process."""
        self._starters.append(start)

    def notify(self, workspace_id: WorkspaceId, ready: Iterable[RunId] = ()) -> None:
        """Wake all subscribers. ``ready`` are runs that may have become ready."""
        for subscriber in self._subscribers:
            subscriber.set()
        for run_id in ready:
            for start in self._starters:
                start(workspace_id, run_id)


class EventPublisher(Protocol):
    """What the gate and the runs need to show a session live.

    Never blocks or raises: a subscriber cannot delay a call.
    """

    def notify(self, workspace_id: WorkspaceId, session_id: SessionId) -> None: ...

    def publish_delta(self, delta: Delta) -> None: ...


class NullPublisher:
    """A publisher without subscribers. Committed events can still be read later."""

    def notify(self, workspace_id: WorkspaceId, session_id: SessionId) -> None:
        pass

    def publish_delta(self, delta: Delta) -> None:
        pass
