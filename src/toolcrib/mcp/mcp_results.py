"""Converts the results of MCP servers: text, structured content, and media up to a limit."""

from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from toolcrib.core.errors import ToolFailed
from toolcrib.mcp.tool_catalog import strip_invisible

MOST_TEXT: Final = 1_000_000
MOST_MEDIA: Final = 2_000_000
_LONGEST_ERROR: Final = 4_000


def result_of(server: str, answer: CallToolResult) -> dict[str, Any]:
    """Convert the result.

    Raises:
        ToolFailed: The tool reported an error; the message is the server's.
    """
    text = strip_invisible("\n".join(filter(None, map(_text, answer.content))))
    if answer.is_error:
        raise ToolFailed(f"The MCP server {server!r} returned an error: {text[:_LONGEST_ERROR] or '(no text)'}")
    result: dict[str, Any] = {"text": text[:MOST_TEXT]}
    if len(text) > MOST_TEXT:
        result["omitted"] = f"{len(text) - MOST_TEXT:,} more characters were truncated."
    if answer.structured_content is not None:
        result["structured"] = answer.structured_content
    if media := _media(answer.content):
        result["media"] = media
    return result


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ResourceLink(uri=uri, name=name):
            # Shown, never fetched: it may lead anywhere, even into our own network.
            return f"[{name}: {uri}]"
        case _:
            return ""


def _media(content: list[ContentBlock]) -> list[dict[str, Any]]:
    media: list[dict[str, Any]] = []
    room = MOST_MEDIA
    for block in content:
        medium = _medium(block)
        if medium is None:
            continue
        size = len(medium.get("data") or medium.get("text") or "")
        if size > room:
            medium = {
                "type": medium["type"],
                "left_out": f"{size:,} characters; the limit per result is {MOST_MEDIA:,}.",
            }
        else:
            room -= size
        media.append(medium)
    return media


def _medium(block: ContentBlock) -> dict[str, Any] | None:
    match block:
        case ImageContent(data=data, mime_type=kind):
            return {"type": "image", "mime_type": kind, "data": data}
        case AudioContent(data=data, mime_type=kind):
            return {"type": "audio", "mime_type": kind, "data": data}
        case EmbeddedResource(resource=resource):
            held = (
                {"data": resource.blob}
                if isinstance(resource, BlobResourceContents)
                else {"text": strip_invisible(resource.text)}
            )
            return {"type": "resource", "uri": str(resource.uri), "mime_type": resource.mime_type, **held}
        case _:
            return None
