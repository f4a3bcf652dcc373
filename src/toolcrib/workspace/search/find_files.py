"""Finds files and folders by path, kind and size. Selects on disk first, then loads the page from the history."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from toolcrib.core.errors import BadArguments, NotFound
from toolcrib.core.files import EntryKind, EntryState, File, FileType, PathState
from toolcrib.core.paths import WorkspacePath
from toolcrib.policy.patterns import ExpressionSet, PatternTooLargeError, check_size, glob_expression
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.search.file_filter import can_be_named, order_of
from toolcrib.workspace.search.ignored_files import IgnoredFiles
from toolcrib.workspace.tree import WorkspaceTree

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATTERNS = 200

Matches = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class GlobSet:
    """Parsed globs: some match the name alone, the others each component of the path.

    ``*`` and ``?`` stay within a name, ``**`` spans folders, ``{a,b}`` is either.
    """

    of_names: Matches | None
    of_paths: tuple[tuple[Matches | None, ...], ...]

    def match(self, path: str, name: str) -> bool:
        """Whether any pattern matches this path and name."""
        if self.of_names is not None and self.of_names(name):
            return True
        if not self.of_paths:
            return False
        parts = path[1:].split("/")
        return any(_matches_steps(steps, parts) for steps in self.of_paths)


def globs(patterns: Sequence[str], base: WorkspacePath) -> GlobSet:
    """Parse glob patterns relative to ``base``.

    Raises ``BadArguments`` for an invalid pattern, such as one with "..".
    """
    of_names: list[str] = []
    of_paths: list[tuple[Matches | None, ...]] = []
    made = _either(patterns)
    try:
        check_size(made)
    except PatternTooLargeError as error:
        raise BadArguments({"pattern": str(error)}) from error
    for pattern in made:
        steps = [step for step in pattern.split("/") if step not in ("", ".")]
        if not steps or ".." in steps:
            raise BadArguments({"pattern": f"{pattern[:80]!r} is not a file pattern. Use a glob without '..'."})
        if len(steps) == 1 and "/" not in pattern and steps[0] != "**":
            of_names.append(glob_expression(steps[0]))
            continue
        if steps[-1] == "**":
            # Match what is below a folder, not the folder itself.
            steps.append("*")
        above = () if pattern.startswith("/") else tuple(part.__eq__ for part in base.parts)
        of_paths.append((*above, *(None if step == "**" else name_matcher(step) for step in steps)))
    return GlobSet(_matching(of_names) if of_names else None, tuple(of_paths))


def name_matcher(pattern: str) -> Matches:
    """Compile shell wildcards over one name: ``*``, ``?`` and ``[…]``. Raises ``BadArguments`` if it is too large."""
    return _matching([glob_expression(pattern)])


def _matching(expressions: Sequence[str]) -> Matches:
    try:
        return ExpressionSet(expressions, whole=True).any
    except PatternTooLargeError as error:
        raise BadArguments({"pattern": str(error)}) from error


def _either(patterns: Sequence[str]) -> list[str]:
    """Expand the braces of the patterns."""
    made: list[str] = []
    pending = list(reversed(patterns))
    while pending:
        pattern = pending.pop()
        braces = _BRACES.search(pattern)
        if braces is None or "," not in braces[1]:
            made.append(pattern)
            continue
        before, after = pattern[: braces.start()], pattern[braces.end() :]
        pending += [f"{before}{choice}{after}" for choice in reversed(braces[1].split(","))]
        if len(made) + len(pending) > _MOST_PATTERNS:
            raise BadArguments({"pattern": f"Its braces expand to more than {_MOST_PATTERNS} patterns. Use fewer."})
    return made


def _matches_steps(steps: tuple[Matches | None, ...], parts: list[str]) -> bool:
    """Whether the steps match a whole path. ``None`` matches any number of folders.

    When a later step fails, only the last ``None`` needs another try: earlier ones matched as little as possible.
    """
    at = step = 0
    resume: tuple[int, int] | None = None
    while at < len(parts):
        matches = steps[step] if step < len(steps) else _nothing
        if matches is None:
            resume = (at, step)
            step += 1
        elif matches(parts[at]):
            at += 1
            step += 1
        elif resume is not None:
            at, step = resume[0] + 1, resume[1] + 1
            resume = (at, resume[1])
        else:
            return False
    return all(left is None for left in steps[step:])


def _nothing(_: str) -> bool:
    return False


# Paths per query when the history decides which of them match.
_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class FindCriteria:
    """The criteria of ``find``. Both size limits are inclusive and apply to files only."""

    name: Matches | None = None
    type: FileType | None = None
    min_size: int | None = None
    max_size: int | None = None

    @property
    def concern_size(self) -> bool:
        """Whether there is a size limit."""
        return self.min_size is not None or self.max_size is not None

    def suit_kind(self, kind: EntryKind | None) -> bool:
        """Prefilter by kind, before the history is queried. Only files have sizes and types other than folder."""
        if kind is None or (self.concern_size and kind is not EntryKind.FILE):
            return False
        return self.type is None or (self.type is FileType.FOLDER) == (kind is EntryKind.FOLDER)

    def suit_size(self, size: int) -> bool:
        """Whether a size is within the limits."""
        return (self.min_size or 0) <= size and (self.max_size is None or size <= self.max_size)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a search found. ``skipped``: ignored files were not searched."""

    path_states: list[PathState]
    skipped: bool


