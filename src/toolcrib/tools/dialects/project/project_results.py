"""The results of this toolset: a text, marked if it is an error."""

from typing import Any

from toolcrib.core.errors import SandboxViolation, ToolcribError
from toolcrib.core.paths import WorkspacePath


def text(output: str) -> dict[str, Any]:
    """Encode a success."""
    return {"output": output}


def failed(error: ToolcribError) -> dict[str, Any]:
    """Encode any failure or denial. The text of a sandbox violation always contains "outside"."""
    words = "; ".join(f"'{field}': {flaw}" for field, flaw in error.fields.items()) or error.message
    if isinstance(error, SandboxViolation) and "outside" not in words:
        words = f"outside what may be touched here. {words}"
    return {"output": f"Error: {words}", "is_error": True}


def relative(path: WorkspacePath) -> str:
    """Format a path of the project in this dialect."""
    return path.path[1:] or "."
