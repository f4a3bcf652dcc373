"""Reads, lists and walks one mount's tree. Follows no links; ``MountWriter`` adds the changes."""

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import NoReturn, Protocol, Self

from toolcrib.core.errors import (
    BadArguments,
    Conflict,
    NotFound,
    PathOutsideMount,
    ProtectedPath,
    SymlinkNotFollowed,
    TooLarge,
    ToolcribError,
    ToolFailed,
)
from toolcrib.core.files import DirEntry, DiskEntry, EntryKind
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.confined_open import (
    OPEN_DIR_FLAGS,
    OPEN_FILE_FLAGS,
    OPEN_PATH_FLAGS,
    ConfinedRoot,
    birth_time,
)

# What an errno means to the caller. The error chooses the message; nothing is opened for it.
_FULL = "{path} was not changed. Free some space, then try again."
_DENIED = "The operating system denies access to {path}. Correct its owner or mode, then try again."
_MEANWHILE = "{path} or a directory above it was changed concurrently. Read it again, then repeat."


class AccessDenied(ToolFailed):
    """The operating system denies access to a path, because of its mode, its owner or an attribute."""


_MEANINGS: dict[int, tuple[type[ToolcribError], str]] = {
    errno.ENOSPC: (ToolFailed, f"The disk is full; {_FULL}"),
    errno.EDQUOT: (ToolFailed, f"The disk quota is used up; {_FULL}"),
    errno.EACCES: (AccessDenied, _DENIED),
    errno.EPERM: (AccessDenied, _DENIED),
    errno.EROFS: (ToolFailed, "The disk of {path} is mounted read-only. Mount it writable, then try again."),
    errno.ENAMETOOLONG: (ToolFailed, "A name in {path} is too long for this disk. Shorten it."),
    errno.EEXIST: (Conflict, "{path} already exists. Choose another path, or remove it first."),
    errno.EISDIR: (Conflict, "{path} is a directory. Choose another path, or remove it first."),
    errno.ENOTDIR: (Conflict, "A file is in the way of a directory of {path}. Choose another path, or move the file."),
    errno.ENOTEMPTY: (Conflict, "The directory {path} is not empty. Delete its contents first."),
    errno.EBUSY: (
        Conflict,
        "{path} is busy, such as a mount point. Choose another path.",
    ),
    errno.ENOENT: (Conflict, _MEANWHILE),
    errno.EAGAIN: (Conflict, _MEANWHILE),
    errno.ESTALE: (Conflict, _MEANWHILE),
    errno.EXDEV: (PathOutsideMount, "{path} is outside the workspace: it is on another file system."),
}


@contextmanager
def explaining(path: WorkspacePath) -> Iterator[None]:
    """Translate an ``OSError`` from a change at ``path`` into a Toolcrib error."""
    try:
        yield
    except OSError as error:
        explain(error, path)


def explain(error: OSError, path: WorkspacePath) -> NoReturn:
    """Raise the error that ``error`` means. Re-raises it if neither the caller nor the tree caused it."""
    if error.errno not in _MEANINGS:
        raise error
    meaning, words = _MEANINGS[error.errno]
    raise meaning(words.replace("{path}", path.display)) from error


TEMPORARY = re.compile(r"\.~toolcrib-[0-9a-f]{16}\.tmp")
_CHUNK = 1 << 20
_ENTER_AND_WRITE = 0o300
_SMALL = 1 << 16


class FolderAccess(Enum):
    """Whether the server may change the entries of a folder.

    ``LOCKED``: it may not, by the mode, which it could change as the owner. ``DENIED``: it may not, and could not.
    """

    OPEN = "open"
    LOCKED = "locked"
    DENIED = "denied"


def is_locked_mode(mode: int) -> bool:
    """Whether a folder's mode keeps its owner from changing its entries."""
    return mode & _ENTER_AND_WRITE != _ENTER_AND_WRITE


class NameFilter(Protocol):
    """Decides about a name in one folder."""

    def __call__(self, name: str, *, folder: bool) -> bool: ...


# Returns for a folder which of its names are skipped.
SkipNames = Callable[[WorkspacePath], NameFilter]


