"""What nodes tell each other: that something happened, and deltas. Hints only; nothing is lost with them but time."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from toolcrib.core.events import Delta
from toolcrib.core.ids import SessionId, WorkspaceId

# How a session is told from all others: ids alone are a workspace's own.

Key = tuple[WorkspaceId, SessionId]


def key_of(delta: Delta) -> Key:
    return delta.workspace_id, delta.session_id


class NodeBusListener(Protocol):
    """What a node does with what it hears from others."""

    def on_notify(self, key: Key) -> None: ...

    def on_delta(self, delta: Delta) -> None: ...

    def partial_texts(self, key: Key) -> Sequence[Delta]:
        """What this node's own sources have said, for a node that starts to listen."""

    def reconnected(self) -> None:
        """Something may have been missed."""


class NodeBus(Protocol):
    """The way to the other nodes. Its plain methods never wait and never raise."""

    @property
    def is_up(self) -> bool:
        """Whether hints of other nodes arrive."""

    def notify(self, key: Key) -> None: ...

    def publish_delta(self, delta: Delta) -> None: ...

    async def join(self, key: Key) -> Sequence[Delta]:
        """Listens to a session from now on; what other nodes' sources have said in it so far."""

    def leave(self, key: Key) -> None: ...


class LocalBus:
    """The wire of a node that has no others, or cannot hear them. What they do is then found by looking."""

    is_up = False

    def notify(self, key: Key) -> None:
        pass

    def publish_delta(self, delta: Delta) -> None:
        pass

    async def join(self, key: Key) -> Sequence[Delta]:
        return ()

    def leave(self, key: Key) -> None:
        pass


# Rung when something was decided or submitted here: whoever carries things out need not wait for their next look.


class WakeSignal:
    """One bell, several ears. Missing a ring costs a moment, never anything else."""

    def __init__(self) -> None:
        self._ears: list[asyncio.Event] = []

    def subscribe(self) -> asyncio.Event:
        """An event that is set with every ring; whoever waits for it clears it."""
        ear = asyncio.Event()
        self._ears.append(ear)
        return ear

    def notify(self) -> None:
        for ear in self._ears:
            ear.set()


# What the engine needs of whoever shows a session live: a hint that something was committed, and text on its way.


class EventPublisher(Protocol):
    """Neither blocks nor raises: nobody who watches can hold up or break what is watched."""

    def notify(self, workspace_id: WorkspaceId, session_id: SessionId) -> None: ...

    def publish_delta(self, delta: Delta) -> None: ...


class NullPublisher:
    """For an engine without a face. What is committed can be read later all the same."""

    def notify(self, workspace_id: WorkspaceId, session_id: SessionId) -> None:
        pass

    def publish_delta(self, delta: Delta) -> None:
        pass
