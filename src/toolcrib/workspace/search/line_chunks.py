"""Reads the texts of many files in chunks of whole lines, for a search to match."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from toolcrib.core.errors import CallDenied, NotFound, PathOutsideMount, ToolFailed
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import WorkspacePath, is_valid_name
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
    tree.guard.check_read(top)
    path_state = await tree.lookup(top)
    await tree.reject_symlink(path_state)
    if not path_state.exists and not top.is_root:
        raise NotFound(f"File not found: {top.display}")
    top, disk = path_state.path, await tree.disk_at(path_state.path)
    on_disk, elsewhere = [top], [top] if path_state.is_virtual else []
    if path_state.is_folder:
        on_disk = await in_thread(_files_below, disk, top, skips)
        files = await tree.off_disk(top, virtual=False)
        paths = sorted(file.state.path for file in files if file.state.kind is EntryKind.FILE)
        elsewhere = [path for path in paths if not any(map(skips, path.parts[len(top.parts) :]))]
    others = set(elsewhere)
    chunks = _read_all(tree, disk, [path for path in on_disk if path not in others])
    while batch := await in_thread(_next_batch, chunks):
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


def _read_all(tree: WorkspaceTree, disk: MountWriter, paths: Sequence[WorkspacePath]) -> Iterator[LineChunk]:
    """Yield the chunks of files, one file after the other."""
    for path in paths:
        # Leave out files that are unreadable or gone; the others still count.
        with suppress(ToolFailed, CallDenied):
            tree.guard.check_read(path)
            yield from _passages_of(path, disk.pieces(path, hard_links=tree.reads_hard_links))


def _next_batch(chunks: Iterator[LineChunk]) -> list[LineChunk]:
    """Return the next chunks, about a megabyte; empty when everything is read."""
    batch: list[LineChunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.text)
        if size >= _MOST:
            break
    return batch


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