class MountReader:
    """One mount's tree on disk, confined to a root descriptor that stays open."""

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._confined_root = ConfinedRoot(root, openat2=openat2)

    def close(self) -> None:
        self._confined_root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stat(self, path: WorkspacePath) -> DiskEntry | None:
        """Return the entry at ``path``, without following a link; ``None`` if there is none."""
        try:
            opened = self._confined_root.open(path, OPEN_PATH_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            explain(error, path)
        try:
            return node_at(opened)
        finally:
            os.close(opened)

    def stat_no_symlinks(self, path: WorkspacePath) -> DiskEntry | None:
        """Stat a path before a change. Returns ``None`` if a link is on the way."""
        try:
            return self.stat(path)
        except (SymlinkNotFollowed, PathOutsideMount):
            return None

    def read(self, path: WorkspacePath, *, limit: int, hard_links: bool = True) -> tuple[bytes, DiskEntry]:
        """Return a file's bytes and its disk entry from just before they were read.

        Args:
            limit: The most bytes to read.
            hard_links: Whether to read a file with several names. One of the others may be protected.

        Raises:
            TooLarge: The file has more than ``limit`` bytes.
            ProtectedPath: The file has several names and ``hard_links`` is false.
        """
        opened = self._open_file(path)
        try:
            node = node_at(opened)
            _require_readable(path, node, hard_links=hard_links)
            if node.fingerprint.size > limit:
                raise too_large(path, f"{node.fingerprint.size:,}", limit)
            body = _bytes_of(opened, node.fingerprint.size, limit)
        finally:
            os.close(opened)
        if len(body) > limit:
            raise too_large(path, f"more than {limit:,}", limit)
        return body, node

    def pieces(self, path: WorkspacePath, *, hard_links: bool = True) -> Iterator[bytes]:
        """Yield a file's bytes in chunks, for files of any size."""
        with held(self._open_file(path)) as opened:
            _require_readable(path, node_at(opened), hard_links=hard_links)
            while piece := os.read(opened, _CHUNK):
                yield piece

    def read_head(
        self, path: WorkspacePath, spans: Iterable[tuple[int, int]], *, hard_links: bool = True
    ) -> list[bytes]:
        """Read parts of a file, each given as offset and maximum length."""
        opened = self._open_file(path)
        try:
            seen = os.fstat(opened)
            if not stat.S_ISREG(seen.st_mode):
                raise _not_regular(path)
            if seen.st_nlink > 1 and not hard_links:
                raise hard_link_error(path)
            if seen.st_size > _SMALL:
                return [os.pread(opened, length, offset) for offset, length in spans]
            # One read is faster than several small ones. If the file grows meanwhile, the extra bytes are ignored.
            body = os.pread(opened, seen.st_size, 0)
            return [body[offset : offset + length] for offset, length in spans]
        finally:
            os.close(opened)

    def entries(self, path: WorkspacePath) -> list[DirEntry]:
        """List a folder in no particular order, without Toolcrib's temporary files."""
        with held(self._open_folder(path)) as opened, os.scandir(opened) as found:
            return [DirEntry(entry.name, _entry_kind(entry)) for entry in found if not is_temporary(entry.name)]

    def stats(self, path: WorkspacePath) -> list[tuple[str, os.stat_result]]:
        """List a folder with stat results, without Toolcrib's temporary files.

        Fast enough for large scans that look for a few changes. Skips entries that vanish meanwhile.
        """
        found: list[tuple[str, os.stat_result]] = []
        with held(self._open_folder(path)) as opened, os.scandir(opened) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".~") and is_temporary(name):
                    continue
                with suppress(FileNotFoundError):
                    found.append((name, entry.stat(follow_symlinks=False)))
        return found

    def walk(self, path: WorkspacePath) -> Iterator[tuple[WorkspacePath, DirEntry]]:
        """Yield everything below a folder, each folder before its content.

        A folder that vanishes, cannot be opened or is another mount is yielded but not entered.
        """
        return self._walk(path, self.entries(path))

    def _walk(self, folder: WorkspacePath, entries: list[DirEntry]) -> Iterator[tuple[WorkspacePath, DirEntry]]:
        pending: list[WorkspacePath] = []
        while True:
            for entry in entries:
                here = folder.child(entry.name)
                yield here, entry
                if entry.kind is EntryKind.FOLDER:
                    pending.append(here)
            if not pending:
                return
            folder, entries = pending.pop(), []
            with suppress(ToolFailed, PathOutsideMount):
                entries = self.entries(folder)

    def symlink_error(self, path: WorkspacePath) -> SymlinkNotFollowed | PathOutsideMount:
        """Build the error for the link at ``path``, or on the way to it."""
        return self._confined_root.link_met(path)

    def names(
        self, path: WorkspacePath, *, recursive: bool = True, skip: SkipNames | None = None
    ) -> Iterator[tuple[str, str, EntryKind | None]]:
        """Yield what ``walk`` yields as plain paths, names and kinds. Cheaper when most results are dropped.

        ``skip`` returns for each folder a check of the names that are left out, with everything below them.
        """
        folder, opened = path, self._open_folder(path)
        pending: list[WorkspacePath] = []
        while True:
            above = "/" if folder.is_root else folder.path + "/"
            is_skipped = skip(folder) if skip is not None else None
            with held(opened), os.scandir(opened) as found:
                for entry in found:
                    name, kind = entry.name, _entry_kind(entry)
                    if name.startswith(".~") and is_temporary(name):
                        continue
                    if is_skipped is not None and is_skipped(name, folder=kind is EntryKind.FOLDER):
                        continue
                    yield above + name, name, kind
                    if recursive and kind is EntryKind.FOLDER:
                        pending.append(folder.child(name))
            opened = -1
            while opened < 0:
                if not pending:
                    return
                folder = pending.pop()
                with suppress(ToolFailed, PathOutsideMount):
                    opened = self._open_folder(folder)

    @property
    def root(self) -> int:
        """The root's descriptor. It stays open as long as this object."""
        return self._confined_root.root

    def free_bytes(self) -> int:
        """Return the free space in bytes."""
        found = os.statvfs(self._confined_root.root)
        return found.f_bavail * found.f_frsize

    def access_to(self, folder: WorkspacePath) -> FolderAccess:
        """Return whether entries of a folder can be created and removed. What is missing counts as open."""
        try:
            opened = self._confined_root.open(folder, OPEN_PATH_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return FolderAccess.OPEN
        except (SymlinkNotFollowed, PathOutsideMount):
            # The change itself fails, or removes the link first.
            return FolderAccess.OPEN
        except PermissionError:
            return FolderAccess.DENIED
        with held(opened):
            if os.access(f"/proc/self/fd/{opened}", os.W_OK | os.X_OK, effective_ids=True):
                return FolderAccess.OPEN
            seen = os.fstat(opened)
            is_by_mode = seen.st_uid == os.geteuid() and is_locked_mode(seen.st_mode)
            return FolderAccess.LOCKED if is_by_mode else FolderAccess.DENIED

    def _open_folder(self, path: WorkspacePath) -> int:
        try:
            return self._confined_root.open(path, OPEN_DIR_FLAGS)
        except FileNotFoundError:
            raise NotFound(f"Folder not found: {path.display}") from None
        except NotADirectoryError:
            raise self._no_folder(path) from None
        except OSError as error:
            explain(error, path)

    def _open_file(self, path: WorkspacePath) -> int:
        try:
            return self._confined_root.open(path, OPEN_FILE_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"File not found: {path.display}") from None
        except OSError as error:
            # A socket, or a device without a driver, cannot even be opened.
            if error.errno == errno.ENXIO:
                raise _not_regular(path) from None
            explain(error, path)

    def _no_folder(self, path: WorkspacePath) -> ToolFailed:
        if self.stat(path) is None:
            return NotFound(f"Folder not found: {path.display}")
        return BadArguments({"path": f"Not a folder: {path.display}"})


@contextmanager
def held(descriptor: int) -> Iterator[int]:
    """Close the descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def node_at(descriptor: int) -> DiskEntry:
    """Return the disk entry of a descriptor."""
    # Taken before the stat, so that a later change never looks as if it had been seen.
    seen_ns = time.time_ns()
    seen = os.fstat(descriptor)
    target = os.readlink("", dir_fd=descriptor) if stat.S_ISLNK(seen.st_mode) else None
    # Files are compared by content; only what the history does not store is recognised by its identity.
    born_ns = birth_time(descriptor) if stat.S_ISDIR(seen.st_mode) else None
    return DiskEntry.from_stat(seen, seen_ns=seen_ns, target=target, born_ns=born_ns)


def _require_readable(path: WorkspacePath, node: DiskEntry, *, hard_links: bool) -> None:
    if node.kind is EntryKind.FOLDER:
        raise BadArguments({"path": f"Cannot read a folder: {path.display}"})
    if node.kind is not EntryKind.FILE:
        raise _not_regular(path)
    if node.links > 1 and not hard_links:
        raise hard_link_error(path)


def is_temporary(name: str) -> bool:
    """Whether a name belongs to a temporary file of Toolcrib."""
    return TEMPORARY.fullmatch(name) is not None


def hard_link_error(path: WorkspacePath) -> ProtectedPath:
    """Build the error for a file with several names."""
    return ProtectedPath(
        f"{path.display} has several hard links, and one of them may be protected. Copy the file, then read the copy."
    )


def _not_regular(path: WorkspacePath) -> ToolFailed:
    return ToolFailed(f"{path.display} is not a regular file but a FIFO, socket or device. Read another.")


def too_large(path: WorkspacePath, size: str, limit: int) -> TooLarge:
    """Build the error for a file that exceeds a limit."""
    return TooLarge(f"{path.display} has {size} bytes; the limit is {limit:,}. Search in it instead.")


def _bytes_of(file: int, size: int, limit: int) -> bytes:
    """Read a file. If it grows meanwhile, stop one byte past ``limit``."""
    body = os.read(file, min(size, limit) + 1)
    if len(body) == size:
        return body
    chunks = [body]
    left = limit + 1 - len(body)
    while left > 0 and (chunk := os.read(file, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _entry_kind(found: os.DirEntry[str]) -> EntryKind | None:
    """Return the kind of a directory entry; ``None`` for a special file."""
    if found.is_file(follow_symlinks=False):
        return EntryKind.FILE
    if found.is_dir(follow_symlinks=False):
        return EntryKind.FOLDER
    return EntryKind.LINK if found.is_symlink() else None
