"""Finds the lines that match a pattern: ripgrep on the tree, PostgreSQL for what only it can judge.

Every line is read again through the disk before it is given out, so nothing is believed of what ripgrep saw on a path
that somebody swapped meanwhile. Matches come by path, folder by folder, then by line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from time import monotonic

from toolcrib.domain.errors import TimedOut
from toolcrib.domain.files import File
from toolcrib.domain.places import Mount, root_of
from toolcrib.workspace.search.approach import EVERYTHING, approach_for, for_postgres
from toolcrib.workspace.search.confirm import Around, Candidates, Confirmation, Match, match_in
from toolcrib.workspace.search.likeness import Likeness
from toolcrib.workspace.search.lines import Lines
from toolcrib.workspace.search.readable import stored_text
from toolcrib.workspace.search.ripgrep import Hit
from toolcrib.workspace.search.selection import Selection, order_of
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.tree import Tree

# How long a whole search may take.
SECONDS = 8.0
# No result holds more, whatever was asked for.
MOST_MATCHES = 100_000
# How long a page is looked for in order, on one core, before all is searched at once, on every core.
_PATIENCE = 0.05
# What PostgreSQL judges in one statement, in characters.
_BATCH = 2_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched for, where, how much around it is wanted, and how many matches at most."""

    pattern: str
    ignore_case: bool = True
    paths: Likeness | None = None
    around: Around = field(default_factory=Around)
    limit: int = MOST_MATCHES


@dataclass(frozen=True, slots=True)
class Answer:
    """``withheld`` is how many files the caller may not read, whatever is in them."""

    matches: list[Match]
    timed_out: bool
    withheld: int


class Grep:
    """One search by one caller."""

    def __init__(self, tree: Tree, question: Question, *, seconds: float = SECONDS) -> None:
        self._tree = tree
        self._question = question
        self._deadline = monotonic() + seconds
        self._approach = approach_for(question.pattern, ignore_case=question.ignore_case)
        self._found: list[Match] = []
        self._timed_out = False

    async def answer(self) -> Answer:
        """BadArguments for what is no pattern. A search that takes too long gives what it found until then."""
        root = root_of(Mount.PROJECT)
        disk = await self._tree.disk_at(root)
        off_disk = await self._tree.off_disk(root)
        selection = Selection(self._tree, self._question.paths, {file.state.place.path for file in off_disk})
        reader = Confirmation(disk, selection, self._question.around, self._tree.reads_hard_links)
        stored: list[Match] = []
        try:
            # PostgreSQL refuses what is no pattern, whoever would have searched.
            await self._matching([])
            stored = await self._in_stored(selection.readable(off_disk))
            await self._on_disk(reader)
        except TimedOut:
            self._timed_out = True
        # What was found on disk is in order already.
        matches = self._found
        if stored:
            matches = sorted(matches + stored, key=lambda match: (order_of(match.place.path), match.number))
        return Answer(matches[: self._question.limit], self._timed_out, await selection.withheld(disk, off_disk))

    @property
    def _seconds_left(self) -> float:
        return self._deadline - monotonic()

    @property
    def _is_full(self) -> bool:
        return len(self._found) >= self._question.limit

    async def _on_disk(self, reader: Confirmation) -> None:
        """A page in order, if it comes quickly; else all at once; or in order after all, if that is too much."""
        if self._question.limit < MOST_MATCHES and await self._in_order(reader, patience=_PATIENCE):
            return
        if not await self._at_once(reader):
            await self._in_order(reader)

    async def _in_order(self, reader: Confirmation, *, patience: float | None = None) -> bool:
        """Searches in the order of the answer, and stops when that is full. Whether it sufficed."""
        self._found.clear()
        until = self._deadline if patience is None else min(monotonic() + patience, self._deadline)
        async with self._tree.ripgrep.search(
            reader.disk,
            self._approach.expression,
            in_order=True,
            eager=patience is not None,
            names=reader.selection.name_globs,
        ) as run:
            while not run.is_done and not self._is_full:
                await self._take(await run.hits(until - monotonic()), reader)
                self._require_time()
                if monotonic() >= until:
                    if len(self._found) * 10 < self._question.limit:
                        return False
                    # Who has found a tenth by now finds the rest soon enough.
                    until = self._deadline
            return self._is_full or not run.was_refused or await self._unaided(reader)

    async def _at_once(self, reader: Confirmation) -> bool:
        """Finds everything first, then puts it in order and reads it again, as far as needed. Whether it sufficed."""
        self._found.clear()
        hits: list[Hit] = []
        async with self._tree.ripgrep.search(
            reader.disk, self._approach.expression, names=reader.selection.name_globs
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

    async def _unaided(self, reader: Confirmation) -> bool:
        """For what is too large for ripgrep: PostgreSQL judges every line."""
        self._approach = EVERYTHING
        return await self._in_order(reader)

    async def _take(self, hits: Sequence[Hit], reader: Confirmation) -> None:
        candidates = await in_thread(reader.candidates, hits, self._approach)
        self._found += await self._judged(candidates)

    async def _in_stored(self, files: Sequence[File]) -> list[Match]:
        """Matches in what does not stand on disk, or not yet."""
        candidates = Candidates()
        for file in (file for file in files if file.state.sha256 is not None):
            lines = Lines(stored_text(file, await self._tree.stored(file)))
            for number in range(1, len(lines) + 1):
                match = match_in(lines, number, file.state.place, self._question.around)
                candidates.add(match, lines.text(number))
        return await self._judged(candidates)

    async def _judged(self, candidates: Candidates) -> list[Match]:
        """Those that match, after asking PostgreSQL about the doubtful ones."""
        if not candidates.doubts:
            return candidates.matches
        refuted = set(candidates.doubts)
        for batch in _batches(candidates.doubts):
            matching = await self._matching([candidates.doubts[index] for index in batch])
            refuted.difference_update(batch[number] for number in matching)
        return [match for index, match in enumerate(candidates.matches) if index not in refuted]

    async def _matching(self, lines: list[str]) -> list[int]:
        """Which of these lines PostgreSQL's own regular expressions match."""
        self._require_time()
        # The empty lines at the end make sure that there is something to split, and that the pattern is looked at.
        numbers = await self._tree.lines_matching(
            "\n".join([*lines, "", ""]),
            for_postgres(self._question.pattern),
            ignore_case=self._question.ignore_case,
            seconds=self._seconds_left,
            limit=len(lines) + 2,
        )
        return [number for number in numbers if number < len(lines)]

    def _require_time(self) -> None:
        if self._seconds_left <= 0:
            raise TimedOut("The search takes too long.")


def _in_order(hits: Sequence[Hit]) -> list[Hit]:
    """By path, folder by folder. Ripgrep tells a file's lines together and in their order."""
    files = [(path.replace(b"/", b"\0"), list(group)) for path, group in groupby(hits, key=attrgetter("path"))]
    files.sort(key=itemgetter(0))
    return [hit for _, group in files for hit in group]


def _batches(doubts: Mapping[int, str]) -> Iterator[list[int]]:
    """In pieces that one statement can take."""
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
