"""Finds files and folders by their paths, kinds and sizes. First the page, then what the history says of it."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from toolcrib.core.errors import BadArguments, NotFound
from toolcrib.core.files import EntryKind, EntryState, File, FileType
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.policy.patterns import ExpressionSet, PatternTooLargeError, check_size, glob_expression
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.search.file_filter import can_be_named, order_of
from toolcrib.workspace.sync.path_state import PathState
from toolcrib.workspace.tree import WorkspaceTree

# Glob patterns over paths. ``*`` and ``?`` stay within a name, ``**`` spans folders, ``{a,b}`` is either.

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATTERNS = 200

Matches = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class GlobSet:
    """Patterns, read: some look at the name alone, the others at each folder on the way."""

    of_names: Matches | None
    of_paths: tuple[tuple[Matches | None, ...], ...]

    def match(self, path: str, name: str) -> bool:
        """Whether any of them means the node of this name at this path."""
        if self.of_names is not None and self.of_names(name):
            return True
        if not self.of_paths:
            return False
        parts = path[1:].split("/")
        return any(_means(steps, parts) for steps in self.of_paths)


def globs(patterns: Sequence[str], base: WorkspacePath) -> GlobSet:
    """BadArguments for what could lead out of the workspace, or means nothing."""
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
            raise BadArguments({"pattern": f"{pattern[:80]!r} is no pattern for files: name some, without '..'."})
        if len(steps) == 1 and "/" not in pattern and steps[0] != "**":
            of_names.append(glob_expression(steps[0]))
            continue
        if steps[-1] == "**":
            # What lies below a folder, and not the folder.
            steps.append("*")
        above = () if pattern.startswith("/") else tuple(_exactly(part) for part in base.parts)
        of_paths.append((*above, *(None if step == "**" else name_matcher(step) for step in steps)))
    return GlobSet(_matching(of_names) if of_names else None, tuple(of_paths))


def name_matcher(pattern: str) -> Matches:
    """Shell wildcards over one name: ``*``, ``?`` and ``[…]``. BadArguments for a pattern that is too large."""
    return _matching([glob_expression(pattern)])


def _matching(expressions: Sequence[str]) -> Matches:
    try:
        return ExpressionSet(expressions, whole=True).any
    except PatternTooLargeError as error:
        raise BadArguments({"pattern": str(error)}) from error


def _exactly(name: str) -> Matches:
    return name.__eq__


def _either(patterns: Sequence[str]) -> list[str]:
    """The patterns with every choice of their braces made."""
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
            raise BadArguments({"pattern": f"Its braces make more than {_MOST_PATTERNS} patterns. Use fewer."})
    return made


def _means(steps: tuple[Matches | None, ...], parts: list[str]) -> bool:
    """Whether the steps lead exactly to the end of a path. ``None`` is any number of folders.

    When a later step fails, only the last ``None`` need be tried again: those before it took as little as they could.
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


# How many places the history is asked about at once, when it decides which of them are wanted.
_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class FindCriteria:
    """What ``find`` asks of a file or folder. Both sizes are included, and only files have one."""

    name: Matches | None = None
    type: FileType | None = None
    min_size: int | None = None
    max_size: int | None = None

    @property
    def concern_size(self) -> bool:
        return self.min_size is not None or self.max_size is not None

    def suit_kind(self, kind: EntryKind | None) -> bool:
        """Before the history is asked: a folder is a folder, and only files have other types, and sizes."""
        if kind is None or (self.concern_size and kind is not EntryKind.FILE):
            return False
        return self.type is None or (self.type is FileType.FOLDER) == (kind is EntryKind.FOLDER)

    def suit_size(self, size: int) -> bool:
        return (self.min_size or 0) <= size and (self.max_size is None or size <= self.max_size)


