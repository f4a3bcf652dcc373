"""Line diffs between two contents, in bounded time.

``difflib`` alone takes cubic time at worst, so it only gets small gaps: equal lines at both ends are skipped, the rest
is split at lines that occur once on either side, and larger gaps are compared by Myers' method while they differ
little. What is left when the work budget is spent counts as replaced.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

MOST_BYTES = 2_000_000
# Takes a few milliseconds at most.
_QUICK_BYTES = 65_536
_QUICK_PAIRS = 40_000
# Steps of all kinds in one comparison; a million take about a second.
_WORK = 3_000_000
# The most lines that may differ in a gap that is not small.
_MOST_DIFFERENCES = 400

_UNSTORABLE = re.compile("[\\x00\\udc80-\\udcff]")


# Two contents and their names.
Pair = tuple[bytes, bytes, tuple[str, str]]


class TextDiff(NamedTuple):
    """The number of added and removed lines, and the unified diff."""

    added: int
    removed: int
    text: str


def unified(before: bytes, after: bytes, names: tuple[str, str], *, context: int = 3) -> TextDiff:
    """Compare two texts. The caller ensures that both are text and not too large."""
    old, new = lines_of(before), lines_of(after)
    runs = equal_runs(old, new)
    removed, added = (len(lines) - sum(length for _, _, length in runs) for lines in (old, new))
    return TextDiff(added, removed, "".join(_render_hunks(old, new, runs, names, context)))


def unified_within(pairs: Sequence[Pair], room: int) -> list[TextDiff | None]:
    """Compare each pair while ``room`` for the texts lasts; ``None`` beyond it."""
    found: list[TextDiff | None] = []
    for before, after, names in pairs:
        diff = unified(before, after, names) if room > 0 else None
        if diff is not None and len(diff.text) <= room:
            room -= len(diff.text)
            found.append(diff)
        else:
            found.append(None)
    return found


def are_quick(pairs: Sequence[Pair]) -> bool:
    """Whether comparing them takes less time than a call to a worker."""
    if sum(len(before) + len(after) for before, after, _ in pairs) > _QUICK_BYTES:
        return False
    return sum((one.count(b"\n") + 1) * (other.count(b"\n") + 1) for one, other, _ in pairs) <= _QUICK_PAIRS


# A run of equal lines: its start on either side, and its length.
_Run = tuple[int, int, int]


def lines_of(body: bytes, *, errors: str = "surrogateescape") -> list[str]:
    """Split a text into lines with their ends. Different bytes that are no UTF-8 become different surrogates."""
    # Only ``\n`` ends a line, as everywhere here; ``splitlines`` would also break at form feeds and the like.
    return re.findall(r"[^\n]*\n|[^\n]+", body.decode("utf-8", errors))


class _Work:
    """The remaining work budget."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def is_left(self, steps: int) -> bool:
        """Spend a number of steps if the budget allows. Returns whether it does."""
        if steps > self._steps:
            return False
        self._steps -= steps
        return True


def equal_runs(old: Sequence[str], new: Sequence[str]) -> list[_Run]:
    """Return the runs that did not change, in order."""
    work = _Work(_WORK + len(old) + len(new))
    runs: list[_Run] = []
    gaps = [(0, len(old), 0, len(new))]
    while gaps:
        i, i_end, j, j_end = gaps.pop()
        start, end = _ends(old[i:i_end], new[j:j_end])
        runs += [(i, j, start)] if start else []
        runs += [(i_end - end, j_end - end, end)] if end else []
        i, i_end, j, j_end = i + start, i_end - end, j + start, j_end - end
        lines, others = old[i:i_end], new[j:j_end]
        pairs = len(lines) * len(others)
        if not pairs or not work.is_left(len(lines) + len(others)):
            continue
        if pairs <= _QUICK_PAIRS:
            if work.is_left(pairs):
                found = SequenceMatcher(None, lines, others, autojunk=False).get_matching_blocks()
                runs += [(i + a, j + b, length) for a, b, length in found if length]
            continue
        anchors = _anchors(lines, others)
        if not anchors:
            runs += [(i + a, j + b, length) for a, b, length in _little_changed(lines, others, work)]
            continue
        from_i, from_j = i, j
        for a, b in anchors:
            gaps.append((from_i, i + a, from_j, j + b))
            runs.append((i + a, j + b, 1))
            from_i, from_j = i + a + 1, j + b + 1
        gaps.append((from_i, i_end, from_j, j_end))
    return _joined(sorted(runs))


