"""Reads the lines that ripgrep found again, through the confined reader. Drops a line that is not there.

Also defines lines as a search counts and shows them: from 1, without line ends, in Unicode.
"""

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

# More characters of a line do not help a reader.
_SHOWN = 2_000
_MARK = b"\xef\xbb\xbf"


class TextLines:
    """Lines of a text, split at newlines. Drops a carriage return before a newline and a leading byte order mark."""

    def __init__(self, body: bytes) -> None:
        self._lines = body.split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()

    def __len__(self) -> int:
        return len(self._lines)

    def raw(self, number: int) -> bytes | None:
        """Return a line as stored, without its newline; ``None`` if there is none."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else None

    def text(self, number: int) -> str:
        """Return a line in the form that patterns match."""
        return line_text(self._lines[number - 1], number)

    def shown(self, first: int, last: int) -> list[str]:
        """Return the lines between two numbers, both inclusive, as far as they exist."""
        return [shown(self.text(number)) for number in range(max(1, first), min(last, len(self)) + 1)]


def line_text(line: bytes, number: int) -> str:
    """Decode a line, without its carriage return and byte order mark."""
    line = line.removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(_MARK)
    return line.decode("utf-8", "replace")


def shown(line: str) -> str:
    """Shorten a very long line for display."""
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}… [{len(line) - _SHOWN:,} more characters]"


_PATH = attrgetter("path")


@dataclass(frozen=True, slots=True)
class ContextLines:
    """How many lines to return before and after a match."""

    before: int = 0
    after: int = 0


_NOTHING = ContextLines()


class MatchedLine(NamedTuple):
    """A matching line with its context. A tuple, because there may be very many."""

    path: WorkspacePath
    number: int
    text: str
    before: Sequence[str] = ()
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CandidateLines:
    """Verified lines. ``doubts`` maps the index of lines that PostgreSQL must still check to their whole text."""

    matches: list[MatchedLine] = field(default_factory=list)
    doubts: dict[int, str] = field(default_factory=dict)

    def add(self, match: MatchedLine, doubt: str | None = None) -> None:
        """Add a line. ``doubt`` is its whole text if PostgreSQL must still check it."""
        if doubt is not None:
            self.doubts[len(self.matches)] = doubt
        self.matches.append(match)


@dataclass(frozen=True, slots=True)
class HitVerifier:
    """Verifies hits for one search. ``hard_links`` allows reading files with several names."""

    disk: MountWriter
    selection: FileFilter
    around: ContextLines
    hard_links: bool

    def candidates(self, hits: Sequence[RipgrepHit], approach: SearchPlan) -> CandidateLines:
        """Verify hits, which are grouped by file, so that each file is read once."""
        found = CandidateLines()
        for path, group in groupby(hits, key=_PATH):
            workspace_path = self.selection.workspace_path(f"/{os.fsdecode(path)}")
            if workspace_path is not None:
                self._in_file(workspace_path, list(group), approach, found)
        return found

    def _in_file(
        self, path: WorkspacePath, hits: list[RipgrepHit], approach: SearchPlan, found: CandidateLines
    ) -> None:
        whole = self.around != _NOTHING or any(hit.text.startswith(OMITTED) for hit in hits)
        try:
            (self._from_the_whole if whole else self._from_pieces)(path, hits, approach, found)
        except (ToolFailed, CallDenied):
            # The file is gone, replaced, or not readable for the caller.
            return

    def _from_pieces(
        self, path: WorkspacePath, hits: list[RipgrepHit], approach: SearchPlan, found: CandidateLines
    ) -> None:
        """Read only the lines themselves, and enough of the start to detect binary files."""
        paths = [(max(0, int(offset) - 1), len(text) + 2) for _, _, offset, text in hits]
        start, *pieces = self.disk.read_head(path, [(0, SNIFFED), *paths], hard_links=self.hard_links)
        if is_binary(start):
            return
        for (_, number_text, offset, line), piece in zip(hits, pieces, strict=True):
            there = line if offset == b"0" else b"\n" + line
            # The line ends at a newline or at the end of the file.
            if piece.startswith(there + b"\n") or piece == there:
                number = int(number_text)
                text = line_text(line, number)
                found.add(MatchedLine(path, number, shown(text)), None if approach.is_certain(line) else text)

    def _from_the_whole(
        self, path: WorkspacePath, hits: list[RipgrepHit], approach: SearchPlan, found: CandidateLines
    ) -> None:
        """Read the whole file, for context lines or for a line that is too long for ripgrep to report."""
        body, _ = self.disk.read(path, limit=LARGEST_FILE, hard_links=self.hard_links)
        if is_binary(body):
            return
        lines = TextLines(body)
        for hit in hits:
            number = int(hit.number)
            line = lines.raw(number)
            if line == hit.text:
                doubt = None if approach.is_certain(line) else lines.text(number)
            elif line is not None and len(line) >= LONGEST_LINE and hit.text.startswith(OMITTED):
                doubt = lines.text(number)
            else:
                continue
            found.add(match_in(lines, number, path, self.around), doubt)


def match_in(lines: TextLines, number: int, path: WorkspacePath, around: ContextLines) -> MatchedLine:
    """Build the match of a line with its context."""
    return MatchedLine(
        path,
        number,
        shown(lines.text(number)),
        lines.shown(number - around.before, number - 1) if around.before else (),
        lines.shown(number + 1, number + around.after) if around.after else (),
    )
