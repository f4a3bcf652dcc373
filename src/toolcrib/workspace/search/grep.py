"""Finds lines that match a pattern: with ripgrep on disk, and PostgreSQL where only it can decide.

Every line is read again through the confined reader, so that a path swapped during the search reveals nothing. Matches
are ordered by path, folder by folder, then by line. Matches in virtual files, such as chats, come last.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from time import monotonic

from toolcrib.core.errors import NotFound, TimedOut, TooLarge
from toolcrib.core.files import ContentKind, File
from toolcrib.core.paths import Mount, mount_root
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.ripgrep import RipgrepHit
from toolcrib.workspace.search.file_filter import FileFilter, LikePattern, order_of
from toolcrib.workspace.search.hit_verification import (
    CandidateLines,
    ContextLines,
    HitVerifier,
    MatchedLine,
    TextLines,
    match_in,
)
from toolcrib.workspace.search.ignored_files import IgnoredFiles
from toolcrib.workspace.search.regex_translation import EVERYTHING, plan_search, to_postgres_regex
from toolcrib.workspace.tree import WorkspaceTree

# Time limit of one search.
SECONDS = 8.0
# The most matches in one result.
MOST_MATCHES = 100_000
# Seconds to search in order on one core, before searching everything on every core.
_PATIENCE = 0.05
# Characters that PostgreSQL matches in one statement.
_BATCH = 2_000_000


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """What to search for, in which files, with how many context lines and matches."""

    pattern: str
    ignore_case: bool = True
    paths: LikePattern | None = None
    around: ContextLines = field(default_factory=ContextLines)
    limit: int = MOST_MATCHES
    include_ignored: bool = True


@dataclass(frozen=True, slots=True)
class GrepMatches:
    """The matches. ``denied`` counts files that the caller may not read, whatever is in them.

    ``skipped``: ignored files were not searched.
    """

    matches: list[MatchedLine]
    timed_out: bool
    denied: int
    skipped: bool = False


class GrepSearch:
    """One search by one caller."""

    def __init__(self, tree: WorkspaceTree, question: GrepQuery, *, seconds: float = SECONDS) -> None:
        self._tree = tree
        self._question = question
        self._deadline = monotonic() + seconds
        self._approach = plan_search(question.pattern, ignore_case=question.ignore_case)
        self._found: list[MatchedLine] = []
        self._timed_out = False

    async def answer(self) -> GrepMatches:
        """Run the search.

        Raises ``BadArguments`` for an invalid pattern. After the time limit, returns what was found.
        """
        root = mount_root(Mount.PROJECT)
        disk = await self._tree.disk_at(root)
        off_disk = await self._tree.off_disk(root)
        ignored = None if self._question.include_ignored else await IgnoredFiles.below(self._tree, root)
        if ignored is not None:
            await in_thread(ignored.survey, disk)
        elsewhere = {file.state.path.path for file in off_disk}
        selection = FileFilter(self._tree, self._question.paths, elsewhere, ignored)
        reader = HitVerifier(disk, selection, self._question.around, self._tree.reads_hard_links)
        readable = selection.readable(off_disk)
        stored: list[MatchedLine] = []
        try:
            # PostgreSQL validates the pattern, whichever engine searches.
            await self._matching([])
            stored = await self._in_stored([file for file in readable if not file.is_virtual])
            await self._on_disk(reader)
        except TimedOut:
            self._timed_out = True
        # Matches on disk are already in order.
        matches = self._found
        if stored:
            matches = sorted(matches + stored, key=lambda match: (order_of(match.path.path), match.number))
        matches += await self._in_virtual(
            [file for file in readable if file.is_virtual], most=self._question.limit - len(matches)
        )
        denied = await selection.count_denied(disk, off_disk)
        skipped = ignored is not None and ignored.skipped
        return GrepMatches(matches[: self._question.limit], self._timed_out, denied, skipped)

    @property
    def _seconds_left(self) -> float:
        return self._deadline - monotonic()

    @property
    def _is_full(self) -> bool:
        return len(self._found) >= self._question.limit

    async def _on_disk(self, reader: HitVerifier) -> None:
        """Search in order if that is fast; else everything at once; if that finds too much, in order after all."""
        if self._question.limit < MOST_MATCHES and await self._in_order(reader, patience=_PATIENCE):
            return
        if not await self._at_once(reader):
            await self._in_order(reader)

    async def _in_order(self, reader: HitVerifier, *, patience: float | None = None) -> bool:
        """Search in result order until the result is full. Returns whether that succeeded."""
        self._found.clear()
        until = self._deadline if patience is None else min(monotonic() + patience, self._deadline)
        async with self._tree.services.ripgrep.search(
            reader.disk,
            self._approach.expression,
            in_order=True,
            eager=patience is not None,
            names=reader.selection.name_globs,
            without=reader.selection.skipped_folders,
        ) as run:
            while not run.is_done and not self._is_full:
                await self._take(await run.hits(until - monotonic()), reader)
                self._require_time()
                if monotonic() >= until:
                    if len(self._found) * 10 < self._question.limit:
                        return False
                    # With a tenth found by now, the rest will come soon enough.
                    until = self._deadline
            return self._is_full or not run.was_refused or await self._unaided(reader)

    async def _at_once(self, reader: HitVerifier) -> bool:
        """Find all hits first, then sort and verify as many as needed. Returns whether that succeeded."""
        self._found.clear()
        hits: list[RipgrepHit] = []
        async with self._tree.services.ripgrep.search(
            reader.disk,
            self._approach.expression,
            names=reader.selection.name_globs,
            without=reader.selection.skipped_folders,
        ) as run:
            while not run.is_done and self._seconds_left > 0:
                hits += await run.hits(self._seconds_left)
                if len(hits) > MOST_MATCHES:
                    return False
            if run.was_refused:
                return await self._unaided(reader)
        hits = _in_order(hits)
        step = max(200, 2 * self._question.limit)
        for start in range(0, len(hits), step):
            if not self._is_full:
                await self._take(hits[start : start + step], reader)
        self._require_time()
        return True

    async def _unaided(self, reader: HitVerifier) -> bool:
        """Let PostgreSQL match every line, for an expression that is too large for ripgrep."""
        self._approach = EVERYTHING
        return await self._in_order(reader)

    async def _take(self, hits: Sequence[RipgrepHit], reader: HitVerifier) -> None:
        candidates = await in_thread(reader.candidates, hits, self._approach)
        self._found += await self._verified(candidates)

    async def _in_stored(self, files: Sequence[File]) -> list[MatchedLine]:
        """Find matches in content that is not on disk yet."""
        found: list[MatchedLine] = []
        for file in files:
            if file.state.sha256 is not None and file.state.content_kind is not ContentKind.BINARY:
                found += await self._in_body(file, await self._tree.head_content(file))
        return found

    async def _in_virtual(self, files: Sequence[File], *, most: int) -> list[MatchedLine]:
        """Find matches in chats and agents, by path. PostgreSQL preselects the files."""
        found: list[MatchedLine] = []
        if not files or most <= 0 or self._timed_out:
            return found
        try:
            matching = await self._tree.services.virtual.matching(
                self._tree.tenant,
                to_postgres_regex(self._question.pattern),
                ignore_case=self._question.ignore_case,
                seconds=max(self._seconds_left, 0),
            )
            for file in sorted((file for file in files if file.id in matching), key=lambda file: file.state.path):
                # A file that is too large to read, or was deleted just now, has no matches.
                with suppress(NotFound, TooLarge):
                    found += await self._in_body(file, await self._tree.head_content(file))
                if len(found) >= most:
                    break
        except TimedOut:
            self._timed_out = True
        return found

    async def _in_body(self, file: File, body: bytes) -> list[MatchedLine]:
        return await self._verified(await in_thread(_every_line, file, body, self._question.around))

    async def _verified(self, candidates: CandidateLines) -> list[MatchedLine]:
        """Return the matches, after PostgreSQL has checked the doubtful ones."""
        if not candidates.doubts:
            return candidates.matches
        refuted = set(candidates.doubts)
        for batch in _batches(candidates.doubts):
            matching = await self._matching([candidates.doubts[index] for index in batch])
            refuted.difference_update(batch[number] for number in matching)
        return [match for index, match in enumerate(candidates.matches) if index not in refuted]

    async def _matching(self, lines: list[str]) -> list[int]:
        """Return the numbers of the lines that PostgreSQL's regular expressions match."""
        self._require_time()
        # The empty lines at the end ensure that there is something to split, so that PostgreSQL checks the pattern.
        numbers = await self._tree.services.regexes.lines(
            self._tree.tenant,
            "\n".join([*lines, "", ""]),
            to_postgres_regex(self._question.pattern),
            ignore_case=self._question.ignore_case,
            seconds=self._seconds_left,
            limit=len(lines) + 2,
        )
        return [number for number in numbers if number < len(lines)]

    def _require_time(self) -> None:
        if self._seconds_left <= 0:
            raise TimedOut("The search takes too long.")


def _every_line(file: File, body: bytes, around: ContextLines) -> CandidateLines:
    """Return all lines of a stored file as candidates for PostgreSQL."""
    candidates, lines = CandidateLines(), TextLines(body)
    for number in range(1, len(lines) + 1):
        candidates.add(match_in(lines, number, file.state.path, around), lines.text(number))
    return candidates


def _in_order(hits: Sequence[RipgrepHit]) -> list[RipgrepHit]:
    """Sort by path, folder by folder. Ripgrep reports a file's lines together and in order."""
    files = [(path.replace(b"/", b"\0"), list(group)) for path, group in groupby(hits, key=attrgetter("path"))]
    files.sort(key=itemgetter(0))
    return [hit for _, group in files for hit in group]


def _batches(doubts: Mapping[int, str]) -> Iterator[list[int]]:
    """Split the doubtful lines into batches that fit one statement."""
    batch: list[int] = []
    size = 0
    for index, text in doubts.items():
        batch.append(index)
        size += len(text)
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
