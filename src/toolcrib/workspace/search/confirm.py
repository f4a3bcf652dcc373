"""Reads what ripgrep found again, through the disk. A line that is not there is dropped."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from toolcrib.domain.errors import Refused, ToolFailed
from toolcrib.domain.places import Place
from toolcrib.workspace.content import SNIFFED, is_binary
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.search.approach import Approach
from toolcrib.workspace.search.lines import Lines, line_text, shown
from toolcrib.workspace.search.ripgrep import LARGEST_FILE, LONGEST_LINE, OMITTED, Hit
from toolcrib.workspace.search.selection import Selection

_PATH = attrgetter("path")


@dataclass(frozen=True, slots=True)
class Around:
    """How many lines are wanted before and after a match."""

    before: int = 0
    after: int = 0


_NOTHING = Around()


class Match(NamedTuple):
    """A line that matches, and those around it. A tuple, since there may be very many."""

    place: Place
    number: int
    text: str
    before: Sequence[str] = ()
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Lines that are there. ``doubts`` has the whole text of those, by index, that PostgreSQL must still judge."""

    matches: list[Match] = field(default_factory=list)
    doubts: dict[int, str] = field(default_factory=dict)

    def add(self, match: Match, doubt: str | None = None) -> None:
        if doubt is not None:
            self.doubts[len(self.matches)] = doubt
        self.matches.append(match)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Reads hits again for one search. ``hard_links``: whether files of several names may be read."""

    disk: Disk
    selection: Selection
    around: Around
    hard_links: bool

    def candidates(self, hits: Sequence[Hit], approach: Approach) -> Candidates:
        """Hits of one file stand together; each file is read once."""
        found = Candidates()
        for path, group in groupby(hits, key=_PATH):
            place = self.selection.place(f"/{os.fsdecode(path)}")
            if place is not None:
                self._in_file(place, list(group), approach, found)
        return found

    def _in_file(self, place: Place, hits: list[Hit], approach: Approach, found: Candidates) -> None:
        whole = self.around != _NOTHING or any(hit.text.startswith(OMITTED) for hit in hits)
        try:
            (self._from_the_whole if whole else self._from_pieces)(place, hits, approach, found)
        except (ToolFailed, Refused):
            # Gone, swapped for something else, or never to be read.
            return

    def _from_pieces(self, place: Place, hits: list[Hit], approach: Approach, found: Candidates) -> None:
        """Reads no more than the lines themselves, and what tells text from other things."""
        places = [(max(0, int(offset) - 1), len(text) + 2) for _, _, offset, text in hits]
        start, *pieces = self.disk.peek(place, [(0, SNIFFED), *places], hard_links=self.hard_links)
        if is_binary(start):
            return
        for (_, told, offset, line), piece in zip(hits, pieces, strict=True):
            there = line if offset == b"0" else b"\n" + line
            # Up to the newline that ends it, or to the end of the file.
            if piece.startswith(there + b"\n") or piece == there:
                number = int(told)
                text = line_text(line, number)
                found.add(Match(place, number, shown(text)), None if approach.settles(line) else text)

    def _from_the_whole(self, place: Place, hits: list[Hit], approach: Approach, found: Candidates) -> None:
        """For who wants the lines around, or a line that is too long to be told."""
        body, _ = self.disk.read(place, limit=LARGEST_FILE, hard_links=self.hard_links)
        if is_binary(body):
            return
        lines = Lines(body)
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


def match_in(lines: Lines, number: int, place: Place, around: Around) -> Match:
    """A line as it is given out."""
    return Match(
        place,
        number,
        shown(lines.text(number)),
        lines.shown(number - around.before, number - 1) if around.before else (),
        lines.shown(number + 1, number + around.after) if around.after else (),
    )
