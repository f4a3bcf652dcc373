"""Converts between bytes on disk and what a reader sees: lines of text, a JSON value, or base64."""

import base64
import binascii
import codecs
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pydantic_core import from_json

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import FILE_MODE, ContentKind, EntryKind, EntryState
from toolcrib.core.paths import WorkspacePath


def encode_content(value: Any) -> tuple[bytes, ContentKind]:
    """Encode a value for storage: a string as its bytes, base64 as ``decode_content`` returns it, all else as JSON."""
    match value:
        case {"encoding": "base64", "data": str(data), **others} if not others:
            return _decode_base64(data), ContentKind.TEXT
    try:
        if isinstance(value, str):
            return value.encode(), ContentKind.TEXT
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        return text.encode(), ContentKind.JSON
    except UnicodeEncodeError as error:
        raise BadArguments({"content": f"Not valid Unicode at character {error.start}: a lone surrogate."}) from None
    except (ValueError, RecursionError) as error:
        raise BadArguments({"content": f"Not a value that JSON can hold: {error}. Send null or a string."}) from None


def _decode_base64(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadArguments({"content": f"Not valid base64: {error}."}) from None


def decode_content(body: bytes, kind: ContentKind = ContentKind.TEXT) -> Any:
    """Decode content for a reader: a JSON value, a string, or an object with base64 for binary data."""
    if kind is ContentKind.JSON:
        try:
            # Stricter than the standard library: the result can be written as JSON again.
            return from_json(body, allow_inf_nan=False)
        except ValueError:
            pass  # It was edited by hand, so it is text.
    if is_binary(body):
        return {"encoding": "base64", "data": base64.b64encode(body).decode()}
    return body.decode("utf-8", "replace")


def file_state(
    path: WorkspacePath, body: bytes, *, mode: int = FILE_MODE, content: ContentKind = ContentKind.TEXT
) -> EntryState:
    """Build the state of a file with these bytes."""
    kind = ContentKind.BINARY if is_binary(body) else content
    return EntryState(
        path=path,
        kind=EntryKind.FILE,
        mode=mode,
        sha256=sha256(body).digest(),
        size=len(body),
        line_count=None if kind is ContentKind.BINARY else line_count(body),
        content_kind=kind,
    )


# Bytes that decide whether a file is text.
SNIFFED = 8192


def is_binary(body: bytes) -> bool:
    """Whether content is binary, as grep and git judge: a NUL near the start."""
    return b"\0" in body[:SNIFFED]


def line_count(body: bytes) -> int:
    """Count lines. A last line without a line end counts too."""
    return body.count(b"\n") + (not body.endswith(b"\n") and bool(body))


@dataclass(frozen=True, slots=True)
class LineWindow:
    """Some lines of a text. ``offset`` is where they really start; ``truncated`` means that more follow."""

    text: str
    offset: int
    total_lines: int
    truncated: bool


def line_window(text: str, *, offset: int, limit: int | None) -> LineWindow:
    """Return at most ``limit`` lines from ``offset``, which counts from the end if negative."""
    if offset == 0 and limit is not None and text.count("\n") < limit:
        return LineWindow(text, 0, text.count("\n") + (not text.endswith("\n") and bool(text)), truncated=False)
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    total = len(lines)
    start = max(0, total + offset) if offset < 0 else min(offset, total)
    end = total if limit is None else min(total, start + limit)
    chosen = "\n".join(lines[start:end])
    # The last line has an end unless it is the text's last and had none.
    if end > start and (end < total or text.endswith("\n")):
        chosen += "\n"
    return LineWindow(chosen, start, total, truncated=end < total)


class HeadTailReader:
    """Reads a stream of pieces. Keeps lines ``first`` to ``last`` (from 1, inclusive) up to ``limit`` bytes.

    Also computes the size and the hash of the whole stream.
    """

    def __init__(self, *, limit: int, first: int = 1, last: int | None = None) -> None:
        self.size = 0
        self._limit = limit
        self._kept = bytearray()
        self._digest = sha256()
        # Line ends still to skip before the kept part, and within it.
        self._before = first - 1
        self._within = None if last is None else last - first + 1

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the stream."""
        self._digest.update(piece)
        self.size += len(piece)
        start, passed = _past(piece, self._before)
        self._before -= passed
        if self._before or len(self._kept) > self._limit:
            return
        end = len(piece)
        if self._within is not None:
            end, passed = _past(piece, self._within, start)
            self._within -= passed
        # One byte more than fits, to detect that there was more.
        self._kept += piece[start : min(end, start + self._limit + 1 - len(self._kept))]

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def cut(self) -> bool:
        """Whether the requested lines exceed the limit."""
        return len(self._kept) > self._limit

    @property
    def text(self) -> str:
        """The kept text. Drops a character that the limit cuts in two; replaces what is not UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(bytes(self._kept[: self._limit]), final=not self.cut)


def _past(piece: bytes, ends: int, start: int = 0) -> tuple[int, int]:
    """Skip a number of line ends. Returns the position after them, or the end, and how many were skipped."""
    passed = 0
    while passed < ends:
        found = piece.find(b"\n", start)
        if found == -1:
            return len(piece), passed
        start = found + 1
        passed += 1
    return start, passed
