"""Session events. Durable events are numbered and stored; deltas are only sent live."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolcrib.core.ids import SessionId, WorkspaceId


class EventType(StrEnum):
    """The durable event types. On the WebSocket each is called ``chat:<type>``."""

    MESSAGE = "message"
    STREAM_START = "stream-start"
    STREAM_END = "stream-end"
    TOOL_START = "tool-start"
    TOOL_RESULT = "tool-result"
    TOOL_CONFIRM = "tool-confirm"
    QUESTION = "question"
    PAUSE_ENDED = "pause-ended"
    RUN_STATE = "run-state"
    CHILD_RUN = "child-run"
    REVIEW = "review"
    ERROR = "error"


class ActivityTopic(StrEnum):
    """What of a workspace changed, for those who see its lists but not each session."""

    APPROVALS = "approvals"
    RUNS = "runs"
    SESSIONS = "sessions"
    FILES = "files"
    # Events of sessions: calls and messages.
    HISTORY = "history"
    # Something that waits or runs, in another of the person's workspaces.
    INBOX = "inbox"


@dataclass(frozen=True, slots=True)
class Activity:
    """What changed in a workspace. A hint to read it again: it has no contents and no number."""

    workspace_id: WorkspaceId
    topics: frozenset[ActivityTopic]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a session. ``seq`` is the session's next number, set at commit. The payload is camelCase."""

    session_id: SessionId
    type: str
    payload: Mapping[str, Any]
    seq: int | None = None


# The `finishReason` of a message whose text was shown and does not count: the model is asked again.
WITHDRAWN = "withdrawn"


class DeltaType(StrEnum):
    TEXT = "text-delta"
    THINKING = "thinking-delta"
    TOOL = "tool-delta"


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of streamed text from ``source`` (a message or a call) in its ``attempt``.

    ``offset`` is the number of characters of the same source and attempt before it, so that subscribers detect gaps.
    """

    workspace_id: WorkspaceId
    session_id: SessionId
    type: DeltaType
    source: str
    text: str
    attempt: int = 0
    offset: int = 0
