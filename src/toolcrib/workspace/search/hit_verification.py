"""Reads what ripgrep found again, through the disk. A line that is not there is dropped."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from toolcrib.core.errors import CallDenied, ToolFailed
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.ripgrep import LARGEST_FILE, LONGEST_LINE, OMITTED, RipgrepHit
from toolcrib.workspace.search.file_filter import FileFilter
from toolcrib.workspace.search.regex_translation import SearchPlan
from toolcrib.workspace.text.content import SNIFFED, is_binary

# The lines of a text as a search counts and shows them: from 1, without their ends, in Unicode.

# More of a line than this tells nobody anything.
_SHOWN = 2_000
_MARK = b"\xef\xbb\xbf"


class TextLines:
    """What a text holds between newlines. A carriage return before one belongs to it, a byte order mark to nothing."""

    def __init__(self, body: bytes) -> None:
        self._lines = body.split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()

    def __len__(self) -> int:
        return len(self._lines)

    def raw(self, number: int) -> bytes | None:
        """A line as it stands in the file, but for the newline; ``None`` if there is none."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else None

    def text(self, number: int) -> str:
        """A line as a pattern is matched against it."""
        return line_text(self._lines[number - 1], number)

    def shown(self, first: int, last: int) -> list[str]:
        """The lines between two numbers, both included, as far as they exist."""
        return [shown(self.text(number)) for number in range(max(1, first), min(last, len(self)) + 1)]


def line_text(line: bytes, number: int) -> str:
    """A line as it stands in a file, without its end and its mark, in Unicode."""
    line = line.removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(_MARK)
    return line.decode("utf-8", "replace")


def shown(line: str) -> str:
    """A line as it is given out: one that is endless ends."""
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}… [{len(line) - _SHOWN:,} more characters]"


_PATH = attrgetter("path")


@dataclass(frozen=True, slots=True)
class ContextLines:
    """How many lines are wanted before and after a match."""

    before: int = 0
    after: int = 0


_NOTHING = ContextLines()


class MatchedLine(NamedTuple):
    """A line that matches, and those around it. A tuple, since there may be very many."""

    place: WorkspacePath
    number: int
    text: str
    before: Sequence[str] = ()
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CandidateLines:
    """Lines that are there. ``doubts`` has the whole text of those, by index, that PostgreSQL must still judge."""

    matches: list[MatchedLine] = field(default_factory=list)
    doubts: dict[int, str] = field(default_factory=dict)

    def add(self, match: MatchedLine, doubt: str | None = None) -> None:
        if doubt is not None:
            self.doubts[len(self.matches)] = doubt
        self.matches.append(match)


@dataclass(frozen=True, slots=True)
class HitVerifier:
    """Reads hits again for one search. ``hard_links``: whether files of several names may be read."""

    disk: MountWriter
    selection: FileFilter
    around: ContextLines
    hard_links: bool

    def candidates(self, hits: Sequence[RipgrepHit], approach: SearchPlan) -> CandidateLines:
        """Hits of one file stand together; each file is read once."""
        found = CandidateLines()
        for path, group in groupby(hits, key=_PATH):
            place = self.selection.place(f"/{os.fsdecode(path)}")
            if place is not None:
                self._in_file(place, list(group), approach, found)
        return found

    def _in_file(
        self, place: WorkspacePath, hits: list[RipgrepHit], approach: SearchPlan, found: CandidateLines
    ) -> None:
        whole = self.around != _NOTHING or any(hit.text.startswith(OMITTED) for hit in hits)
        try:
            (self._from_the_whole if whole else self._from_pieces)(place, hits, approach, found)
        except (ToolFailed, CallDenied):
            # Gone, swapped for something else, or never to be read.
            return

    def _from_pieces(
        self, place: WorkspacePath, hits: list[RipgrepHit], approach: SearchPlan, found: CandidateLines
    ) -> None:
        """Reads no more than the lines themselves, and what tells text from other things."""
        places = [(max(0, int(offset) - 1), len(text) + 2) for _, _, offset, text in hits]
        start, *pieces = self.disk.read_head(place, [(0, SNIFFED), *places], hard_links=self.hard_links)
        if is_binary(start):
            return
        for (_, told, offset, line), piece in zip(hits, pieces, strict=True):
            there = line if offset == b"0" else b"\n" + line
            # Up to the newline that ends it, or to the end of the file.
            if piece.startswith(there + b"\n") or piece == there:
                number = int(told)
                text = line_text(line, number)
                found.add(MatchedLine(place, number, shown(text)), None if approach.settles(line) else text)

    def _from_the_whole(
        self, place: WorkspacePath, hits: list[RipgrepHit], approach: SearchPlan, found: CandidateLines
    ) -> None:
        """For who wants the lines around, or a line that is too long to be told."""
        body, _ = self.disk.read(place, limit=LARGEST_FILE, hard_links=self.hard_links)
        if is_binary(body):
            return
        lines = TextLines(body)
        for hit in hits:
            number = int(hit.number)
            line = lines.raw(number)
            if line == hit.text:
                doubt = None if approach.settles(line) else lines.text(number)
            elif line is not None and len(line) >= LONGEST_LINE and hit.text.startswith(OMITTED):
                doubt = lines.text(number)
            else:
                continue
            found.add(match_in(lines, number, place, self.around), doubt)


def match_in(lines: TextLines, number: int, place: WorkspacePath, around: ContextLines) -> MatchedLine:
    """A line as it is given out."""
    return MatchedLine(
        place,
        number,
        shown(lines.text(number)),
        lines.shown(number - around.before, number - 1) if around.before else (),
        lines.shown(number + 1, number + around.after) if around.after else (),
    )
