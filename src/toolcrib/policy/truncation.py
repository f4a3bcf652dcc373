"""Truncates results for models. The size is that of the compact JSON text in UTF-8.

A truncated result keeps its structure: long strings lose their middle, long lists and objects their end, and each says
how much is missing. A ``truncated`` field is set to true. The caller says where the whole can be read. The cost is one
encoding of the result, and another one of its largest parts for every level that is opened.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

# What a model gets of a result by default.
MODEL_RESULT_BYTES: Final = 60_000
SMALLEST_LIMIT: Final = 256

# How far the parts of a list or an object are cut before the last ones are dropped.
_ITEM_FLOOR = 2_048
_VALUE_FLOOR = 96
# Deeper than this, large values are cut as text: opening every level would cost too much.
_LEVELS = 16
# Deeper than this, some encoders fail.
_DEEPEST = 100
# Python does not print longer numbers.
_MOST_BITS = 10_000

# The delimiters of a text, list or object; also the least that any of them takes.
_ENDS = 2
_COMMA = 1
_COLON = 1


@dataclass(frozen=True, slots=True)
class Truncated:
    """A result that fits, whether something is missing, and its original size."""

    value: Any
    was_truncated: bool
    total_bytes: int


def truncate(result: Any, *, limit_bytes: int) -> Truncated:
    """Return ``result`` unchanged if its JSON text fits into ``limit_bytes``, otherwise as much of it as fits."""
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
    """Return as much of the start of a text as takes ``limit_bytes`` in JSON."""
    return _prefix(text[:limit_bytes], limit_bytes - _ENDS)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode


def _size(value: Any) -> int:
    return _bytes_in(_encode(value))


def _bytes_in(text: str) -> int:
    # A lone surrogate is not valid text, but it has a size.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _encodable(value: Any, level: int = 0) -> Any:
    """Replace numbers that JSON does not have, and what is nested too deeply."""
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
    """Cut ``value``, which is larger than ``budget``, to at most that many bytes. ``budget`` is at least two."""
    if isinstance(value, str):
        return _cut_text(value, budget)
    if isinstance(value, dict) and level < _LEVELS:
        return _cut_object(value, budget, level)
    if isinstance(value, list | tuple) and level < _LEVELS:
        return _cut_list(value, budget, level)
    return _cut_text(_encode(value), budget)


def _cut_text(text: str, budget: int) -> str:
    """Keep head and tail, with the number of missing bytes in between."""
    total = _bytes_in(text)
    half = (budget - _size(_gap(total))) // 2
    if half < 1:
        return ""
    head = _prefix(text[:half], half)
    tail = _prefix(text[-half:][::-1], half)[::-1]
    return head + _gap(total - _bytes_in(head) - _bytes_in(tail)) + tail


def _gap(missing: int) -> str:
    return f"\n[… {missing:,} bytes truncated …]\n"


def _prefix(text: str, room: int) -> str:
    """Return as much of the start as takes ``room`` bytes in JSON, where some characters are escaped."""
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
    return f"[… {missing:,} more {what} truncated …]"


def _shares(parts: Iterable[tuple[int, Any]], room: int, floor: int) -> tuple[list[int], int]:
    """Return the sizes of the parts that stay, and the byte limit for each.

    A part comes with the bytes of its frame. Leading parts stay while they fit with at most ``floor`` bytes each. Then
    small parts stay whole, and large ones share the rest evenly.
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
    """Return the size to which the larger parts must be cut so that all fit."""
    for before, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - before)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)
