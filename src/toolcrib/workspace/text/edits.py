"""Edits a file's bytes: replaces a passage or inserts lines. Everything else stays byte for byte."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from toolcrib.core.errors import BadArguments
from toolcrib.workspace.text.closest_match import COPY_EXACTLY, explain_no_match
from toolcrib.workspace.text.content import is_binary

# How many lines an error names when a passage occurs several times.
_NAMED_LINES = 10

_CRLF_KEPT = "The file uses CRLF line ends: old_string was matched and new lines were inserted with CRLF."


@dataclass(frozen=True, slots=True)
class ReplaceEdit:
    """Replaces ``old`` by ``new``. ``old`` must occur exactly once."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class InsertEdit:
    """Inserts ``content`` before a line, counted from 0. The number of lines appends."""

    line: int
    content: str


Edit = ReplaceEdit | InsertEdit


class EditedText(NamedTuple):
    """The result of an edit. ``note`` says what was done differently than requested, to suit the file."""

    body: bytes
    note: str | None = None


def edited_by_all(body: bytes, edits: Sequence[Edit], *, explains: bool = True) -> EditedText:
    """Apply the edits in order, each to the result of the one before.

    Args:
        explains: Whether an error explains what may help. That may take long.

    Raises:
        BadArguments: An edit cannot be applied. Names the first one.
    """
    note = None
    for number, edit in enumerate(edits):
        try:
            result = edited(body, edit, explains=explains)
        except BadArguments as error:
            raise BadArguments({f"edits.{number}.{field}": why for field, why in error.fields.items()}) from None
        body, note = result.body, note or result.note
    return EditedText(body, note)


def edited(body: bytes, edit: Edit, *, explains: bool = True) -> EditedText:
    """Apply an edit in the file's own encoding and with its own line ends."""
    if encoding := _wide_encoding(body):
        mark, text = body[:2], body[2:].decode(encoding, "surrogatepass")
        inner = edited(text.encode("utf-8", "surrogatepass"), edit, explains=explains)
        wide = inner.body.decode("utf-8", "surrogatepass").encode(encoding, "surrogatepass")
        return EditedText(mark + wide, inner.note)
    match edit:
        case ReplaceEdit(old, new):
            _require_same_encoding(body, new, "new_string")
            kept = _with_line_ends_of(body, old, new)
            return EditedText(replaced(body, *kept, explains=explains), _CRLF_KEPT if kept != (old, new) else None)
        case InsertEdit(line, content):
            if is_binary(body):
                raise BadArguments({"insert_line": "The file is not text, so it has no lines to insert between."})
            _require_same_encoding(body, content, "insert_content")
            # A byte order mark belongs to the file, not to its first line.
            mark = codecs.BOM_UTF8 if body.startswith(codecs.BOM_UTF8) else b""
            kept_content = _crlf(content) if _ends_lines_in_crlf(body) else content
            result = mark + inserted(body.removeprefix(mark), line, kept_content)
            return EditedText(result, _CRLF_KEPT if kept_content != content else None)
        case _:
            assert_never(edit)


def replaced(body: bytes, old: str, new: str, *, explains: bool = True) -> bytes:
    """Replace the only occurrence of ``old`` by ``new``."""
    if not old:
        raise BadArguments({"old_string": "Must not be empty. To add text, use insert_line and insert_content."})
    passage = _bytes(old, "old_string")
    lines = _lines_of(body, passage, most=_NAMED_LINES + 1)
    if not lines:
        why = explain_no_match(body.decode("utf-8", "replace"), old, new) if explains else COPY_EXACTLY
        raise BadArguments({"old_string": f"Not found in the file. {why}"})
    if len(lines) > 1:
        count = max(len(lines), body.count(passage))
        shown = ", ".join(str(line) for line in lines[:_NAMED_LINES]) + (" …" if len(lines) > _NAMED_LINES else "")
        raise BadArguments(
            {"old_string": f"Found {count} times (lines {shown}); it must be unique. Include more of the text."}
        )
    return body.replace(passage, _bytes(new, "new_string"), 1)


def inserted(body: bytes, line: int, content: str) -> bytes:
    """Insert ``content`` before a line, counted from 0. The number of lines appends."""
    lines = _split(body)
    if not 0 <= line <= len(lines):
        raise BadArguments({"insert_line": f"The file has {len(lines)} lines; give a number from 0 to {len(lines)}."})
    addition = _bytes(content, "insert_content")
    ending = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    if addition and not addition.endswith(b"\n"):
        addition += ending
    before = b"".join(lines[:line])
    if addition and before and not before.endswith(b"\n"):
        before += ending
    return before + addition + b"".join(lines[line:])


def _wide_encoding(body: bytes) -> str | None:
    """Return the UTF-16 variant that the byte order mark declares, if the length fits."""
    if body.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) or len(body) % 2:
        return None
    if body.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    return "utf-16-be" if body.startswith(codecs.BOM_UTF16_BE) else None


def _require_same_encoding(body: bytes, text: str, field: str) -> None:
    """Raise if the new text would give the file two encodings."""
    if text.isascii():
        return
    try:
        body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise BadArguments(
            {
                field: f"The file is not UTF-8 (byte 0x{body[error.start]:02x} in line {line}), so only ASCII "
                "can be inserted. Rewrite it in UTF-8, or use ASCII."
            }
        ) from None


def _with_line_ends_of(body: bytes, old: str, new: str) -> tuple[str, str]:
    """Use CRLF for LF in both texts where the file has CRLF."""
    wanted, as_crlf = (text.encode("utf-8", "surrogatepass") for text in (old, _crlf(old)))
    if old and wanted not in body and as_crlf in body:
        return _crlf(old), _crlf(new)
    return (old, _crlf(new)) if _ends_lines_in_crlf(body) else (old, new)


def _ends_lines_in_crlf(body: bytes) -> bool:
    ends = body.count(b"\n")
    return 0 < ends == body.count(b"\r\n")


def _crlf(text: str) -> str:
    """Convert line ends to CRLF, unless the text already has carriage returns."""
    return text if "\r" in text else text.replace("\n", "\r\n")


def _split(body: bytes) -> list[bytes]:
    parts = body.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _lines_of(body: bytes, passage: bytes, *, most: int) -> list[int]:
    """Return the line numbers, from 1, of the first occurrences of a passage. It may overlap itself."""
    found: list[int] = []
    at = body.find(passage)
    while at != -1 and len(found) < most:
        found.append(body.count(b"\n", 0, at) + 1)
        at = body.find(passage, at + 1)
    return found


def _bytes(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadArguments({field: f"Not valid Unicode at character {error.start}: a lone surrogate."}) from None