def _ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Count equal lines at the start, and at the end of the rest."""
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    most -= start
    end = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    return start, end


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return lines that occur once on either side, as many as are in the same order on both."""
    there = Counter(new)
    once = {line for line, count in Counter(old).items() if count == 1 and there[line] == 1}
    paths = {line: j for j, line in enumerate(new) if line in once}
    # Longest increasing subsequence: for each length, keep the one with the lowest end.
    lowest: list[int] = []
    rows: list[tuple[int, int, int]] = []
    ends: list[int] = []
    for i, line in enumerate(old):
        if line not in once:
            continue
        j = paths[line]
        length = bisect_left(lowest, j)
        rows.append((i, j, ends[length - 1] if length else -1))
        lowest[length : length + 1] = [j]
        ends[length : length + 1] = [len(rows) - 1]
    found: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        i, j, at = rows[at]
        found.append((i, j))
    return found[::-1]


def _little_changed(old: Sequence[str], new: Sequence[str], work: _Work) -> list[_Run]:
    """Return equal runs of two texts that differ in few lines (Myers, 1986); empty if they differ in more."""
    furthest = {1: 0}
    passed: list[dict[int, int]] = []
    for differences in range(_MOST_DIFFERENCES + 1):
        if not work.is_left(2 * (differences + 1)):
            return []
        passed.append(dict(furthest))
        for diagonal in range(-differences, differences + 1, 2):
            down = diagonal == -differences or (
                diagonal != differences and furthest[diagonal - 1] < furthest[diagonal + 1]
            )
            i = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            from_i = i
            while i < len(old) and 0 <= i - diagonal < len(new) and old[i] == new[i - diagonal]:
                i += 1
            if not work.is_left(i - from_i):
                return []
            furthest[diagonal] = i
            if i >= len(old) and i - diagonal >= len(new):
                return _way_back(passed, len(old), len(new))
    return []


def _way_back(passed: Sequence[dict[int, int]], i: int, j: int) -> list[_Run]:
    runs: list[_Run] = []
    for differences in range(len(passed) - 1, -1, -1):
        furthest, diagonal = passed[differences], i - j
        down = diagonal == -differences or (diagonal != differences and furthest[diagonal - 1] < furthest[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        from_i = furthest[before] if differences else 0
        start = from_i if down or not differences else from_i + 1
        if i > start:
            runs.append((start, start - diagonal, i - start))
        i, j = from_i, from_i - before
    return runs


def _joined(runs: Sequence[_Run]) -> list[_Run]:
    joined: list[_Run] = []
    for i, j, length in runs:
        if joined and (last := joined[-1])[0] + last[2] == i and last[1] + last[2] == j:
            joined[-1] = (last[0], last[1], last[2] + length)
        else:
            joined.append((i, j, length))
    return joined


def _render_hunks(
    old: Sequence[str], new: Sequence[str], runs: Sequence[_Run], names: tuple[str, str], context: int
) -> Iterator[str]:
    hunks = list(_hunks(len(old), len(new), runs, context))
    if hunks:
        yield f"--- {names[0]}\n+++ {names[1]}\n"
    for hunk in hunks:
        (i, _, j, _), (_, i_end, _, j_end) = hunk[0][1], hunk[-1][1]
        yield f"@@ -{line_range(i, i_end)} +{line_range(j, j_end)} @@\n"
        for is_same, (i, i_end, j, j_end) in hunk:
            yield from (diff_line(" " if is_same else "-", line) for line in old[i:i_end])
            yield from (diff_line("+", line) for line in new[j:j_end] if not is_same)


# Line ranges on either side, and whether they are equal.
_Part = tuple[bool, tuple[int, int, int, int]]


def _hunks(old: int, new: int, runs: Sequence[_Run], context: int) -> Iterator[list[_Part]]:
    """Yield hunks with context lines; changes with few equal lines in between share a hunk."""
    hunk: list[_Part] = []
    i = j = 0
    for a, b, length in runs if runs and _ends_at(runs[-1]) == (old, new) else [*runs, (old, new, 0)]:
        has_change = len(hunk) > 1
        if (i, j) != (a, b):
            hunk.append((False, (i, a, j, b)))
            has_change = True
        i, j = a + length, b + length
        is_last = (i, j) == (old, new)
        if has_change and (is_last or length > 2 * context):
            yield hunk + _some(a, b, min(length, context))
            has_change, hunk = False, []
        if has_change:
            hunk += _some(a, b, length)
        else:
            shown = min(length, context)
            hunk = _some(i - shown, j - shown, shown)


def _ends_at(run: _Run) -> tuple[int, int]:
    return run[0] + run[2], run[1] + run[2]


def _some(i: int, j: int, length: int) -> list[_Part]:
    return [(True, (i, i + length, j, j + length))] if length else []


def line_range(start: int, end: int) -> str:
    """Return a range of lines as a hunk's header states it."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def diff_line(sign: str, line: str) -> str:
    """Return a line of a unified diff."""
    # Neither JSON nor PostgreSQL can hold these.
    line = _UNSTORABLE.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", line)
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
