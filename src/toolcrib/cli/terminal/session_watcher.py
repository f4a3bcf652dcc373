"""Subscribes to a session in a thread, and reconnects when the server was unreachable."""

import threading
from collections import deque
from collections.abc import Callable
from uuid import UUID

from toolcrib.client import ServerUnreachable, StreamMessage
from toolcrib.client.http_client import MessageStream
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 2.0


class SessionWatcher(threading.Thread):
    """Collects events in ``received`` and calls ``notify``. ``trouble`` is the error while it is disconnected."""

    def __init__(
        self, location: WorkspaceLocation, session_id: UUID, *, after: int, notify: Callable[[], object]
    ) -> None:
        super().__init__(name="toolcrib-watcher", daemon=True)
        self.received: deque[StreamMessage] = deque()
        self.trouble: ToolcribError | None = None
        self.failures = 0
        self._location = location
        self._session_id = session_id
        self._after = after
        self._on_events = notify
        self._over = threading.Event()
        self._watch: MessageStream[StreamMessage] | None = None

    def stop(self) -> None:
        """Stops. No event is received after this."""
        self._over.set()
        if self._watch is not None:
            self._watch.close()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._listen()
                # The server has ended the stream, for example because the login has expired.
                self._over.wait(_FIRST_WAIT)
            except ToolcribError as error:
                self._recover(error)
            except Exception as error:  # noqa: BLE001 - the outermost loop: without it the chat shows no events any more
                self._recover(ServerUnreachable(f"The server's events cannot be read: {error!r}."))

    def _recover(self, error: ToolcribError) -> None:
        """Shows the error, and waits before the next attempt."""
        self.failures += 1
        self.trouble = error
        self._notify()
        self._over.wait(min(_FIRST_WAIT * 2**self.failures, _LONGEST_WAIT))

    def _listen(self) -> None:
        self._watch = self._location.client.stream_events(self._location.id, self._session_id, after=self._after)
        for message in self._watch:
            if self._over.is_set():
                return
            self.trouble, self.failures = None, 0
            self._after = max(self._after, message.seq or 0)
            self.received.append(message)
            self._notify()

    def _notify(self) -> None:
        if not self._over.is_set():
            self._on_events()
