"""Splits a change of a text into hunks that can be reverted one by one, and says whose changes each hunk has."""

import re
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from toolcrib.workspace.text.text_diff import diff_line, equal_runs, line_range, lines_of

_CONTEXT = 3
# More versions than this by alternating authors are not followed: every hunk then counts as changed by both.
_MOST_STEPS = 40

# A version between the two texts, and whether the reviewed author wrote it.
Step = tuple[bytes, bool]


# Whose changes a hunk has: the agent's, other people's, or both in the same lines.
HunkAuthor = Literal["agent", "others", "both"]


class Hunk(NamedTuple):
    """One change with its context lines. ``id`` is a hash of its position and its changed lines."""

    id: str
    text: str
    added: int
    removed: int
    author: HunkAuthor


def split_hunks(before: bytes, after: bytes, steps: Sequence[Step] = ()) -> list[Hunk]:
    """Return the hunks from ``before`` to ``after``.

    Args:
        steps: The versions in between if others wrote some, oldest first; the last one is ``after``. Changes close to
            each other are then separate hunks, because they may have different authors.
    """
    return _split(before, after, steps).hunks


class DiffWindow(NamedTuple):
    """Which lines of a change are shown: from which one on, and how many lines and characters at most."""

    first: int
    lines: int
    characters: int


class HunkPage(NamedTuple):
    """The lines of a change that are in a window.

    A hunk that continues on other pages is on each of them with the lines that belong there, and a header for these.

    Attributes:
        hunks: How many the change has.
        next: Where the next page begins; ``None`` if nothing is left.
    """

    shown: list[Hunk]
    hunks: int
    lines: int
    added: int
    removed: int
    next: int | None


def page_of_change(before: bytes, after: bytes, steps: Sequence[Step], window: DiffWindow) -> HunkPage:
    """Return the lines of a change that are in the window; at least one line, however long it is."""
    hunks = split_hunks(before, after, steps)
    shown: list[Hunk] = []
    room, characters, number, following = window.lines, window.characters, 0, None
    for hunk in hunks:
        lines = _lines_of_hunk(hunk.text)
        start, number = number, number + len(lines)
        if following is not None or number <= window.first:
            continue
        first = max(0, window.first - start)
        last = first
        while last < len(lines) and room > 0 and (characters >= len(lines[last]) or (not shown and last == first)):
            room, characters, last = room - 1, characters - len(lines[last]), last + 1
        if last > first:
            shown.append(
                hunk if last - first == len(lines) else hunk._replace(text=_part(hunk.text, lines, first, last))
            )
        if last < len(lines):
            following = start + last
    added, removed = (sum(getattr(hunk, what) for hunk in hunks) for what in ("added", "removed"))
    return HunkPage(shown, len(hunks), number, added, removed, following)


def revert_hunks(before: bytes, after: bytes, ids: Collection[str], steps: Sequence[Step] = ()) -> bytes:
    """Return ``after`` with these hunks as in ``before``. Raises ``KeyError`` with an id that is not a hunk's."""
    old, new, ranges, hunks = _split(before, after, steps)
    unknown = set(ids).difference(hunk.id for hunk in hunks)
    if unknown:
        raise KeyError(min(unknown))
    lines: list[str] = []
    done = 0
    for hunk, (i, i_end, j, j_end) in zip(hunks, ranges, strict=True):
        lines += new[done:j]
        lines += old[i:i_end] if hunk.id in ids else new[j:j_end]
        done = j_end
    lines += new[done:]
    return "".join(lines).encode("utf-8", "surrogateescape")


# The lines of a change: from and to on the old side, from and to on the new side.
_Range = tuple[int, int, int, int]


class _Split(NamedTuple):
    old: list[str]
    new: list[str]
    ranges: list[_Range]
    hunks: list[Hunk]


def _split(before: bytes, after: bytes, steps: Sequence[Step]) -> _Split:
    old, new = _lines(before), _lines(after)
    # Changes that would share context lines are one hunk, unless they may have different authors.
    groups = _grouped(_changes(old, new), 0 if steps else 2 * _CONTEXT)
    ranges = [(group[0][0], group[-1][1], group[0][2], group[-1][3]) for group in groups]
    authors = _Authors.after(old, steps) if steps else None
    hunks = []
    for number, (group, (i, i_end, j, j_end)) in enumerate(zip(groups, ranges, strict=True)):
        first = max(ranges[number - 1][1] if number else 0, i - _CONTEXT)
        last = min(ranges[number + 1][0] if number + 1 < len(ranges) else len(old), i_end + _CONTEXT)
        hunks.append(
            Hunk(
                id=_id(i, j, old[i:i_end], new[j:j_end]),
                text=_text(old, new, group, first, last),
                added=sum(to - start for _, _, start, to in group),
                removed=sum(to - start for start, to, _, _ in group),
                author=authors.of(j, j_end) if authors else "agent",
            )
        )
    return _Split(old, new, ranges, hunks)


