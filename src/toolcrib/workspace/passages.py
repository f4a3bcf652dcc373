"""The texts of many files, in passages of whole lines: what a search reads. Matches nothing itself."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from toolcrib.domain.errors import NotFound, OutsideMount, Refused, ToolFailed
from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.content import is_binary
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.paths import is_sayable, shown
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.tree import Tree

# How much is read before somebody looks at it. A line longer than this is searched in parts.
_MOST = 1 << 20

Skips = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Passage:
    """Some lines of a file, the first of which has the number ``line``, counted from 1."""

    place: Place
    line: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


async def passages(tree: Tree, top: Place, *, skips: Skips) -> AsyncGenerator[list[Passage]]:
    """The texts of a file, or of those below a folder by path, as the caller may read them.

    What ``skips`` names is left out with all that is below it, and so is what may not be read and what is no text.
    """
    tree.check_read(top)
    standing = await tree.find(top)
    await tree.refuse_link(standing)
    if not standing.exists and not top.is_root:
        raise NotFound(f"File not found: {shown(top)}")
    top, disk = standing.place, await tree.disk_at(standing.place)
    on_disk, elsewhere = [top], [top] if standing.is_virtual else []
    if standing.is_folder:
        on_disk = await in_thread(_files_below, disk, top, skips)
        elsewhere = [place for place in await _off_disk(tree, top) if not _is_skipped(place, top, skips)]
    reader = _Reader(tree, disk, [place for place in on_disk if place not in set(elsewhere)])
    while batch := await in_thread(reader.next):
        yield batch
    for place in elsewhere:
        with suppress(ToolFailed, Refused):
            yield list(_passages_of(place, [(await tree.read(place)).body]))


def _files_below(disk: Disk, folder: Place, skips: Skips) -> list[Place]:
    found: list[Place] = []
    pending = [folder]
    while pending:
        here = pending.pop()
        # A folder that vanished, may not be opened or lies in another mount has nothing for us.
        with suppress(ToolFailed, OutsideMount):
            for entry in disk.entries(here):
                if skips(entry.name) or not is_sayable(entry.name):
                    continue
                if entry.kind is NodeKind.FOLDER:
                    pending.append(here.child(entry.name))
                if entry.kind is NodeKind.FILE:
                    found.append(here.child(entry.name))
    return sorted(found)


async def _off_disk(tree: Tree, folder: Place) -> list[Place]:
    files = await tree.off_disk(folder)
    return sorted(file.state.place for file in files if file.state.kind is NodeKind.FILE)


def _is_skipped(place: Place, top: Place, skips: Skips) -> bool:
    return any(map(skips, place.parts[len(top.parts) :]))


class _Reader:
    """Reads files from disk, one after the other, about a megabyte at a time."""

    def __init__(self, tree: Tree, disk: Disk, places: Sequence[Place]) -> None:
        self._tree = tree
        self._disk = disk
        self._passages = self._read_all(places)

    def next(self) -> list[Passage]:
        """The next passages; none when everything is read."""
        batch: list[Passage] = []
        size = 0
        for passage in self._passages:
            batch.append(passage)
            size += len(passage.text)
            if size >= _MOST:
                break
        return batch

    def _read_all(self, places: Sequence[Place]) -> Iterator[Passage]:
        for place in places:
            # What may not be read, or is gone by now, is left out: the others still count.
            with suppress(ToolFailed, Refused):
                self._tree.check_read(place)
                yield from _passages_of(place, self._disk.pieces(place, hard_links=self._tree.reads_hard_links))


def _passages_of(place: Place, pieces: Iterable[bytes]) -> Iterator[Passage]:
    """A text in passages that end where a line does; nothing of what is not text."""
    number, rest = 1, b""
    for index, piece in enumerate(pieces):
        if index == 0 and is_binary(piece):
            return
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if end:
            yield Passage(place, number, _text(whole))
            number += whole.count(b"\n") + 1
        elif len(rest) >= _MOST:
            yield Passage(place, number, _text(rest))
            rest = b""
    if rest or number == 1:
        yield Passage(place, number, _text(rest))


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\r")