async def matching_globs(
    tree: WorkspaceTree, base: WorkspacePath, globs: GlobSet, *, limit: int | None
) -> list[PathState]:
    """What stands below ``base`` and is meant by a pattern, by path, folder by folder; virtual files too."""
    base, disk = await _folder(tree, base)
    off_disk = await tree.off_disk(base)
    found = await in_thread(_sorted, disk, base, lambda path, name, kind: kind and globs.match(path, name))
    others = [path for file in off_disk if globs.match(path := file.state.place.path, file.state.place.name)]
    if others:
        found = sorted({*found, *others}, key=order_of)
    places = (_at(base, path) for path in filter(can_be_named, found))
    return await tree.path_states(_taken(places, limit), off_disk, nodes_of_all=True)


async def with_traits(
    tree: WorkspaceTree, base: WorkspacePath, traits: FindCriteria, *, recursive: bool, limit: int | None
) -> list[PathState]:
    """What stands below ``base`` on disk, or is virtual, and has these traits, by path, folder by folder."""
    base, disk = await _folder(tree, base)
    off_disk = await tree.off_disk(base, recursive=recursive)
    virtual = {file.state.place.path: file.state for file in off_disk if file.is_virtual}

    def wanted(_: str, name: str, kind: EntryKind | None) -> bool:
        return traits.suit_kind(kind) and (traits.name is None or traits.name(name))

    found = await in_thread(lambda: _sorted(disk, base, wanted, recursive=recursive))
    if virtual:
        suited = {path for path, state in virtual.items() if wanted(path, state.place.name, state.kind)}
        found = sorted({*found, *suited}, key=order_of)
    places: Iterator[WorkspacePath] = (_at(base, path) for path in filter(can_be_named, found))
    if traits.concern_size:
        places = _of_size(disk, places, traits, virtual)
    if traits.type in (None, FileType.FOLDER):
        return await tree.path_states(await in_thread(_taken, places, limit), off_disk, nodes_of_all=True)
    return await _of_type(tree, places, off_disk, traits.type, limit)


async def _of_type(
    tree: WorkspaceTree,
    places: Iterator[WorkspacePath],
    off_disk: Sequence[File],
    type_: FileType | None,
    limit: int | None,
) -> list[PathState]:
    """Only the history knows one type of file from another, so it is asked until there are enough."""
    found: list[PathState] = []
    while (limit is None or len(found) < limit) and (chunk := await in_thread(_taken, places, _CHUNK)):
        standings = await tree.path_states(chunk, off_disk, nodes_of_all=True)
        found += [standing for standing in standings if standing.type is type_]
    return found[:limit]


def _of_size(
    disk: MountWriter | None, places: Iterator[WorkspacePath], traits: FindCriteria, virtual: Mapping[str, EntryState]
) -> Iterator[WorkspacePath]:
    for place in places:
        state = virtual.get(place.path)
        node = disk.stat(place) if disk and state is None else None
        size = state.size if state else node.fingerprint.size if node else None
        if size is not None and traits.suit_size(size):
            yield place


async def _folder(tree: WorkspaceTree, place: WorkspacePath) -> tuple[WorkspacePath, MountWriter | None]:
    """The folder at a place, as ``ls`` would list it, and its disk; none for a virtual one, which is on no disk."""
    tree.check_read(place)
    standing = await tree.view(place)
    if not standing.exists and not place.is_root:
        raise NotFound(f"Folder not found: {shown(place)}")
    if not standing.is_folder:
        raise BadArguments({"path": f"Not a folder: {shown(place)}. Search in the folder that holds it."})
    return standing.place, None if standing.is_virtual else await tree.disk_at(standing.place)


def _sorted(
    disk: MountWriter | None,
    base: WorkspacePath,
    wanted: Callable[[str, str, EntryKind | None], object],
    *,
    recursive: bool = True,
) -> list[str]:
    names = disk.names(base, recursive=recursive) if disk else ()
    return sorted((path for path, name, kind in names if wanted(path, name, kind)), key=order_of)


def _taken(places: Iterator[WorkspacePath], count: int | None) -> list[WorkspacePath]:
    return list(islice(places, None if count is None else min(count, sys.maxsize)))


def _at(base: WorkspacePath, path: str) -> WorkspacePath:
    return WorkspacePath(base.mount, path, base.scope)
