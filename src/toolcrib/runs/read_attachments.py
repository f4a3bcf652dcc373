"""Images and PDFs that messages bring and calls return: the model sees them as such instead of their base64."""

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toolcrib.core.attachments import Unattachable, attachment, attachment_of_media, media_type_of
from toolcrib.core.ids import CallId, WorkspaceId
from toolcrib.core.messages import Attachment
from toolcrib.core.runs import RequestedCallState
from toolcrib.policy.model_results import CallProgress, is_mcp_result
from toolcrib.storage.run_steps import RunStepStore

# The newest ones: each costs tokens in every request.
MAX_SHOWN: Final = 8
_READER: Final = "read"
_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")


@dataclass(frozen=True, slots=True)
class ReadAttachment:
    """What a call returned: the text about it and, if they can be shown, the files themselves.

    ``replaces``: the text stands for the whole result; otherwise it follows the result's own text.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    replaces: bool = True


def is_attachable(result: Any) -> bool:
    """Return whether the result of reading a file, which may be shortened, is an image or a PDF."""
    match result:
        case {"path": str(), "content": {"encoding": "base64", "data": str(data)}}:
            return _has_suffix(result) and media_type_of(_beginning(data)) is not None
    return False


class ReadAttachments:
    """Finds what the messages and calls of one run bring. A file is decoded once."""

    def __init__(self) -> None:
        self._found: dict[CallId, ReadAttachment | None] = {}

    async def of(
        self,
        ids: Sequence[CallId],
        calls: Mapping[CallId, CallProgress],
        runs: RunStepStore,
        workspace_id: WorkspaceId,
    ) -> dict[CallId, ReadAttachment]:
        """Return what these calls, oldest first, have returned. Only the newest are shown.

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
        room = MAX_SHOWN
        for call_id, read in reversed(list(found.items())):
            if read.attachments and len(read.attachments) > room:
                again = "; read it again if you need it." if read.replaces else "."
                found[call_id] = replace(read, text=f"{read.text} It is not shown any more{again}", attachments=())
                # Older ones are not shown either: what is shown does not depend on their sizes.
                room = 0
            room -= len(found[call_id].attachments)
        return found


def _may_show(call: CallProgress | None) -> bool:
    if call is None:
        return True
    if call.state is not RequestedCallState.ENDED or not isinstance(call.result, Mapping):
        return False
    if is_mcp_result(call.result):
        return "media" in call.result
    return call.tool == _READER and _has_suffix(call.result)


def _has_suffix(result: Mapping[str, Any]) -> bool:
    return str(result.get("path", "")).lower().endswith(_SUFFIXES)


def _decoded(result: Any) -> ReadAttachment | None:
    match result:
        case {"path": str(path), "content": {"encoding": "base64", "data": str(data)}}:
            return _file(path, data)
        case {"media": [*media]} if is_mcp_result(result):
            return _media([one for one in media if isinstance(one, Mapping)])
    return None


def _file(path: str, data: str) -> ReadAttachment | None:
    try:
        body = b64decode(data, validate=True)
    except binascii.Error:
        return None
    media_type = media_type_of(body)
    if media_type is None:
        return None
    about = f"{path} ({media_type}, {len(body):,} bytes)."
    try:
        return ReadAttachment(about, (attachment(path.rsplit("/", 1)[-1], body),))
    except Unattachable as flaw:
        return ReadAttachment(str(flaw))


def _media(media: Sequence[Mapping[str, Any]]) -> ReadAttachment | None:
    """Return the images and PDFs of a result that has text as well, such as one of an MCP server."""
    notes: list[str] = []
    shown: list[Attachment] = []
    for number, medium in enumerate(media, 1):
        try:
            one = attachment_of_media(medium, number)
        except Unattachable as flaw:
            notes.append(str(flaw))
            continue
        if one is not None:
            notes.append(f"{one.name} ({one.media_type}, {len(one.data):,} bytes).")
            shown.append(one)
    if len(shown) > MAX_SHOWN:
        notes.append(f"Only the first {MAX_SHOWN} of {len(shown)} are shown.")
    return ReadAttachment(" ".join(notes), tuple(shown[:MAX_SHOWN]), replaces=False) if notes else None


def _beginning(data: str) -> bytes:
    try:
        # Enough for every signature, and whole groups of base64.
        return b64decode(data[:32], validate=True)
    except binascii.Error:
        return b""
