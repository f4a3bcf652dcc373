"""Edits on a file's bytes: replacing a passage, inserting lines. Pure; whatever is not touched stays as it is."""

from toolcrib.domain.errors import BadArguments

# How many lines are named when a passage stands in several places.
_NAMED_LINES = 10


def replaced(body: bytes, old: str, new: str) -> bytes:
    """``body`` with the one place where ``old`` stands replaced by ``new``."""
    if not old:
        raise BadArguments({"old_string": "Must not be empty. To add text, use insert_line and insert_content."})
    passage = _bytes(old, "old_string")
    lines = _lines_of(body, passage, most=_NAMED_LINES + 1)
    if not lines:
        raise BadArguments({"old_string": "Not found in the file. Read it again and copy the passage exactly."})
    if len(lines) > 1:
        count = max(len(lines), body.count(passage))
        shown = ", ".join(str(line) for line in lines[:_NAMED_LINES]) + (" …" if len(lines) > _NAMED_LINES else "")
        raise BadArguments(
            {"old_string": f"Found {count} times (lines {shown}); it must be unique. Include more of the text."}
        )
    return body.replace(passage, _bytes(new, "new_string"), 1)


def inserted(body: bytes, line: int, content: str) -> bytes:
    """``body`` with ``content`` put before the line of that number, counted from 0; the last number appends."""
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


def _split(body: bytes) -> list[bytes]:
    parts = body.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _lines_of(body: bytes, passage: bytes, *, most: int) -> list[int]:
    """The numbers, from 1, of the first lines where a passage begins. It may overlap itself."""
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
