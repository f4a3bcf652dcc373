"""Durable events of a session. Each has the session's next number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.domain.ids import SessionId


@dataclass(frozen=True, slots=True)
class Event:
    session_id: SessionId
    type: str
    payload: Mapping[str, Any]
    seq: int | None = None
