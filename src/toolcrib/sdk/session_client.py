"""A session from a terminal's side: messages go in, what happens comes out, and what waits is decided here."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from uuid import UUID

from toolcrib.client import Client, RunData, ServerUnavailable, ServerUnreachable, SessionData, StreamMessage
from toolcrib.core.errors import Conflict, ToolcribError
from toolcrib.sdk.workspace_location import WorkspaceLocation

# A server that is gone stays gone; one whose database is away gets it back, or says so for half a minute.
_TRIES: Mapping[type[ToolcribError], int] = {ServerUnreachable: 5, ServerUnavailable: 20}
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0
_TITLE_CHARACTERS = 60


class SessionClient:
    """One session, and how much of it was seen."""

    def __init__(self, place: WorkspaceLocation, session: SessionData, *, seen: int | None = None) -> None:
        self.place = place
        self.session = session
        self._seen = session.last_seq if seen is None else seen

    @property
    def id(self) -> UUID:
        return self.session.id

    def moved(self, place: WorkspaceLocation) -> "SessionClient":
        """The same, gone on with where another serves it now."""
        return SessionClient(place, self.session, seen=self._seen)

    def send(self, text: str) -> RunData:
        if self.session.title is None:
            title = " ".join(text.split())[:_TITLE_CHARACTERS]
            printable = "".join(sign for sign in title if sign.isprintable())
            if printable.strip():
                self.session = self._client.change_session(self.place.id, self.id, title=printable.strip())
        return self._client.send(self.place.id, self.id, text)

    def follow(self, run: RunData) -> Iterator[StreamMessage]:
        """All that happens until the run has ended. A stream that is cut is taken up where it was."""
        failures = 0
        while True:
            try:
                for told in self._client.stream_events(self.place.id, self.id, after=self._seen):
                    failures = 0
                    self._seen = max(self._seen, told.seq or 0)
                    yield told
                    if is_end(told, run):
                        return
            except (ServerUnreachable, ServerUnavailable) as error:
                failures += 1
                if failures >= _TRIES[type(error)]:
                    raise
                time.sleep(min(_FIRST_WAIT * 2**failures, _LONGEST_WAIT))

    def stop(self, run: RunData) -> None:
        """Stops a run; one that has ended meanwhile is stopped enough."""
        with suppress(Conflict):
            self._client.cancel(self.place.id, run.id)

    @property
    def _client(self) -> Client:
        return self.place.client


def is_end(told: StreamMessage, run: RunData) -> bool:
    payload = told.payload
    return told.type == "chat:run-state" and payload.get("runId") == str(run.id) and payload.get("state") == "ended"
