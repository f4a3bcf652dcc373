"""Store an image or a PDF that a person sends with a message. It changes no file."""

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.core.attachments import (
    MAX_BASE64,
    AttachmentName,
    Unattachable,
    attachment,
    decode_base64,
)
from toolcrib.core.errors import BadArguments, PermissionDenied
from toolcrib.core.messages import Attachment
from toolcrib.core.tool_calls import ToolCategory
from toolcrib.storage.database import Tenant
from toolcrib.storage.quotas import WorkspaceQuota
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.tools.tool_results import ToolResult


class AttachArguments(ToolArguments):
    name: AttachmentName = Field(description="Name of the file, without folders.")
    content: str = Field(max_length=MAX_BASE64, description="The content in base64.")


class AttachedMedium(TypedDict):
    """A file as results contain it. ``data`` is base64."""

    type: str
    name: str
    mime_type: str
    data: str


class AttachResult(ToolResult):
    """The file as a model sees it, in the form of a result of an MCP server."""

    text: str
    media: list[AttachedMedium]


@built_in("attachments", category=ToolCategory.HUMAN, effects=no_effects, checks_membership=False, read_only=False)
async def attach(arguments: AttachArguments, context: ToolContext) -> AttachResult:
    """Store an image (PNG, JPEG, GIF, WebP) or a PDF that you send with a message to an agent.

    For people only. It changes no file of the workspace.
    """
    if context.caller.is_agent:
        raise PermissionDenied("Only people attach files to their messages. Use `read` to look at an image or a PDF.")
    if context.caller.session_id is None:
        # Without one the result is not stored, and no message can refer to it.
        raise BadArguments({"session_id": "Attach files in the session of your message: this call has no session."})
    try:
        one = attachment(arguments.name, decode_base64(arguments.name, arguments.content))
    except Unattachable as flaw:
        raise BadArguments({"content": str(flaw)}) from None
    await context.resource(WorkspaceQuota).take(Tenant.of(context.caller), len(arguments.content))
    return {"text": f"{one.name} ({one.media_type}, {len(one.data):,} bytes).", "media": [attachment_media(one)]}


def attachment_media(one: Attachment) -> AttachedMedium:
    """Return a file as results contain it, besides their text: as those of MCP servers do."""
    kind = "image" if one.is_image else "resource"
    return {"type": kind, "name": one.name, "mime_type": one.media_type, "data": one.base64}
