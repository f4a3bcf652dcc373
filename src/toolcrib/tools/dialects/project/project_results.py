"""What a call of this toolset results in: a text, which says so if it is an error."""

from typing import Any

from toolcrib.core.errors import SandboxViolation, ToolcribError
from toolcrib.core.paths import WorkspacePath


def text(output: str) -> dict[str, Any]:
    return {"output": output}


def failed(error: ToolcribError) -> dict[str, Any]:
    """Any failure or refusal. Of a violation it is always said that it was outside."""
    words = "; ".join(f"'{field}': {flaw}" for field, flaw in error.fields.items()) or error.message
    if isinstance(error, SandboxViolation) and "outside" not in words:
        words = f"outside what may be touched here. {words}"
    return {"output": f"Error: {words}", "is_error": True}


def relative(place: WorkspacePath) -> str:
    """A place of the project as this dialect writes it."""
    return place.path[1:] or "."
