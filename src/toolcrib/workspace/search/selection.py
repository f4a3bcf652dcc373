"""Which files a search looks into: those that are meant, can be named, and may be read."""

from collections.abc import Collection, Iterable
from functools import lru_cache

from toolcrib.domain.errors import Refused
from toolcrib.domain.files import File, NodeKind
from toolcrib.domain.places import Mount, Place
from toolcrib.workspace.disk import Disk, is_temporary
from toolcrib.workspace.paths import is_sayable
from toolcrib.workspace.search.likeness import Likeness
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.tree import Tree


def order_of(path: str) -> str:
    """By this, paths sort folder by folder, as names do and as ripgrep walks."""
    return path.replace("/", "\0")


class Selection:
    """Says of a path whether it is searched. ``elsewhere`` are those of which the disk does not tell the truth."""

    def __init__(self, tree: Tree, paths: Likeness | None, elsewhere: Collection[str]) -> None:
        self._tree = tree
        self._paths = paths
        self._elsewhere = elsewhere

    @property
    def name_globs(self) -> tuple[str, ...]:
        """The same for ripgrep, which may search more than this."""
        return (f"*{self._paths.ending}",) if self._paths and self._paths.ending else ()

    def place(self, path: str) -> Place | None:
        """The place of a path on disk, if it is searched."""
        if path in self._elsewhere or not self._means(path) or not can_be_named(path):
            return None
        place = Place(Mount.PROJECT, path)
        return place if self._may_read(place) else None

    def readable(self, files: Iterable[File]) -> list[File]:
        """Of files that do not stand on disk, those that are searched."""
        return [
            file
            for file in files
            if file.state.kind is NodeKind.FILE
            and self._means(file.state.place.path)
            and self._may_read(file.state.place)
        ]

    async def withheld(self, disk: Disk, off_disk: Iterable[File]) -> int:
        """How many files are meant and may not be read. All count: a number of those that match would tell of them."""
        if not self._tree.is_an_agents:
            return 0
        paths = await in_thread(self._files, disk)
        paths |= {file.state.place.path for file in off_disk if file.state.kind is NodeKind.FILE}
        meant = (Place(Mount.PROJECT, path) for path in paths if self._means(path))
        return sum(not self._may_read(place) for place in meant)

    def _files(self, disk: Disk) -> set[str]:
        root = Place(Mount.PROJECT, "/")
        return {path for path, _, kind in disk.names(root) if kind is NodeKind.FILE and can_be_named(path)}

    def _means(self, path: str) -> bool:
        return self._paths is None or self._paths.means(path)

    def _may_read(self, place: Place) -> bool:
        try:
            self._tree.check_read(place)
        except Refused:
            return False
        return True


def can_be_named(path: str) -> bool:
    """Whether a path found on disk can be written down, and is not one of our own temporaries."""
    return all(map(_is_name, path[1:].split("/")))


@lru_cache(maxsize=65_536)
def _is_name(name: str) -> bool:
    return is_sayable(name) and not is_temporary(name)
