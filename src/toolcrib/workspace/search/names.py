"""Finds files and folders by their paths, kinds and sizes. First the page, then what the history says of it."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from toolcrib.domain.errors import BadArguments, NotFound
from toolcrib.domain.files import FileType, NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.paths import shown
from toolcrib.workspace.search.globs import Globs, Matches
from toolcrib.workspace.search.selection import can_be_named, order_of
from toolcrib.workspace.standing import Standing
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.tree import Tree

# How many places the history is asked about at once, when it decides which of them are wanted.
_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class Traits:
    """What ``find`` asks of a file or folder. Both sizes are included, and only files have one."""

    name: Matches | None = None
    type: FileType | None = None
    min_size: int | None = None
    max_size: int | None = None

    @property
    def concern_size(self) -> bool:
        return self.min_size is not None or self.max_size is not None

    def suit_kind(self, kind: NodeKind | None) -> bool:
        """Before the history is asked: a folder is a folder, and only files have other types, and sizes."""
        if kind is None or (self.concern_size and kind is not NodeKind.FILE):
            return False
        return self.type is None or (self.type is FileType.FOLDER) == (kind is NodeKind.FOLDER)

    def suit_size(self, size: int) -> bool:
        return (self.min_size or 0) <= size and (self.max_size is None or size <= self.max_size)


async def matching_globs(tree: Tree, base: Place, globs: Globs, *, limit: int | None) -> list[Standing]:
    """What stands below ``base`` and is meant by a pattern, by path, folder by folder; virtual files too."""
    base = await _folder(tree, base)
    disk = await tree.disk_at(base)
    off_disk = {file.state.place.path for file in await tree.off_disk(base)}
    found = await in_thread(_sorted, disk, base, lambda path, name, kind: kind and globs.match(path, name))
    others = [path for path in off_disk if globs.match(path, path.rpartition("/")[2])]
    if others:
        found = sorted({*found, *others}, key=order_of)
    places = (_at(base, path) for path in filter(can_be_named, found))
    return await tree.standings(_taken(places, limit), nodes_of_all=True)


async def with_traits(tree: Tree, base: Place, traits: Traits, *, recursive: bool, limit: int | None) -> list[Standing]:
    """What stands on disk below ``base`` and has these traits, by path, folder by folder."""
    base = await _folder(tree, base)
    disk = await tree.disk_at(base)

    def wanted(_: str, name: str, kind: NodeKind | None) -> bool:
        return traits.suit_kind(kind) and (traits.name is None or traits.name(name) is not None)

    found = await in_thread(lambda: _sorted(disk, base, wanted, recursive=recursive))
    places: Iterator[Place] = (_at(base, path) for path in filter(can_be_named, found))
    if traits.concern_size:
        places = _of_size(disk, places, traits)
    if traits.type in (None, FileType.FOLDER):
        return await tree.standings(await in_thread(_taken, places, limit), nodes_of_all=True)
    return await _of_type(tree, places, traits.type, limit)


async def _of_type(tree: Tree, places: Iterator[Place], type_: FileType | None, limit: int | None) -> list[Standing]:
    """Only the history knows one type of file from another, so it is asked until there are enough."""
    found: list[Standing] = []
    while (limit is None or len(found) < limit) and (chunk := await in_thread(_taken, places, _CHUNK)):
        standings = await tree.standings(chunk, nodes_of_all=True)
        found += [standing for standing in standings if standing.type is type_]
    return found[:limit]


def _of_size(disk: Disk, places: Iterator[Place], traits: Traits) -> Iterator[Place]:
    for place in places:
        node = disk.look(place)
        if node is not None and traits.suit_size(node.fingerprint.size):
            yield place


async def _folder(tree: Tree, place: Place) -> Place:
    """The folder at a place, as ``ls`` would list it."""
    tree.check_read(place)
    standing = await tree.find(place)
    if not standing.exists and not place.is_root:
        raise NotFound(f"Folder not found: {shown(place)}")
    if not standing.is_folder:
        raise BadArguments({"path": f"Not a folder: {shown(place)}. Search in the folder that holds it."})
    return standing.place


def _sorted(
    disk: Disk, base: Place, wanted: Callable[[str, str, NodeKind | None], object], *, recursive: bool = True
) -> list[str]:
    names = disk.names(base, recursive=recursive)
    return sorted((path for path, name, kind in names if wanted(path, name, kind)), key=order_of)


def _taken(places: Iterator[Place], count: int | None) -> list[Place]:
    return list(islice(places, None if count is None else min(count, sys.maxsize)))


def _at(base: Place, path: str) -> Place:
    return Place(base.mount, path, base.scope)
