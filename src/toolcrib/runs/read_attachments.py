"""Images and PDFs that an agent has read: the model sees them as such instead of their base64."""

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.core.ids import CallId, WorkspaceId
from toolcrib.core.messages import PDF_TYPE, Attachment
from toolcrib.core.runs import RequestedCallState
from toolcrib.policy.model_results import CallProgress
from toolcrib.storage.run_steps import RunStepStore

# Every provider accepts these sizes.
MAX_IMAGE_BYTES: Final = 5_000_000
MAX_PDF_BYTES: Final = 10_000_000
# The newest ones: each costs tokens in every request.
MAX_SHOWN: Final = 8
_READER: Final = "read"
_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": PDF_TYPE,
}


@dataclass(frozen=True, slots=True)
class ReadAttachment:
    """The result of reading an image or a PDF: the text about it and, if it can be shown, the file itself."""

    text: str
    attachment: Attachment | None


def is_attachable(result: Any) -> bool:
    """Return whether the result of reading a file can be an image or a PDF."""
    return isinstance(result, Mapping) and _has_suffix(result) and not isinstance(result.get("content"), str)


class ReadAttachments:
    """Finds what the messages and calls of one run have read. A file is decoded once."""

    def __init__(self) -> None:
        self._found: dict[CallId, ReadAttachment | None] = {}

    async def of(
        self,
        ids: Sequence[CallId],
        calls: Mapping[CallId, CallProgress],
        runs: RunStepStore,
        workspace_id: WorkspaceId,
    ) -> dict[CallId, ReadAttachment]:
        """Return what these calls, oldest first, have read. Only the newest are shown.

        Args:
            calls: Those of the run; others are loaded.
        """
        new = [call_id for call_id in ids if call_id not in self._found and _may_show(calls.get(call_id))]
        # The gate shortens a result; its row has all of it.
        partial = [call_id for call_id in new if call_id not in calls or calls[call_id].is_cut]
        whole = {**calls, **(await runs.calls(workspace_id, partial))}
        for call_id in new:
            self._found[call_id] = _decoded(whole[call_id].result) if call_id in whole else None
        found = {call_id: read for call_id in ids if (read := self._found.get(call_id)) is not None}
        shown = [call_id for call_id, read in found.items() if read.attachment is not None]
        for call_id in shown[:-MAX_SHOWN]:
            text = f"{found[call_id].text} It is not shown any more; read it again if you need it."
            found[call_id] = ReadAttachment(text, None)
        return found


def _may_show(call: CallProgress | None) -> bool:
    if call is None:
        return True
    is_read = call.tool == _READER and call.state is RequestedCallState.ENDED
    return is_read and isinstance(call.result, Mapping) and _has_suffix(call.result)


def _has_suffix(result: Mapping[str, Any]) -> bool:
    return str(result.get("path", "")).lower().endswith(_SUFFIXES)


def _decoded(result: Any) -> ReadAttachment | None:
    match result:
        case {"path": str(path), "content": {"encoding": "base64", "data": str(data)}}:
            return _read(path, data)
    return None


def _read(path: str, data: str) -> ReadAttachment | None:
    try:
        body = b64decode(data, validate=True)
    except binascii.Error:
        return None
    media_type = _media_type(body)
    if media_type is None:
        return None
    about = f"{path} ({media_type}, {len(body):,} bytes)."
    most = MAX_PDF_BYTES if media_type == PDF_TYPE else MAX_IMAGE_BYTES
    if len(body) > most:
        return ReadAttachment(f"{about} It is too large to be shown: the limit is {most:,} bytes.", None)
    return ReadAttachment(about, Attachment(path.rsplit("/", 1)[-1], media_type, body))


def _media_type(body: bytes) -> str | None:
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((found for start, found in _SIGNATURES.items() if body.startswith(start)), None)
