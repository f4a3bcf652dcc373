"""The results of this toolset: a text, its metadata, and whether it is an error."""

from typing import Any

from toolcrib.core.errors import SandboxViolation, ToolcribError


def text(output: str, **metadata: Any) -> dict[str, Any]:
    """Encode a success."""
    return {"output": output, "metadata": metadata, "is_error": False}


def failed(error: ToolcribError) -> dict[str, Any] | None:
    """Encode an expected failure as a result. Returns ``None`` for a sandbox violation, which stays an error."""
    if isinstance(error, SandboxViolation):
        return None
    words = "; ".join(f"{field}: {flaw}" for field, flaw in error.fields.items()) or error.message
    return {"output": words, "metadata": {"code": error.code}, "is_error": True}
