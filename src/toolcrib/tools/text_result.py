"""What a call of this toolset results in: a text, facts about it, and whether it is an error."""

from typing import Any

from toolcrib.core.errors import SandboxViolation, ToolcribError


def text(output: str, **metadata: Any) -> dict[str, Any]:
    return {"output": output, "metadata": metadata, "is_error": False}


def failed(error: ToolcribError) -> dict[str, Any] | None:
    """An expected failure as a result. A violation has no such form: it is told as the error that it is."""
    if isinstance(error, SandboxViolation):
        return None
    words = "; ".join(f"{field}: {flaw}" for field, flaw in error.fields.items()) or error.message
    return {"output": words, "metadata": {"code": error.code}, "is_error": True}
