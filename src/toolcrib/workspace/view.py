"""The half of the disk that looks: reads, lists and walks one mount's tree. Changes nothing and follows no link."""

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from toolcrib.domain.errors import (
    BadArguments,
    LinkInTheWay,
    NotFound,
    OutsideMount,
    ProtectedName,
    TooLarge,
    ToolFailed,
)
from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.descent import FILE, FOLDER, NODE, Descent
from toolcrib.workspace.failures import explain
from toolcrib.workspace.nodes import Entry, Node, entry_kind, entry_of, node_of
from toolcrib.workspace.paths import shown

TEMPORARY = re.compile(r"\.~toolcrib-[0-9a-f]{16}\.tmp")
_CHUNK = 1 << 20
_SMALL = 1 << 16


class DiskView:
    """One mount's tree on disk, confined to a root descriptor that is held open."""

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._descent = Descent(root, openat2=openat2)

    def close(self) -> None:
        self._descent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self, place: Place) -> Node | None:
        """What stands at ``place``, be it a link; ``None`` if nothing does."""
        try:
            opened = self._descent.open(place, NODE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            explain(error, place)
        try:
            return node_at(opened)
        finally:
            os.close(opened)

    def read(self, place: Place, *, limit: int, hard_links: bool = True) -> tuple[bytes, Node]:
        """A file's bytes, at most ``limit`` of them, and the node as it was just before they were read.

        Without ``hard_links`` a file of several names is refused: one of the others may be protected.
        """
        opened = self._open_file(place)
        try:
            node = node_at(opened)
            _require_readable(place, node, hard_links=hard_links)
            if node.fingerprint.size > limit:
                raise _too_large(place, f"{node.fingerprint.size:,}", limit)
            body = _bytes_of(opened, node.fingerprint.size, limit)
        finally:
            os.close(opened)
        if len(body) > limit:
            raise _too_large(place, f"more than {limit:,}", limit)
        return body, node

    def pieces(self, place: Place, *, hard_links: bool = True) -> Iterator[bytes]:
        """A file's bytes one piece after the other, so that its size does not matter."""
        with held(self._open_file(place)) as opened:
            _require_readable(place, node_at(opened), hard_links=hard_links)
            while piece := os.read(opened, _CHUNK):
                yield piece

    def peek(self, place: Place, spans: Iterable[tuple[int, int]], *, hard_links: bool = True) -> list[bytes]:
        """Some pieces of a file, each from an offset and at most so long: for who knows where to look."""
        opened = self._open_file(place)
        try:
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode):
                raise _not_regular(place)
            if seen.st_nlink > 1 and not hard_links:
                raise several_names(place)
            if seen.st_size > _SMALL:
                return [os.pread(opened, length, offset) for offset, length in spans]
            # All of it is had in less time than a few pieces. One that grows meanwhile is read as far as it was.
            body = os.pread(opened, seen.st_size, 0)
            return [body[offset : offset + length] for offset, length in spans]
        finally:
            os.close(opened)

    def entries(self, place: Place) -> list[Entry]:
        """What a folder holds, in no particular order and without our own temporaries."""
        with held(self._open_folder(place)) as opened, os.scandir(opened) as found:
            return [entry_of(entry) for entry in found if not is_temporary(entry.name)]

    def stats(self, place: Place) -> list[tuple[str, os.stat_result]]:
        """What a folder holds, each with what the system says of it, without our own temporaries.

        For who goes through very many to find a few that are different. What vanishes is passed over.
        """
        found: list[tuple[str, os.stat_result]] = []
        with held(self._open_folder(place)) as opened, os.scandir(opened) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".~") and is_temporary(name):
                    continue
                with suppress(FileNotFoundError):
                    found.append((name, entry.stat(follow_symlinks=False)))
        return found

    def walk(self, place: Place) -> Iterator[tuple[Place, Entry]]:
        """Everything below a folder, each folder before what it holds.

        One that vanishes meanwhile, may not be opened or lies in another mount is named and not entered.
        """
        return self._walk(place, self.entries(place))

    def _walk(self, folder: Place, entries: list[Entry]) -> Iterator[tuple[Place, Entry]]:
        pending: list[Place] = []
        while True:
            for entry in entries:
                here = folder.child(entry.name)
                yield here, entry
                if entry.kind is NodeKind.FOLDER:
                    pending.append(here)
            if not pending:
                return
            folder, entries = pending.pop(), []
            with suppress(ToolFailed, OutsideMount):
                entries = self.entries(folder)

    def link_met(self, place: Place) -> LinkInTheWay | OutsideMount:
        """What to say of the link at ``place``, or on the way to it."""
        return self._descent.link_met(place)

    def names(self, place: Place, *, recursive: bool = True) -> Iterator[tuple[str, str, NodeKind | None]]:
        """What ``walk`` finds, as bare paths, names and kinds: for who goes through very many to keep a few."""
        folder, opened = place, self._open_folder(place)
        pending: list[Place] = []
        while True:
            above = "/" if folder.is_root else folder.path + "/"
            with held(opened), os.scandir(opened) as found:
                for entry in found:
                    name, kind = entry.name, entry_kind(entry)
                    if name.startswith(".~") and is_temporary(name):
                        continue
                    yield above + name, name, kind
                    if recursive and kind is NodeKind.FOLDER:
                        pending.append(folder.child(name))
            opened = -1
            while opened < 0:
                if not pending:
                    return
                folder = pending.pop()
                with suppress(ToolFailed, OutsideMount):
                    opened = self._open_folder(folder)

    @property
    def root(self) -> int:
        """The root's own descriptor, which stays open as long as this does."""
        return self._descent.root

    def room(self) -> int:
        """How many bytes still fit."""
        found = os.statvfs(self._descent.root)
        return found.f_bavail * found.f_frsize

    def _open_folder(self, place: Place) -> int:
        try:
            return self._descent.open(place, FOLDER)
        except FileNotFoundError:
            raise NotFound(f"Folder not found: {shown(place)}") from None
        except NotADirectoryError:
            raise self._no_folder(place) from None
        except OSError as error:
            explain(error, place)

    def _open_file(self, place: Place) -> int:
        try:
            return self._descent.open(place, FILE)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"File not found: {shown(place)}") from None
        except OSError as error:
            # A socket, or a device without a driver, cannot even be opened.
            if error.errno == errno.ENXIO:
                raise _not_regular(place) from None
            explain(error, place)

    def _no_folder(self, place: Place) -> ToolFailed:
        if self.look(place) is None:
            return NotFound(f"Folder not found: {shown(place)}")
        return BadArguments({"path": f"Not a folder: {shown(place)}"})


