"""Pieces that several results of this toolset share."""

from datetime import UTC, datetime
from typing import Any

from toolcrib.workspace.content import decoded, window
from toolcrib.workspace.paths import shown
from toolcrib.workspace.standing import Reading, Standing


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


def found_entry(standing: Standing) -> dict[str, Any]:
    """A file or folder that was found by its path or traits. Only files have a size."""
    file, node = standing.file, standing.node
    size = node.fingerprint.size if node else file.state.size if file else 0
    return {
        "path": shown(standing.place),
        "name": standing.place.name,
        "synced": standing.synced,
        "file_type": standing.type,
        "size": None if standing.is_folder else size,
        "updated_at": timestamp(standing.updated_at),
    }
