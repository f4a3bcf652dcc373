"""What the results of several tools share: their base type, ids, times, and texts with metadata."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, WithJsonSchema
from typing_extensions import TypedDict

from toolcrib.core.errors import SandboxViolation, ToolcribError


class ToolResult(TypedDict):
    """Base of results whose schema clients see. Results are dictionaries, so nothing is built or validated per call."""


# The body of a TypedDict can only have fields.
ToolResult.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]

IdText = Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})]
TimeText = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


def timestamp(at: datetime) -> TimeText:
    """Format as ISO 8601 in UTC, with a Z."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


class TextOutput(ToolResult):
    """The result of tools that return text: of the toolset ``studio``, and of commands."""

    output: str
    metadata: dict[str, Any]
    is_error: bool


def text_output(output: str, **metadata: Any) -> TextOutput:
    """Encode a success."""
    return {"output": output, "metadata": metadata, "is_error": False}


def failed_output(error: ToolcribError) -> TextOutput | None:
    """Encode an expected failure as a result. Returns ``None`` for a sandbox violation, which stays an error."""
    if isinstance(error, SandboxViolation):
        return None
    words = "; ".join(f"{field}: {flaw}" for field, flaw in error.fields.items()) or error.message
    return {"output": words, "metadata": {"code": error.code}, "is_error": True}
