"""Reads what ripgrep found again, through the disk. A line that is not there is dropped."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from toolcrib.domain.errors import Refused, ToolFailed
from toolcrib.domain.places import Place
from toolcrib.workspace.content import SNIFFED, is_binary
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.search.approach import Approach
from toolcrib.workspace.search.lines import Lines, line_text, shown
from toolcrib.workspace.search.ripgrep import LARGEST_FILE, LONGEST_LINE, OMITTED, Hit
from toolcrib.workspace.search.selection import Selection


@dataclass(frozen=True, slots=True)
class Around:
    """How many lines are wanted before and after a match."""

    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches, and those around it."""

    place: Place
    number: int
    text: str
    before: list[str]
    after: list[str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that is there. ``doubt`` is its whole text, if PostgreSQL must still say that it matches."""

    match: Match
    doubt: str | None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Reads hits again for one search. ``hard_links``: whether files of several names may be read."""

    disk: Disk
    selection: Selection
    around: Around
    hard_links: bool

    def candidates(self, hits: Sequence[Hit], approach: Approach) -> list[Candidate]:
        """Hits of one file stand together; each file is read once."""
        found: list[Candidate] = []
        for path, group in groupby(hits, key=attrgetter("path")):
            place = self.selection.place(f"/{os.fsdecode(path)}")
            if place is not None:
                found += self._in_file(place, list(group), approach)
        return found

    def _in_file(self, place: Place, hits: list[Hit], approach: Approach) -> list[Candidate]:
        whole = self.around != Around() or any(hit.text.startswith(OMITTED) for hit in hits)
        try:
            return list((self._from_the_whole if whole else self._from_pieces)(place, hits, approach))
        except (ToolFailed, Refused):
            # Gone, swapped for something else, or never to be read.
            return []

    def _from_pieces(self, place: Place, hits: list[Hit], approach: Approach) -> Iterator[Candidate]:
        """Reads no more than the lines themselves, and what tells text from other things."""
        places = [(max(0, int(hit.offset) - 1), len(hit.text) + 2) for hit in hits]
        start, *pieces = self.disk.peek(place, [(0, SNIFFED), *places], hard_links=self.hard_links)
        if is_binary(start):
            return
        for hit, piece in zip(hits, pieces, strict=True):
            line = hit.text if hit.offset == b"0" else b"\n" + hit.text
            # Up to the newline that ends it, or to the end of the file.
            if piece[: len(line) + 1] in (line, line + b"\n"):
                number = int(hit.number)
                text = line_text(hit.text, number)
                doubt = None if approach.settles(hit.text) else text
                yield Candidate(Match(place, number, shown(text), [], []), doubt)

    def _from_the_whole(self, place: Place, hits: list[Hit], approach: Approach) -> Iterator[Candidate]:
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
            yield Candidate(match_in(lines, number, place, self.around), doubt)


def match_in(lines: Lines, number: int, place: Place, around: Around) -> Match:
    """A line as it is given out."""
    return Match(
        place,
        number,
        shown(lines.text(number)),
        lines.shown(number - around.before, number - 1) if around.before else [],
        lines.shown(number + 1, number + around.after) if around.after else [],
    )