def _lines(body: bytes) -> list[str]:
    # Bytes that are not UTF-8 survive the way back.
    return lines_of(body, errors="surrogateescape")


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Range]:
    found: list[_Range] = []
    i = j = 0
    for a, b, length in [*equal_runs(old, new), (len(old), len(new), 0)]:
        if (i, j) != (a, b):
            found.append((i, a, j, b))
        i, j = a + length, b + length
    return found


def _grouped(changes: Sequence[_Range], distance: int) -> list[list[_Range]]:
    groups: list[list[_Range]] = []
    for change in changes:
        if groups and change[0] - groups[-1][-1][1] <= distance:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _id(i: int, j: int, old: Sequence[str], new: Sequence[str]) -> str:
    content = "\0".join([f"{i},{j},{len(old)}", *old, *new])
    return sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _text(old: Sequence[str], new: Sequence[str], changes: Sequence[_Range], first: int, last: int) -> str:
    """Render a hunk as in a unified diff, from line ``first`` to ``last`` of the old side."""
    (i, _, j, _), (_, i_end, _, j_end) = changes[0], changes[-1]
    rendered = [f"@@ -{line_range(first, last)} +{line_range(first + j - i, last + j_end - i_end)} @@\n"]
    at = first
    for start, end, new_start, new_end in changes:
        rendered += [diff_line(" ", line) for line in old[at:start]]
        rendered += [diff_line("-", line) for line in old[start:end]]
        rendered += [diff_line("+", line) for line in new[new_start:new_end]]
        at = end
    rendered += [diff_line(" ", line) for line in old[at:last]]
    return "".join(rendered).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def _lines_of_hunk(text: str) -> list[str]:
    """Return the lines of a rendered hunk without its header, each with the remark that it has no end."""
    lines: list[str] = []
    for line in re.findall(r"[^\n]*\n", text)[1:]:
        if line.startswith("\\"):
            lines[-1] += line
        else:
            lines.append(line)
    return lines


def _part(text: str, lines: Sequence[str], first: int, last: int) -> str:
    """Render some lines of a hunk with a header of their own."""
    header = _HEADER.match(text)
    assert header is not None
    # A range without lines names the line before it.
    old, new = (int(start) - (count != "0") for start, count in (header.group(1, 2), header.group(3, 4)))
    old += sum(not line.startswith("+") for line in lines[:first])
    new += sum(not line.startswith("-") for line in lines[:first])
    old_end = old + sum(not line.startswith("+") for line in lines[first:last])
    new_end = new + sum(not line.startswith("-") for line in lines[first:last])
    return f"@@ -{line_range(old, old_end)} +{line_range(new, new_end)} @@\n" + "".join(lines[first:last])


_AGENT, _OTHERS = 1, 2


class _Authors:
    """Who changed the lines of a text, and what was removed between them, since the first version.

    A line that replaces others has their authors too: reverting it would revert them.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._text = list(lines)
        self._lines = [0] * len(self._text)
        # Before each line, and after the last one.
        self._gaps = [0] * (len(self._text) + 1)

    @classmethod
    def after(cls, first: Sequence[str], steps: Sequence[Step]) -> "_Authors":
        """Follow the versions from the first text."""
        authors = cls(first)
        if len(steps) > _MOST_STEPS:
            final = cls(_lines(steps[-1][0]))
            final._gaps = [_AGENT | _OTHERS] * len(final._gaps)
            return final
        for body, is_agent in steps:
            authors._step(_lines(body), _AGENT if is_agent else _OTHERS)
        return authors

    def of(self, start: int, end: int) -> HunkAuthor:
        """Return the authors of a change of these lines."""
        found = 0
        for one in (*self._lines[start:end], *self._gaps[start : end + 1]):
            found |= one
        return "agent" if found == _AGENT else "others" if found == _OTHERS else "both"

    def _step(self, text: list[str], author: int) -> None:
        lines, gaps = [0] * len(text), [0] * (len(text) + 1)
        i = j = 0
        for a, b, length in [*equal_runs(self._text, text), (len(self._text), len(text), 0)]:
            if (i, j) != (a, b):
                found = author
                for one in (*self._lines[i:a], *self._gaps[i : a + 1]):
                    found |= one
                lines[j:b] = [found] * (b - j)
                if j == b:
                    gaps[j] |= found
            else:
                gaps[j] |= self._gaps[i]
            lines[b : b + length] = self._lines[a : a + length]
            for offset in range(1, length):
                gaps[b + offset] |= self._gaps[a + offset]
            i, j = a + length, b + length
        self._text, self._lines, self._gaps = text, lines, gaps
