"""Reads the texts of many files in chunks of whole lines, for a search to match."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from toolcrib.core.errors import CallDenied, NotFound, PathOutsideMount, ToolFailed
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import WorkspacePath, is_valid_name, shown
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.tree import WorkspaceTree

# Bytes per chunk. A longer line is searched in parts.
_MOST = 1 << 20

Skips = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class LineChunk:
    """Some lines of a file. ``line`` is the number of the first one, counted from 1."""

    path: WorkspacePath
    line: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


async def read_chunks(tree: WorkspaceTree, top: WorkspacePath, *, skips: Skips) -> AsyncGenerator[list[LineChunk]]:
    """Yield the text of a file, or of all files below a folder by path, as far as the caller may read them.

    Leaves out names that ``skips`` selects with everything below them, unreadable files and binary files.
    """
    tree.check_read(top)
    path_state = await tree.lookup(top)
    await tree.reject_symlink(path_state)
    if not path_state.exists and not top.is_root:
        raise NotFound(f"File not found: {shown(top)}")
    top, disk = path_state.path, await tree.disk_at(path_state.path)
    on_disk, elsewhere = [top], [top] if path_state.is_virtual else []
    if path_state.is_folder:
        on_disk = await in_thread(_files_below, disk, top, skips)
        elsewhere = [path for path in await _off_disk(tree, top) if not _is_skipped(path, top, skips)]
    reader = _ChunkReader(tree, disk, [path for path in on_disk if path not in set(elsewhere)])
    while batch := await in_thread(reader.next):
        yield batch
    for path in elsewhere:
        with suppress(ToolFailed, CallDenied):
            yield list(_passages_of(path, [(await tree.read(path)).body]))


def _files_below(disk: MountWriter, folder: WorkspacePath, skips: Skips) -> list[WorkspacePath]:
    found: list[WorkspacePath] = []
    pending = [folder]
    while pending:
        here = pending.pop()
        # Ignore a folder that vanished, cannot be opened or is another mount.
        with suppress(ToolFailed, PathOutsideMount):
            for entry in disk.entries(here):
                if skips(entry.name) or not is_valid_name(entry.name):
                    continue
                if entry.kind is EntryKind.FOLDER:
                    pending.append(here.child(entry.name))
                if entry.kind is EntryKind.FILE:
                    found.append(here.child(entry.name))
    return sorted(found)


async def _off_disk(tree: WorkspaceTree, folder: WorkspacePath) -> list[WorkspacePath]:
    files = await tree.off_disk(folder, virtual=False)
    return sorted(file.state.path for file in files if file.state.kind is EntryKind.FILE)


def _is_skipped(path: WorkspacePath, top: WorkspacePath, skips: Skips) -> bool:
    return any(map(skips, path.parts[len(top.parts) :]))


class _ChunkReader:
    """Reads files from disk one after the other, about a megabyte at a time."""

    def __init__(self, tree: WorkspaceTree, disk: MountWriter, paths: Sequence[WorkspacePath]) -> None:
        self._tree = tree
        self._disk = disk
        self._passages = self._read_all(paths)

    def next(self) -> list[LineChunk]:
        """Return the next chunks; empty when everything is read."""
        batch: list[LineChunk] = []
        size = 0
        for chunk in self._passages:
            batch.append(chunk)
            size += len(chunk.text)
            if size >= _MOST:
                break
        return batch

    def _read_all(self, paths: Sequence[WorkspacePath]) -> Iterator[LineChunk]:
        for path in paths:
            # Leave out files that are unreadable or gone; the others still count.
            with suppress(ToolFailed, CallDenied):
                self._tree.check_read(path)
                yield from _passages_of(path, self._disk.pieces(path, hard_links=self._tree.reads_hard_links))


def _passages_of(path: WorkspacePath, pieces: Iterable[bytes]) -> Iterator[LineChunk]:
    """Split a text into chunks that end at a line end. Yields nothing for binary content."""
    number, rest = 1, b""
    for index, piece in enumerate(pieces):
        if index == 0 and is_binary(piece):
            return
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if end:
            yield LineChunk(path, number, _text(whole))
            number += whole.count(b"\n") + 1
        elif len(rest) >= _MOST:
            yield LineChunk(path, number, _text(rest))
            rest = b""
    if rest or number == 1:
        yield LineChunk(path, number, _text(rest))


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\r")
