"""Parts of results that several tools of this toolset share."""

from datetime import UTC, datetime
from typing import Any

from toolcrib.core.paths import shown
from toolcrib.workspace.sync.path_state import FileContent, PathState
from toolcrib.workspace.text.content import decode_content, line_window


def timestamp(at: datetime) -> str:
    """Format as ISO 8601 in UTC, with a Z."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def content_window(reading: FileContent, *, offset: int, limit: int) -> dict[str, Any]:
    """Return the content from a line on. Only text has lines: a JSON value is returned whole."""
    file = reading.path_state.file
    value = decode_content(reading.body, file.state.content_kind) if file else decode_content(reading.body)
    if not isinstance(value, str):
        return {"content": value, "total_lines": None, "truncated": None, "offset": None, "limit": None}
    part = line_window(value, offset=offset, limit=limit)
    return {
        "content": part.text,
        "total_lines": part.total_lines,
        "truncated": part.truncated,
        "offset": part.offset,
        "limit": limit,
    }


def found_entry(path_state: PathState) -> dict[str, Any]:
    """Return the entry of a found file or folder. Only files have a size."""
    file, node = path_state.file, path_state.node
    size = node.fingerprint.size if node else file.state.size if file else 0
    return {
        "path": shown(path_state.path),
        "name": path_state.path.name,
        "synced": path_state.synced,
        "file_type": path_state.type,
        "size": None if path_state.is_folder else size,
        "updated_at": timestamp(path_state.updated_at),
    }