async def matching_globs(
    tree: WorkspaceTree, base: WorkspacePath, globs: GlobSet, *, limit: int | None, include_ignored: bool = True
) -> FoundFiles:
    """Return path states below ``base`` that match a glob, in path order, including virtual files."""
    base, disk = await _folder(tree, base)
    ignored = None if include_ignored else await IgnoredFiles.below(tree, base)
    off_disk = await tree.off_disk(base)
    off_disk = off_disk if ignored is None else ignored.without(off_disk)
    found = await in_thread(_sorted, disk, base, lambda path, name, kind: kind and globs.match(path, name), ignored)
    others = [path for file in off_disk if globs.match(path := file.state.path.path, file.state.path.name)]
    if others:
        found = sorted({*found, *others}, key=order_of)
    paths = (_at(base, path) for path in filter(can_be_named, found))
    return FoundFiles(await tree.path_states(_taken(paths, limit), off_disk, nodes_of_all=True), _has_skipped(ignored))


async def with_traits(
    tree: WorkspaceTree,
    base: WorkspacePath,
    traits: FindCriteria,
    *,
    recursive: bool,
    limit: int | None,
    include_ignored: bool = True,
) -> FoundFiles:
    """Return path states below ``base`` that match the criteria, in path order, including virtual files."""
    base, disk = await _folder(tree, base)
    ignored = None if include_ignored else await IgnoredFiles.below(tree, base)
    off_disk = await tree.off_disk(base, recursive=recursive)
    off_disk = off_disk if ignored is None else ignored.without(off_disk)
    virtual = {file.state.path.path: file.state for file in off_disk if file.is_virtual}

    def wanted(_: str, name: str, kind: EntryKind | None) -> bool:
        return traits.suit_kind(kind) and (traits.name is None or traits.name(name))

    found = await in_thread(lambda: _sorted(disk, base, wanted, ignored, recursive=recursive))
    if virtual:
        suited = {path for path, state in virtual.items() if wanted(path, state.path.name, state.kind)}
        found = sorted({*found, *suited}, key=order_of)
    paths: Iterator[WorkspacePath] = (_at(base, path) for path in filter(can_be_named, found))
    if traits.concern_size:
        paths = _of_size(disk, paths, traits, virtual)
    if traits.type in (None, FileType.FOLDER):
        states = await tree.path_states(await in_thread(_taken, paths, limit), off_disk, nodes_of_all=True)
    else:
        states = await _of_type(tree, paths, off_disk, traits.type, limit)
    return FoundFiles(states, _has_skipped(ignored))


def _has_skipped(ignored: IgnoredFiles | None) -> bool:
    return ignored is not None and ignored.skipped


async def _of_type(
    tree: WorkspaceTree,
    paths: Iterator[WorkspacePath],
    off_disk: Sequence[File],
    type_: FileType | None,
    limit: int | None,
) -> list[PathState]:
    """Filter by file type, which only the history knows. Queries in chunks until there are enough."""
    found: list[PathState] = []
    while (limit is None or len(found) < limit) and (chunk := await in_thread(_taken, paths, _CHUNK)):
        path_states = await tree.path_states(chunk, off_disk, nodes_of_all=True)
        found += [path_state for path_state in path_states if path_state.type is type_]
    return found[:limit]


def _of_size(
    disk: MountWriter | None, paths: Iterator[WorkspacePath], traits: FindCriteria, virtual: Mapping[str, EntryState]
) -> Iterator[WorkspacePath]:
    for path in paths:
        state = virtual.get(path.path)
        node = disk.stat(path) if disk and state is None else None
        size = state.size if state else node.fingerprint.size if node else None
        if size is not None and traits.suit_size(size):
            yield path


async def _folder(tree: WorkspaceTree, path: WorkspacePath) -> tuple[WorkspacePath, MountWriter | None]:
    """Return the folder as ``ls`` would list it, and its disk. A virtual folder has no disk."""
    tree.guard.check_read(path)
    path_state = await tree.view(path)
    if not path_state.exists and not path.is_root:
        raise NotFound(f"Folder not found: {path.display}")
    if not path_state.is_folder:
        raise BadArguments({"path": f"Not a folder: {path.display}. Search in its parent directory."})
    return path_state.path, None if path_state.is_virtual else await tree.disk_at(path_state.path)


def _sorted(
    disk: MountWriter | None,
    base: WorkspacePath,
    wanted: Callable[[str, str, EntryKind | None], object],
    ignored: IgnoredFiles | None,
    *,
    recursive: bool = True,
) -> list[str]:
    names = disk.names(base, recursive=recursive, skip=ignored.in_folder if ignored else None) if disk else ()
    return sorted((path for path, name, kind in names if wanted(path, name, kind)), key=order_of)


def _taken(paths: Iterator[WorkspacePath], count: int | None) -> list[WorkspacePath]:
    return list(islice(paths, None if count is None else min(count, sys.maxsize)))


def _at(base: WorkspacePath, path: str) -> WorkspacePath:
    return WorkspacePath(base.mount, path, base.scope)
