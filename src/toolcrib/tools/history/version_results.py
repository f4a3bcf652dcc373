"""Parts of results that several tools of this toolset share."""

from typing import Any

from toolcrib.core.files import File, Version
from toolcrib.core.paths import shown
from toolcrib.tools.files.file_results import timestamp


def file_shape(file: File) -> dict[str, Any]:
    """Encode a file."""
    return {
        "file_id": str(file.id),
        "version_id": str(file.version_id),
        "path": shown(file.state.path),
        "file_type": str(file.type),
        "is_virtual": file.is_virtual,
        "deleted": file.deleted,
        "number": file.version_number,
        "size": file.state.size,
        "line_count": file.state.line_count,
        "mode": f"{file.state.mode:04o}",
        "hash": file.state.sha256.hex() if file.state.sha256 else None,
        "created_at": timestamp(file.created_at),
        "updated_at": timestamp(file.updated_at),
    }


def version_shape(version: Version) -> dict[str, Any]:
    """Encode a version with its author."""
    return {
        "version_id": str(version.id),
        "file_id": str(version.file_id),
        "number": version.version_number,
        "change_set_id": str(version.change_set_id),
        "path": shown(version.state.path),
        "kind": str(version.state.kind),
        "deleted": version.deleted,
        "size": version.state.size,
        "line_count": version.state.line_count,
        "mode": f"{version.state.mode:04o}",
        "hash": version.state.sha256.hex() if version.state.sha256 else None,
        "author": {
            "kind": str(version.author_kind),
            "user_id": _text(version.user_id),
            "agent_id": _text(version.agent_id),
            "run_id": _text(version.run_id),
            "call_id": _text(version.call_id),
        },
        "created_at": timestamp(version.created_at),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
