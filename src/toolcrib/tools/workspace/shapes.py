"""Pieces that several results of this toolset share."""

from datetime import UTC, datetime
from typing import Any

from toolcrib.workspace.content import decoded, window
from toolcrib.workspace.tree import Reading


def timestamp(at: datetime) -> str:
    """ISO 8601 in UTC, with a Z."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def content_window(reading: Reading, *, offset: int, limit: int) -> dict[str, Any]:
    """The content from a line on. Only text has lines: a JSON value comes whole."""
    file = reading.standing.file
    value = decoded(reading.body, file.state.content) if file else decoded(reading.body)
    if not isinstance(value, str):
        return {"content": value, "total_lines": None, "truncated": None, "offset": None, "limit": None}
    part = window(value, offset=offset, limit=limit)
    return {
        "content": part.text,
        "total_lines": part.total_lines,
        "truncated": part.truncated,
        "offset": part.offset,
        "limit": limit,
    }