@contextmanager
def held(descriptor: int) -> Iterator[int]:
    """A descriptor, closed at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def node_at(descriptor: int) -> Node:
    """What a descriptor stands for, as it is now."""
    # Before the stat: a change after this moment must not look as if it had been seen.
    seen_ns = time.time_ns()
    seen = os.fstat(descriptor)
    target = os.readlink("", dir_fd=descriptor) if stat.S_ISLNK(seen.st_mode) else None
    return node_of(seen, seen_ns=seen_ns, target=target)


def _require_readable(place: Place, node: Node, *, hard_links: bool) -> None:
    if node.kind is NodeKind.FOLDER:
        raise BadArguments({"path": f"Cannot read a folder: {shown(place)}"})
    if node.kind is not NodeKind.FILE:
        raise _not_regular(place)
    if node.links > 1 and not hard_links:
        raise several_names(place)


def is_temporary(name: str) -> bool:
    """Whether a name is that of a file in the making."""
    return TEMPORARY.fullmatch(name) is not None


def several_names(place: Place) -> ProtectedName:
    return ProtectedName(
        f"{shown(place)} has several names (hard links), and one of them may be protected."
        " Copy the file, then read the copy."
    )


def _not_regular(place: Place) -> ToolFailed:
    return ToolFailed(f"{shown(place)} is not a regular file but a FIFO, socket or device. Read another.")


def _too_large(place: Place, size: str, limit: int) -> TooLarge:
    return TooLarge(f"{shown(place)} has {size} bytes; the limit is {limit:,}. Search in it instead.")


def _bytes_of(file: int, size: int, limit: int) -> bytes:
    """The bytes of ``file``; of one that grows under our eyes no more than one past ``limit``."""
    body = os.read(file, min(size, limit) + 1)
    if len(body) == size:
        return body
    chunks = [body]
    left = limit + 1 - len(body)
    while left > 0 and (chunk := os.read(file, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
