"""What the API answers, as far as the client looks at it. What a newer server adds is let pass."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class Workspace(Shape):
    id: UUID
    name: str


class Rule(Shape):
    tool: str
    paths: list[str] | None = None
    commands: list[str] | None = None


class Approval(Shape):
    """A call that waits, or waited, for a person."""

    id: UUID
    call_id: UUID
    session_id: UUID | None
    agent_name: str | None
    tool: str
    shown: Any
    arguments_sha256: str
    changes: list[dict[str, Any]]
    effects: dict[str, Any]
    rule: str
    reason: str
    isolation: str | None
    offered: Rule
    state: str
    scope: str | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None
    replaces: UUID | None
    created_at: datetime
    expires_at: datetime


class Question(Shape):
    """One to four things that a call asks."""

    id: UUID
    call_id: UUID
    questions: list[dict[str, Any]]
    state: str
    answers: dict[str, Any] | None
    created_at: datetime
    expires_at: datetime


class KeptCall(Shape):
    id: UUID
    tool: str
    state: str
    result: Any
    error: Any
