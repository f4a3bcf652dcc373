"""Converts tools and outcomes to MCP types."""

from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool

from toolcrib.core.errors import ToolcribError
from toolcrib.core.tool_calls import Danger, Outcome, ToolCategory
from toolcrib.policy.model_results import model_text
from toolcrib.tools.tool import Tool

# The key under which results of MCP servers hold images, audio and documents; see mcp/mcp_connections.py.
MEDIA = "media"
_ELSEWHERE = frozenset({ToolCategory.SEARCH, ToolCategory.MCP})


def offered(tool: Tool, name: str) -> McpTool:
    """Convert a tool. The hints say what it does to the workspace."""
    return McpTool(
        name=name,
        description=tool.description,
        input_schema={"type": "object", **tool.input_schema},
        annotations=ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=None if tool.read_only else tool.danger is Danger.DANGEROUS,
            open_world_hint=tool.category in _ELSEWHERE,
        ),
    )


def result_of(outcome: Outcome) -> CallToolResult:
    """Convert an outcome, as text only: a client might give its model both text and structured content."""
    if outcome.error is not None and outcome.result is None:
        return failure(outcome.error)
    return done(outcome.result, is_error=outcome.error is not None)


def done(result: Any, *, is_error: bool = False) -> CallToolResult:
    """Convert a result."""
    media = result.get(MEDIA) if isinstance(result, dict) else None
    if not isinstance(media, list):
        return text_tool_result(model_text(result)[0], is_error=is_error)
    text, _ = model_text({key: value for key, value in result.items() if key != MEDIA})
    blocks: list[ContentBlock] = [TextContent(text=text)] if text else []
    blocks += [block for block in map(_block, media) if block is not None]
    return CallToolResult(content=blocks, is_error=is_error)


def failure(error: ToolcribError) -> CallToolResult:
    """Convert an error."""
    fields = "; ".join(f"{field}: {expected}" for field, expected in error.fields.items())
    return text_tool_result(f"{error.code}: {error.message}{': ' if fields else ''}{fields}", is_error=True)


def text_tool_result(words: str, *, is_error: bool) -> CallToolResult:
    """Return a plain text result."""
    return CallToolResult(content=[TextContent(text=words)], is_error=is_error)


def _block(medium: Any) -> ContentBlock | None:
    """Convert an image, audio or document of another MCP server; None if it is empty."""
    match medium:
        case {"type": "image", "mime_type": str(kind), "data": str(data)}:
            return ImageContent(data=data, mime_type=kind)
        case {"type": "audio", "mime_type": str(kind), "data": str(data)}:
            return AudioContent(data=data, mime_type=kind)
        case {"type": "resource", "uri": str(uri), "text": str(text)}:
            return EmbeddedResource(
                resource=TextResourceContents(uri=uri, mime_type=medium.get("mime_type"), text=text)
            )
        case {"type": "resource", "uri": str(uri), "data": str(data)}:
            return EmbeddedResource(
                resource=BlobResourceContents(uri=uri, mime_type=medium.get("mime_type"), blob=data)
            )
        case _:
            return None
