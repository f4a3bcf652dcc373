"""A session as a client uses it: send messages, follow runs, cancel them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from toolcrib.client import Client, RunOut, ServerUnavailable, ServerUnreachable, SessionOut, StreamMessage
from toolcrib.core.attachments import MAX_PDF_BYTES, Unattachable, attachment, default_name
from toolcrib.core.errors import BadArguments, Conflict, ToolcribError
from toolcrib.core.messages import session_title
from toolcrib.schemas.sessions import AttachedFile
from toolcrib.sdk.workspace_location import WorkspaceLocation

# Retries: an unreachable server rarely comes back; one whose database is unavailable gets half a minute.
_TRIES: Mapping[type[ToolcribError], int] = {ServerUnreachable: 5, ServerUnavailable: 20}
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0

# A file of the workspace by its path, a file of this computer, or the content of a file.
Attached = str | Path | bytes


class SessionClient:
    """One session, and the position up to which its events were read."""

    def __init__(self, location: WorkspaceLocation, session: SessionOut, *, seen: int | None = None) -> None:
        self.location = location
        self.session = session
        self._seen = session.last_seq if seen is None else seen

    @property
    def id(self) -> UUID:
        """The id of the session."""
        return self.session.id

    def moved(self, location: WorkspaceLocation) -> "SessionClient":
        """Return the same session at another location, after another process has taken over serving it."""
        return SessionClient(location, self.session, seen=self._seen)

    def send(self, text: str, *, priority: int | None = None, attachments: Sequence[Attached] = ()) -> RunOut:
        """Send a message and return its run. The first message becomes the session's title.

        Args:
            attachments: Images and PDFs that the model sees.

        Raises:
            BadArguments: One of them cannot be read, is neither an image nor a PDF, or is too large.
        """
        files = [one if isinstance(one, str) else _attached(one, number) for number, one in enumerate(attachments)]
        if self.session.title is None and (title := session_title(text)):
            self.session = self._client.change_session(self.location.id, self.id, title=title)
        return self._client.send(self.location.id, self.id, text, priority=priority, attachments=files)

    def follow(self, run: RunOut) -> Iterator[StreamMessage]:
        """Yield all messages until the run has ended. Resumes an interrupted stream where it stopped.

        Raises:
            ServerUnreachable: The server did not come back.
            ServerUnavailable: The server did not recover.
        """
        failures = 0
        while True:
            try:
                for message in self._client.stream_events(self.location.id, self.id, after=self._seen):
                    failures = 0
                    self._seen = max(self._seen, message.seq or 0)
                    yield message
                    if is_end(message, run):
                        return
            except (ServerUnreachable, ServerUnavailable) as error:
                failures += 1
                if failures >= _TRIES[type(error)]:
                    raise
                time.sleep(min(_FIRST_WAIT * 2**failures, _LONGEST_WAIT))

    def stop(self, run: RunOut) -> None:
        """Cancel a run. A run that has ended meanwhile is not an error."""
        with suppress(Conflict):
            self._client.cancel(self.location.id, run.id)

    @property
    def _client(self) -> Client:
        return self.location.client


def _attached(one: Path | bytes, number: int) -> AttachedFile:
    try:
        if isinstance(one, Path):
            with one.open("rb") as file:
                # One byte more than fits, to notice that it does not.
                name, body = one.name, file.read(MAX_PDF_BYTES + 1)
        else:
            name, body = default_name(one, number + 1), one
        checked = attachment(name, body)
    except (OSError, Unattachable) as error:
        raise BadArguments({f"attachments.{number}": str(error)}) from None
    return AttachedFile(name=checked.name, data=checked.base64)


def is_end(message: StreamMessage, run: RunOut) -> bool:
    """Return whether this message is the end of the run, or holds it because the session was stopped before."""
    payload = message.payload
    if message.type != "chat:run-state" or payload.get("runId") != str(run.id):
        return False
    return payload.get("state") == "ended" or bool(payload.get("held"))


def end_reason(message: StreamMessage) -> str:
    """Return why a run ended: its ``endReason``, or ``held``."""
    return "held" if message.payload.get("held") else str(message.payload.get("endReason"))
