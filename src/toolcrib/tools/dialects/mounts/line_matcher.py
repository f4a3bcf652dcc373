r"""Parses a pattern of fs.search and matches it in chunks.

A pattern is plain text, unless it is written ``/…/`` or ``/…/i`` without a bare slash inside. Then it is a regular
expression, which PostgreSQL matches: its engine stops at a time limit for any pattern, and Python's cannot be stopped.
The syntax is PostgreSQL's; ``\b`` is a word boundary, as models expect.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from toolcrib.core.errors import TimedOut
from toolcrib.tools.context import ToolContext
from toolcrib.workspace.search.line_chunks import LineChunk
from toolcrib.workspace.tree import WorkspaceTree

_LITERAL = re.compile(r"/((?:[^/\\]|\\.)+)/(i?)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TRANSLATED = {"/": "/", "b": r"\y", "B": r"\Y"}
# Time for matching in one search, and as a share of the call's remaining time.
_SECONDS = 5.0
_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class LiteralMatcher:
    """Matches lines that contain a text."""

    text: str

    async def hits(self, chunks: Sequence[LineChunk], *, limit: int) -> list[list[int]]:
        return [self._in(chunk)[:limit] for chunk in chunks]

    def _in(self, chunk: LineChunk) -> list[int]:
        # Most chunks do not contain it, which one search shows without splitting them.
        if self.text not in chunk.text:
            return []
        return [index for index, line in enumerate(chunk.lines) if self.text in line]


class RegexMatcher:
    """Matches a regular expression, within a time limit."""

    def __init__(self, tree: WorkspaceTree, pattern: str, *, ignore_case: bool, seconds: float) -> None:
        self._tree = tree
        self._pattern = pattern
        self._ignore_case = ignore_case
        self._until = monotonic() + seconds

    async def hits(self, chunks: Sequence[LineChunk], *, limit: int) -> list[list[int]]:
        """Return the matching lines of each chunk, with one query for all of them."""
        seconds = self._until - monotonic()
        if seconds <= 0:
            raise TimedOut("The search takes too long. Use plain text, or search a smaller directory.")
        found = await self._tree.lines_matching(
            # Without any chunk, PostgreSQL still validates the pattern.
            "\n".join(chunk.text for chunk in chunks) if chunks else " ",
            self._pattern,
            ignore_case=self._ignore_case,
            seconds=seconds,
            limit=limit,
        )
        return _split_by_chunk(found, chunks)


def matcher_for(pattern: str, context: ToolContext) -> LiteralMatcher | RegexMatcher:
    """Build the matcher of a pattern: plain text, or a regular expression between slashes."""
    literal = _LITERAL.fullmatch(pattern)
    if literal is None:
        return LiteralMatcher(pattern)
    translated = _ESCAPED.sub(lambda escape: _TRANSLATED.get(escape[1], escape[0]), literal[1])
    seconds = min(_SECONDS, context.seconds_left * _SHARE)
    return RegexMatcher(context.tree, translated, ignore_case=literal[2] == "i", seconds=seconds)


def _split_by_chunk(found: Sequence[int], chunks: Sequence[LineChunk]) -> list[list[int]]:
    """Convert line numbers of the joined text to those of its chunks."""
    hits: list[list[int]] = []
    start = at = 0
    for chunk in chunks:
        end = start + chunk.text.count("\n") + 1
        mine: list[int] = []
        while at < len(found) and found[at] < end:
            mine.append(found[at] - start)
            at += 1
        hits.append(mine)
        start = end
    return hits
