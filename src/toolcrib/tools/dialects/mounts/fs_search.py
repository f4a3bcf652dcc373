"""Finds a text or a regular expression in the files below a folder, with context lines."""

from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from pydantic import Field

from toolcrib.core.paths import MountPath, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts.line_matcher import matcher_for
from toolcrib.tools.dialects.mounts.mount_results import done, failed, is_hidden, rules_of
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.search.line_chunks import LineChunk, read_chunks

_SKIPPED = frozenset({".git", "node_modules"})
# More characters of a line do not help a reader.
_LINE = 1_000


class FsSearchArguments(ToolArguments):
    path: MountPath = Field(description="Folder to search, including subfolders; or one file.")
    pattern: str = Field(
        min_length=1, max_length=1_000, description="Plain text, or a regular expression written as /…/ or /…/i."
    )
    before: int = Field(default=1, ge=0, le=50, description="Lines to show before each match.")
    after: int = Field(default=1, ge=0, le=50, description="Lines to show after each match.")
    maxMatches: int = Field(default=50, ge=1, le=1_000, description="Maximum number of matches.")


async def fs_search(arguments: FsSearchArguments, context: ToolContext) -> dict[str, Any]:
    matcher = matcher_for(arguments.pattern, context)
    found = MatchCollector(arguments, most_bytes=rules_of(context.caller).max_read_bytes)
    async with aclosing(read_chunks(context.tree, arguments.path, skips=_skips)) as batches:
        async for batch in batches:
            hits = await matcher.hits(batch, limit=arguments.maxMatches + 1)
            for chunk, lines in zip(batch, hits, strict=True):
                found.add(chunk, lines)
            if found.full:
                break
    if not found.stats["filesScanned"]:
        # An invalid expression is reported even if there is no file to match.
        await matcher.hits([], limit=1)
    result = done(arguments.path, matches=found.matches, truncated=found.full, stats=found.stats)
    if found.full:
        result["hint"] = "There may be more matches. Search a subdirectory or a longer text."
    return result


def _skips(name: str) -> bool:
    return name in _SKIPPED or is_hidden(name)


class MatchCollector:
    """Collects matches from chunks in order, until there are enough."""

    def __init__(self, arguments: FsSearchArguments, *, most_bytes: int) -> None:
        self.matches: list[dict[str, Any]] = []
        self.full = False
        self._arguments = arguments
        self._bytes_left = most_bytes
        self._files: set[WorkspacePath] = set()
        self._here: WorkspacePath | None = None
        # The last lines before the current one in this file, and the matches that wait for lines after them.
        self._recent: deque[str] = deque(maxlen=arguments.before)
        self._open: list[dict[str, Any]] = []

    @property
    def stats(self) -> dict[str, int]:
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
        match: dict[str, Any] = {"path": str(self._here), "line": number, "text": text}
        if self._arguments.before:
            match["before"] = list(self._recent)
        if self._arguments.after:
            match["after"] = []
            self._open.append(match)
        self.matches.append(match)


tool = Tool(
    name="fs.search",
    toolset="mounts",
    description=(
        "Search all text files below a folder for plain text, or for a regular expression written as /…/ "
        "or /…/i. Hidden entries, node_modules and symbolic links are skipped."
    ),
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FsSearchArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=fs_search,
    encode_error=failed,
)
