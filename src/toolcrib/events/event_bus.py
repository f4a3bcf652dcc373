"""Interfaces between nodes and publishers: notifications that something was committed, and deltas.

Notifications are hints. A lost one only delays delivery, because the hub also polls.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from toolcrib.core.events import Delta
from toolcrib.core.ids import PauseId, RunId, SessionId, WorkspaceId
from toolcrib.core.paused_calls import PausedCall

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
    """Starts at once what was decided or submitted in this process.

    A missed signal only costs time: everything is also in the durable queue.
    """

    def __init__(self) -> None:
        self._start_run: list[Callable[[WorkspaceId, RunId], None]] = []
        self._resume_call: list[Callable[[WorkspaceId, PauseId], None]] = []

    def start_with(
        self, run: Callable[[WorkspaceId, RunId], None], call: Callable[[WorkspaceId, PauseId], None]
    ) -> None:
        """Call these for every run that becomes ready in this process, and for every call that was approved in it."""
        self._start_run.append(run)
        self._resume_call.append(call)

    def notify(self, workspace_id: WorkspaceId, ready: Iterable[RunId] = ()) -> None:
        """Start runs that may have become ready."""
        for run_id in ready:
            for start in self._start_run:
                start(workspace_id, run_id)

    def notify_ended(self, pause: PausedCall) -> None:
        """Continue what waited for this pause."""
        if pause.run_id is not None:
            self.notify(pause.workspace_id, [pause.run_id])
        if pause.is_for_a_worker:
            for resume in self._resume_call:
                resume(pause.workspace_id, pause.id)


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
