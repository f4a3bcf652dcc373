"""What a session's watchers are told. Durable events are numbered facts; deltas are seen live and belong to no log."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolcrib.core.ids import SessionId, WorkspaceId


class EventType(StrEnum):
    """The durable ones. On the WebSocket each is called ``chat:<type>``."""

    MESSAGE = "message"
    STREAM_START = "stream-start"
    STREAM_END = "stream-end"
    TOOL_START = "tool-start"
    TOOL_RESULT = "tool-result"
    TOOL_CONFIRM = "tool-confirm"
    TOOL_DECIDED = "tool-decided"
    QUESTION = "question"
    ANSWER = "answer"
    RUN_STATE = "run-state"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """A fact of a session, with the session's next number once it is committed. The payload is camelCase."""

    session_id: SessionId
    type: str
    payload: Mapping[str, Any]
    seq: int | None = None


class DeltaType(StrEnum):
    TEXT = "text-delta"
    THINKING = "thinking-delta"
    TOOL = "tool-delta"


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text on its way: part ``n`` of what ``source`` (a message or a call) says in its ``attempt``.

    ``offset`` is how many characters of the same source and attempt came before, so that a gap shows.
    """

    workspace_id: WorkspaceId
    session_id: SessionId
    type: DeltaType
    source: str
    text: str
    attempt: int = 0
    offset: int = 0
