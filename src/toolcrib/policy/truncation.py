"""Bounds what a model gets of a result. Where the whole can be fetched is said by whoever keeps it.

A result's size is that of its JSON text: compact, in UTF-8. A result that is too large keeps its shape: long
strings lose their middle, long lists and objects their end, and each says how much is missing. One that says whether it
is ``truncated`` says so.
The cost is one encoding of the result, and of its largest parts again for every level that has to be opened.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

SMALLEST_LIMIT: Final = 256

# How far the parts of a list or an object are cut down before the last of them are dropped.
_ITEM_FLOOR = 2_048
_VALUE_FLOOR = 96
# Deeper than this, what is too large is cut as text: to open every level would cost more than it tells.
_LEVELS = 16
# Deeper than this, a value cannot be encoded everywhere.
_DEEPEST = 100
# Longer numbers Python does not write out.
_MOST_BITS = 10_000

# What encloses a text, a list or an object; also the least that any of them takes.
_ENDS = 2
_COMMA = 1
_COLON = 1


@dataclass(frozen=True, slots=True)
class Truncated:
    """A result that fits, whether something of it is missing, and how large it was."""

    value: Any
    was_truncated: bool
    total_bytes: int


def truncate(result: Any, *, limit_bytes: int) -> Truncated:
    """``result`` unchanged if its JSON text fits into ``limit_bytes``, else as much of it as does."""
    if limit_bytes < SMALLEST_LIMIT:
        raise ValueError(f"limit_bytes is {limit_bytes}; at least {SMALLEST_LIMIT} is needed.")
    value = result
    try:
        size = _size(value)
    except (ValueError, RecursionError):
        value = _encodable(value)
        size = _size(value)
    if size > limit_bytes:
        value = _cut(value, limit_bytes)
        if isinstance(value, dict) and value.get("truncated") is False:
            value["truncated"] = True
    return Truncated(value, was_truncated=value is not result, total_bytes=size)


def head(text: str, *, limit_bytes: int) -> str:
    """As much of the beginning of a text as takes ``limit_bytes`` in JSON."""
    return _prefix(text[:limit_bytes], limit_bytes - _ENDS)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode


def _size(value: Any) -> int:
    return _bytes_in(_encode(value))


def _bytes_in(text: str) -> int:
    # Half of a surrogate pair is no text, but it has a size.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _encodable(value: Any, level: int = 0) -> Any:
    """``value`` without the numbers that JSON lacks, and without what is nested too deeply."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"[… a number of {value.bit_length():,} bits …]"
    if not isinstance(value, dict | list | tuple):
        return value
    if level == _DEEPEST:
        return f"[… nested more than {_DEEPEST} levels deep …]"
    if isinstance(value, dict):
        return {key: _encodable(item, level + 1) for key, item in value.items()}
    return [_encodable(item, level + 1) for item in value]


def _cut(value: Any, budget: int, level: int = 0) -> Any:
    """``value``, which is larger than ``budget``, in at most so many bytes. There are at least two."""
    if isinstance(value, str):
        return _cut_text(value, budget)
    if isinstance(value, dict) and level < _LEVELS:
        return _cut_object(value, budget, level)
    if isinstance(value, list | tuple) and level < _LEVELS:
        return _cut_list(value, budget, level)
    return _cut_text(_encode(value), budget)


def _cut_text(text: str, budget: int) -> str:
    """The head and the tail, and between them how many bytes are missing."""
    total = _bytes_in(text)
    half = (budget - _size(_gap(total))) // 2
    if half < 1:
        return ""
    head = _prefix(text[:half], half)
    tail = _prefix(text[-half:][::-1], half)[::-1]
    return head + _gap(total - _bytes_in(head) - _bytes_in(tail)) + tail


def _gap(missing: int) -> str:
    return f"\n[… {missing:,} bytes cut …]\n"


def _prefix(text: str, room: int) -> str:
    """As much of the beginning as takes ``room`` bytes in JSON, where some characters are escaped."""
    taken = range(len(text) + 1)
    return text[: bisect_right(taken, room, key=lambda count: _size(text[:count]) - _ENDS) - 1]


def _cut_list(items: list[Any] | tuple[Any, ...], budget: int, level: int) -> list[Any]:
    room = budget - _ENDS - _size(_more(len(items), "items"))
    sizes, cap = _shares(((_COMMA, item) for item in items), room, _ITEM_FLOOR)
    shown = [item if size <= cap else _cut(item, cap, level + 1) for item, size in zip(items, sizes, strict=False)]
    missing = len(items) - len(shown)
    return [*shown, _more(missing, "items")] if missing and room >= 0 else shown


def _cut_object(entries: dict[Any, Any], budget: int, level: int) -> dict[str, Any]:
    room = budget - _ENDS - _size("…") - _COLON - _size(_more(len(entries), "entries"))
    parts = ((_size(str(key)) + _COLON + _COMMA, item) for key, item in entries.items())
    sizes, cap = _shares(parts, room, _VALUE_FLOOR)
    shown = {
        str(key): item if size <= cap else _cut(item, cap, level + 1)
        for (key, item), size in zip(entries.items(), sizes, strict=False)
    }
    missing = len(entries) - len(sizes)
    return {**shown, "…": _more(missing, "entries")} if missing and room >= 0 else shown


def _more(missing: int, what: str) -> str:
    return f"[… {missing:,} more {what} cut …]"


def _shares(parts: Iterable[tuple[int, Any]], room: int, floor: int) -> tuple[list[int], int]:
    """The sizes of the parts that stay, and how many bytes each of them may have.

    A part comes with the bytes that frame it. The leading ones stay for which there is room once none is
    larger than ``floor``; then the small ones stay whole and the large ones share evenly what is left.
    """
    floor = min(floor, room // 2)
    if floor < _ENDS:
        return [], 0
    sizes: list[int] = []
    needed = frames = 0
    for frame, value in parts:
        size = _size(value)
        needed += frame + min(size, floor)
        if needed > room:
            break
        frames += frame
        sizes.append(size)
    return sizes, _cap(sizes, room - frames)


def _cap(sizes: list[int], room: int) -> int:
    """The size to which the larger ones must be cut so that all fit."""
    for before, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - before)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)
