r"""Search of the ``mounts`` toolset: a text or a regular expression in the files below a folder, with context lines.

A pattern is plain text, unless it is written ``/…/`` or ``/…/i`` without a bare slash inside. Then it is a regular
expression, which PostgreSQL matches: its engine stops at a time limit for any pattern, and Python's cannot be stopped.
The syntax is PostgreSQL's; ``\b`` is a word boundary, as models expect.
"""

import re
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import NotRequired, Protocol

from pydantic import Field

from toolcrib.core.errors import TimedOut
from toolcrib.core.paths import MountPath, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts_dialect import FsSuccess, failed, is_hidden, rules_of
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult
from toolcrib.workspace.search.line_chunks import LineChunk, read_chunks
from toolcrib.workspace.tree import WorkspaceTree

_SKIPPED = frozenset({".git", "node_modules"})
# More characters of a line do not help a reader.
_LINE = 1_000
_LITERAL = re.compile(r"/((?:[^/\\]|\\.)+)/(i?)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TRANSLATED = {"/": "/", "b": r"\y", "B": r"\Y"}
# Time for matching in one search, and as a share of the call's remaining time.
_SECONDS = 5.0
_SHARE = 0.9


class FsSearchArguments(ToolArguments):
    path: MountPath = Field(description="Folder to search, including subfolders; or one file.")
    pattern: str = Field(
        min_length=1, max_length=1_000, description="Plain text, or a regular expression written as /…/ or /…/i."
    )
    before: int = Field(default=1, ge=0, le=50, description="Lines to show before each match.")
    after: int = Field(default=1, ge=0, le=50, description="Lines to show after each match.")
    maxMatches: int = Field(default=50, ge=1, le=1_000, description="Maximum number of matches.")


class FsMatch(ToolResult):
    path: str
    line: int
    text: str
    before: NotRequired[list[str]]
    after: NotRequired[list[str]]


class FsSearchStats(ToolResult):
    filesScanned: int
    matchesFound: int


class FsSearchResult(FsSuccess):
    matches: list[FsMatch]
    truncated: bool
    stats: FsSearchStats
    hint: NotRequired[str]


@built_in(
    "mounts",
    name="fs.search",
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    encode_error=failed,
    in_execution_log=True,
)
async def fs_search(arguments: FsSearchArguments, context: ToolContext) -> FsSearchResult:
    """Search all text files below a folder for plain text, or for a regular expression written as /…/ or /…/i.

    Hidden entries, node_modules and symbolic links are skipped.
    """
    matches = _matcher(arguments.pattern, context)
    found = MatchCollector(arguments, most_bytes=rules_of(context.caller).max_read_bytes)
    async with aclosing(read_chunks(context.tree, arguments.path, skips=_skips)) as batches:
        async for batch in batches:
            hits = await matches(batch, limit=arguments.maxMatches + 1)
            for chunk, lines in zip(batch, hits, strict=True):
                found.add(chunk, lines)
            if found.full:
                break
    if not found.stats["filesScanned"]:
        # An invalid expression is reported even if there is no file to match.
        await matches([], limit=1)
    result: FsSearchResult = {
        "ok": True,
        "path": str(arguments.path),
        "matches": found.matches,
        "truncated": found.full,
        "stats": found.stats,
    }
    if found.full:
        result["hint"] = "There may be more matches. Search a subdirectory or a longer text."
    return result


class Matcher(Protocol):
    """Returns the matching lines of each chunk, at most ``limit`` of them."""

    def __call__(self, chunks: Sequence[LineChunk], *, limit: int) -> Awaitable[list[list[int]]]: ...


def _matcher(pattern: str, context: ToolContext) -> Matcher:
    """Build the matcher of a pattern: plain text, or a regular expression between slashes."""
    literal = _LITERAL.fullmatch(pattern)
    if literal is None:
        return partial(_literal_hits, pattern)
    translated = _ESCAPED.sub(lambda escape: _TRANSLATED.get(escape[1], escape[0]), literal[1])
    seconds = min(_SECONDS, context.seconds_left * _SHARE)
    return partial(_regex_hits, context.tree, translated, ignore_case=literal[2] == "i", until=monotonic() + seconds)


def _skips(name: str) -> bool:
    return name in _SKIPPED or is_hidden(name)


class MatchCollector:
    """Collects matches from chunks in order, until there are enough."""

    def __init__(self, arguments: FsSearchArguments, *, most_bytes: int) -> None:
        self.matches: list[FsMatch] = []
        self.full = False
        self._arguments = arguments
        self._bytes_left = most_bytes
        self._files: set[WorkspacePath] = set()
        self._here: WorkspacePath | None = None
        # The last lines before the current one in this file, and the matches that wait for lines after them.
        self._recent: deque[str] = deque(maxlen=arguments.before)
        self._open: list[FsMatch] = []

    @property
    def stats(self) -> FsSearchStats:
        return {"filesScanned": len(self._files), "matchesFound": len(self.matches)}

    def add(self, chunk: LineChunk, hits: Sequence[int]) -> None:
        """Add the matching lines of the next chunk."""
        if self.full:
            return
        if chunk.path != self._here:
            self._here = chunk.path
            self._files.add(chunk.path)
            self._recent.clear()
            self._open.clear()
        if hits or self._open:
            self._add_lines(chunk, frozenset(hits))
        elif self._recent.maxlen:
            self._recent.extend(chunk.text.rsplit("\n", self._recent.maxlen)[-self._recent.maxlen :])

    def _add_lines(self, chunk: LineChunk, hits: frozenset[int]) -> None:
        for index, line in enumerate(chunk.lines):
            text = line if len(line) <= _LINE else f"{line[:_LINE]}…"
            for match in self._open:
                match["after"].append(text)
            self._open = [match for match in self._open if len(match["after"]) < self._arguments.after]
            if index in hits:
                self._match(chunk.line + index, text)
            self._recent.append(text)
            if self.full and not self._open:
                return

    def _match(self, number: int, text: str) -> None:
        size = sum(len(line.encode()) for line in (*self._recent, text))
        if len(self.matches) == self._arguments.maxMatches or size > self._bytes_left:
            self.full = True
            return
        self._bytes_left -= size
        match: FsMatch = {"path": str(self._here), "line": number, "text": text}
        if self._arguments.before:
            match["before"] = list(self._recent)
        if self._arguments.after:
            match["after"] = []
            self._open.append(match)
        self.matches.append(match)


async def _literal_hits(text: str, chunks: Sequence[LineChunk], *, limit: int) -> list[list[int]]:
    """Return the lines of each chunk that contain a text."""
    # Most chunks do not contain it, which one search shows without splitting them.
    return [
        [index for index, line in enumerate(chunk.lines) if text in line][:limit] if text in chunk.text else []
        for chunk in chunks
    ]


async def _regex_hits(
    tree: WorkspaceTree, pattern: str, chunks: Sequence[LineChunk], *, limit: int, ignore_case: bool, until: float
) -> list[list[int]]:
    """Return the lines of each chunk that match an expression, with one query for all of them."""
    seconds = until - monotonic()
    if seconds <= 0:
        raise TimedOut("The search takes too long. Use plain text, or search a smaller directory.")
    found = await tree.services.regexes.lines(
        tree.tenant,
        # Without any chunk, PostgreSQL still validates the pattern.
        "\n".join(chunk.text for chunk in chunks) if chunks else " ",
        pattern,
        ignore_case=ignore_case,
        seconds=seconds,
        limit=limit,
    )
    return _split_by_chunk(found, chunks)


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
