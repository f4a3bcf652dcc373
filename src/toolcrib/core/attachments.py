"""Images and PDFs that models read: which content is accepted, and how large and how many may be sent."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import StringConstraints

from toolcrib.core.messages import PDF_TYPE, Attachment

# Every provider accepts these sizes.
MAX_IMAGE_BYTES: Final = 5_000_000
MAX_PDF_BYTES: Final = 10_000_000
# With one message.
MAX_ATTACHMENTS: Final = 8
LONGEST_NAME: Final = 200
AttachmentName = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\x00-\x1f\x7f/]+$")
]
KINDS: Final = "an image (PNG, JPEG, GIF, WebP) or a PDF"
# The longest base64 of an accepted file.
MAX_BASE64: Final = (MAX_PDF_BYTES + 2) // 3 * 4
_SUFFIXES: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    PDF_TYPE: ".pdf",
}
_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": PDF_TYPE,
}


class Unattachable(ValueError):
    """The content cannot be shown to a model; the text says why."""


def attachment(name: str, body: bytes) -> Attachment:
    """Return a file as models read it. Its content decides what it is, not its name.

    Raises:
        Unattachable: It is neither an image nor a PDF, or it is too large.
    """
    media_type = media_type_of(body)
    if media_type is None:
        raise Unattachable(f"{name} is not {KINDS}.")
    most = MAX_PDF_BYTES if media_type == PDF_TYPE else MAX_IMAGE_BYTES
    if len(body) > most:
        raise Unattachable(f"{name} has {len(body):,} bytes, too large to be shown: the limit is {most:,} bytes.")
    return Attachment(name, media_type, body)


def media_type_of(body: bytes) -> str | None:
    """Return what a content is by its first bytes; None if models do not read it."""
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((found for start, found in _SIGNATURES.items() if body.startswith(start)), None)


def decode_base64(name: str, text: str) -> bytes:
    """Return the bytes of base64.

    Raises:
        Unattachable: It is not base64, or longer than any accepted file.
    """
    if len(text) > MAX_BASE64:
        raise Unattachable(f"{name} is too large to be shown: the limit is {MAX_PDF_BYTES:,} bytes.")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unattachable(f"The content of {name} is not base64.") from None


def decode_data_url(name: str, url: str) -> bytes:
    """Return the content of a ``data:`` URL.

    Raises:
        Unattachable: It is another URL, which is never fetched, or its content is not base64.
    """
    header, comma, data = url.partition(",")
    if header[:5].lower() != "data:":
        raise Unattachable("Only data: URLs are accepted: the server does not fetch files. Send the content in base64.")
    if not comma or not header.lower().endswith(";base64"):
        raise Unattachable(f"The URL of {name} has no base64: data:image/png;base64,…")
    return decode_base64(name, data)


def default_name(body: bytes, number: int) -> str:
    """Return a name for a file that was sent without one."""
    suffix = _SUFFIXES.get(media_type_of(body) or "", "")
    return f"{'document' if suffix == '.pdf' else 'image'}-{number}{suffix}"


def attachment_of_media(medium: Mapping[str, Any], number: int) -> Attachment | None:
    """Return an image or a PDF of a result; None if it is something else.

    Raises:
        Unattachable: It claims to be an image or a PDF, and cannot be shown.
    """
    claimed, data = str(medium.get("mime_type") or ""), medium.get("data")
    if not isinstance(data, str) or not (claimed.startswith("image/") or claimed == PDF_TYPE):
        return None
    name = medium.get("name") or f"{medium.get('type', 'image')} {number}"
    return attachment(str(name)[:LONGEST_NAME], decode_base64(str(name), data))
