"""The only module that reads and writes the tree on disk. Knows no history and no policy."""

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from toolcrib.domain.errors import (
    BadArguments,
    Conflict,
    LinkInTheWay,
    NotFound,
    OutsideMount,
    ProtectedName,
    ReadOnlyMount,
    TooLarge,
    ToolFailed,
)
from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.descent import FILE, FOLDER, NODE, Descent, require_normal
from toolcrib.workspace.failures import explain, explaining
from toolcrib.workspace.nodes import Entry, Node, entry_kind, entry_of, node_of
from toolcrib.workspace.paths import shown
from toolcrib.workspace.syscalls import RENAME_NOREPLACE, renameat2

__all__ = ["Disk", "Entry", "Node", "is_temporary", "several_names"]

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY = re.compile(r"\.~toolcrib-[0-9a-f]{16}\.tmp")
_RESERVED = re.compile(rf"/{_TEMPORARY.pattern}(?:/|\Z)")
_CHUNK = 1 << 20


class Disk:
    """One mount's tree on disk, confined to a root descriptor that is held open.

    Links are never followed. A change is there whole or not at all; once a call returns it survives a crash.
    """

    def __init__(self, root: Path, *, writable: bool = True, openat2: bool | None = None) -> None:
        self._descent = Descent(root, openat2=openat2)
        self._writable = writable

    def close(self) -> None:
        self._descent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Looking

    def look(self, place: Place) -> Node | None:
        """What stands at ``place``, be it a link; ``None`` if nothing does."""
        try:
            opened = self._descent.open(place, NODE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            explain(error, place)
        try:
            return _node(opened)
        finally:
            os.close(opened)

    def read(self, place: Place, *, limit: int, hard_links: bool = True) -> tuple[bytes, Node]:
        """A file's bytes, at most ``limit`` of them, and the node as it was just before they were read.

        Without ``hard_links`` a file of several names is refused: one of the others may be protected.
        """
        opened = self._open_file(place)
        try:
            node = _node(opened)
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
        with _held(self._open_file(place)) as opened:
            _require_readable(place, _node(opened), hard_links=hard_links)
            while piece := os.read(opened, _CHUNK):
                yield piece

    def peek(self, place: Place, spans: Iterable[tuple[int, int]], *, hard_links: bool = True) -> list[bytes]:
        """Some pieces of a file, each from an offset and at most so long: for who knows where to look."""
        with _held(self._open_file(place)) as opened:
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode):
                raise _not_regular(place)
            if seen.st_nlink > 1 and not hard_links:
                raise several_names(place)
            return [os.pread(opened, length, offset) for offset, length in spans]

    def entries(self, place: Place) -> list[Entry]:
        """What a folder holds, in no particular order and without our own temporaries."""
        with _held(self._open_folder(place)) as opened, os.scandir(opened) as found:
            return [entry_of(entry) for entry in found if not is_temporary(entry.name)]

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
            with _held(opened), os.scandir(opened) as found:
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

    # Changing

    def write(self, place: Place, body: bytes, *, mode: int) -> Node:
        """Put a file at ``place``, new or in the place of another. Missing folders are made."""
        with self._changing(place) as folder:
            self._require_replaceable(place, folder)
            with _temporary(folder) as name, _held(os.open(name, _NEW_FILE, 0o600, dir_fd=folder)) as file:
                os.fchmod(file, mode & 0o777)
                _write_all(file, body)
                os.fsync(file)
                os.rename(name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
                return _node(file)

    def append(self, place: Place, line: bytes) -> int:
        """Add to the end of a log, made if missing, and say how long it is then.

        For what we write down ourselves and keep no history of. Lines of several writers do not mix; the last ones
        may be lost if the machine stops.
        """
        with self._changing(place) as folder, _held(os.open(place.name, _LOG, 0o644, dir_fd=folder)) as file:
            self._require_plain(place, os.fstat(file).st_mode)
            _write_all(file, line)
            return os.fstat(file).st_size

    def make_folder(self, place: Place, *, mode: int) -> Node:
        """Make a folder and those above it. One that exists stays as it is."""
        self._require_writable(place)
        with explaining(place), _held(self._descent.folder(place, mode)) as folder:
            return _node(folder)

    def make_link(self, place: Place, target: str) -> Node:
        """Put a symbolic link at ``place``, new or in the place of a file or link. Nobody follows it."""
        with self._changing(place) as folder:
            self._require_replaceable(place, folder, links=True)
            with _temporary(folder) as name:
                os.symlink(target, name, dir_fd=folder)
                with _held(os.open(name, NODE, dir_fd=folder)) as link:
                    os.rename(name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
                    os.fsync(folder)
                    return _node(link)

    def rename(self, source: Place, destination: Place, *, into: "Disk | None" = None) -> None:
        """Move a file, link or folder to where nothing is yet, here or on another disk. Missing folders are made."""
        self._require_changeable(source)
        if into is None and destination.is_below(source):
            raise Conflict(f"{shown(source)} cannot be moved into itself. Choose a path outside it.")
        if self.look(source) is None:
            raise NotFound(f"File not found: {shown(source)}")
        target = into or self
        with target._changing(destination) as there, _held(self._descent.open(source.parent, FOLDER)) as here:
            renameat2(here, source.name, there, destination.name, flags=RENAME_NOREPLACE)
            os.fsync(there)
            os.fsync(here)

    def can_rename_into(self, other: "Disk") -> bool:
        """Whether a rename from here to there is possible. The kernel is asked: mount points of one device refuse."""
        name = f".~toolcrib-{secrets.token_hex(8)}.tmp"
        try:
            # The kernel compares the mounts before it looks for the name, which nobody has.
            renameat2(self._descent.root, name, other._descent.root, name, flags=RENAME_NOREPLACE)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        return False

    def set_mode(self, place: Place, mode: int) -> Node:
        """Give a file or folder its permissions."""
        with self._standing(place) as node:
            current = os.fstat(node).st_mode
            inherited = current & stat.S_ISGID if stat.S_ISDIR(current) else 0
            os.chmod(_handle(node), inherited | mode & 0o777)
            _flush(node)
            return _node(node)

    def set_times(self, place: Place) -> Node:
        """Date a file or folder as changed now."""
        with self._standing(place) as node:
            os.utime(_handle(node))
            _flush(node)
            return _node(node)

    def remove(self, place: Place) -> None:
        """Remove a file, a link or an empty folder. Nothing there is fine."""
        self._require_changeable(place)
        with explaining(place):
            try:
                above = self._descent.open(place.parent, FOLDER)
            except (FileNotFoundError, NotADirectoryError):
                return
            with _held(above):
                _remove(place.name, above)
                os.fsync(above)

    def remove_whole(self, place: Place) -> None:
        """Remove what stands at ``place`` with all that is in it. Links are removed, not followed."""
        self._require_changeable(place)
        node = self.look(place)
        folders = [place] if node is not None and node.kind is NodeKind.FOLDER else []
        for folder in folders:
            # Whoever owns a folder may open it up, and we made or were given all that is here.
            self.set_mode(folder, 0o700)
            folders += [folder.child(entry.name) for entry in self.entries(folder) if entry.kind is NodeKind.FOLDER]
        for folder in reversed(folders):
            with explaining(folder), _held(self._open_folder(folder)) as opened:
                for name in os.listdir(opened):
                    _remove(name, opened)
        self.remove(place)

    def sweep(self, folder: Place) -> int:
        """Remove the temporaries that a crash left directly in ``folder``, and say how many.

        Only for recovery, while nobody writes there: a temporary may be the start of somebody's file.
        """
        self._require_writable(folder)
        with explaining(folder):
            try:
                opened = self._descent.open(folder, FOLDER)
            except (FileNotFoundError, NotADirectoryError):
                return 0
            with _held(opened):
                strays = [name for name in os.listdir(opened) if _TEMPORARY.fullmatch(name)]
                for name in strays:
                    _remove(name, opened)
                if strays:
                    os.fsync(opened)
                return len(strays)

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

    @contextmanager
    def _changing(self, place: Place) -> Iterator[int]:
        """The folder that holds ``place``, made if missing, while something in it is changed."""
        self._require_changeable(place)
        with explaining(place), _held(self._descent.folder(place.parent)) as folder:
            yield folder

    @contextmanager
    def _standing(self, place: Place) -> Iterator[int]:
        """The file or folder at ``place``, while something about it is changed."""
        self._require_writable(place)
        try:
            opened = self._descent.open(place, NODE)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"File not found: {shown(place)}") from None
        except OSError as error:
            explain(error, place)
        with explaining(place), _held(opened):
            self._require_plain(place, os.fstat(opened).st_mode)
            yield opened

    def _require_writable(self, place: Place) -> None:
        require_normal(place)
        if not self._writable:
            raise ReadOnlyMount(f"{place} cannot be changed: @{place.mount} is read-only. Write elsewhere.")
        if _RESERVED.search(place.path):
            raise BadArguments({"path": "Names like .~toolcrib-….tmp are for temporary files. Choose another."})

    def _require_changeable(self, place: Place) -> None:
        self._require_writable(place)
        if place.is_root:
            raise Conflict(f"{place} is the root of its mount and stays. Name something inside it.")

    def _require_replaceable(self, place: Place, folder: int, *, links: bool = False) -> None:
        try:
            occupant = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if links and stat.S_ISLNK(occupant.st_mode):
            return
        if stat.S_ISDIR(occupant.st_mode):
            raise Conflict(f"A folder stands at {shown(place)}. Choose another path, or remove it first.")
        self._require_plain(place, occupant.st_mode)

    def _require_plain(self, place: Place, mode: int) -> None:
        """Refuse what is neither a file nor a folder."""
        if stat.S_ISLNK(mode):
            raise self._descent.link_met(place)
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise Conflict(f"{shown(place)} is a special file, such as a FIFO or socket. Choose another path.")

    def _no_folder(self, place: Place) -> ToolFailed:
        if self.look(place) is None:
            return NotFound(f"Folder not found: {shown(place)}")
        return BadArguments({"path": f"Not a folder: {shown(place)}"})


@contextmanager
def _held(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(folder: int) -> Iterator[str]:
    """A name for what will be renamed into its place. If it comes to nothing, nothing is left."""
    name = f".~toolcrib-{secrets.token_hex(8)}.tmp"
    try:
        yield name
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        raise


def _node(descriptor: int) -> Node:
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
    return _TEMPORARY.fullmatch(name) is not None


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


def _write_all(file: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(file, rest) :]


def _handle(node: int) -> str:
    """A path to the node itself, wherever it was moved. Its owner may change what nobody may open."""
    return f"/proc/self/fd/{node}"


def _flush(node: int) -> None:
    # What may not be opened is left to the kernel, which writes it out in its own time.
    with suppress(PermissionError), _held(os.open(_handle(node), FILE)) as readable:
        os.fsync(readable)


def _remove(name: str, above: int) -> None:
    try:
        os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        os.rmdir(name, dir_fd=above)
