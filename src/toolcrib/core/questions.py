"""Questions that a call asks a person, and their answers. Data only; ``gate/questions`` checks answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from toolcrib.core.ids import AgentId, CallId, QuestionId, RunId, SessionId, UserId, WorkspaceId


class QuestionState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class AnswerButton:
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Question:
    """One of up to four questions asked at once. ``name`` is the answer's key; ``schema`` is JSON Schema."""

    name: str
    question: str
    schema: Mapping[str, Any]
    buttons: tuple[AnswerButton, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """The questions of one call. ``by_button`` names the items that were answered with a button."""

    id: QuestionId
    workspace_id: WorkspaceId
    call_id: CallId
    session_id: SessionId | None
    run_id: RunId | None
    user_id: UserId
    agent_id: AgentId | None
    items: tuple[Question, ...]
    state: QuestionState
    answers: Mapping[str, Any] | None
    by_button: tuple[str, ...]
    answered_by: UserId | None
    answered_at: datetime | None
    created_at: datetime
    expires_at: datetime
