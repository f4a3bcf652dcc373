"""Changes files on disk. No other module writes to a mount; policy and history are the caller's concern."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Self

from toolcrib.core.errors import (
    BadArguments,
    Conflict,
    NotFound,
    ReadOnlyMount,
    ToolcribError,
)
from toolcrib.core.files import DirEntry, DiskEntry, EntryKind
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.confined_open import (
    OPEN_DIR_FLAGS,
    OPEN_FILE_FLAGS,
    OPEN_PATH_FLAGS,
    RENAME_NOREPLACE,
    renameat2,
    require_normal,
    syncfs,
)
from toolcrib.workspace.fs.mount_reader import (
    TEMPORARY,
    MountReader,
    explain,
    explaining,
    hard_link_error,
    held,
    is_temporary,
    node_at,
    too_large,
)
from toolcrib.workspace.fs.normalize import Normalizer
from toolcrib.workspace.fs.tree_hash import TreeHash, TreeHasher

__all__ = ["DirEntry", "DiskEntry", "MountWriter", "hard_link_error", "is_temporary", "too_large"]

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RESERVED = re.compile(rf"/{TEMPORARY.pattern}(?:/|\Z)")


class MountWriter(MountReader):
    """A mount's tree that can be changed. Each change is atomic, and durable when the call returns."""

    def __init__(self, root: Path, *, writable: bool = True, openat2: bool | None = None) -> None:
        super().__init__(root, openat2=openat2)
        self._writable = writable
        self._syncs = True

    def without_sync(self) -> Self:
        """Return the same mount for many changes, which ``sync`` makes durable together. Each stays atomic."""
        other = copy(self)
        other._syncs = False
        return other

    def sync(self) -> None:
        """Make all changes durable."""
        syncfs(self._confined_root.root)

    def write(self, path: WorkspacePath, body: bytes, *, mode: int) -> DiskEntry:
        """Create or replace a file. Creates missing parent folders."""
        with self._changing(path) as (folder, name):
            self._require_replaceable(path, name, folder)
            with _temporary_file(folder, body, mode) as (temporary, file):
                os.fsync(file)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                self._sync(folder)
                return node_at(file)

    def write_all(
        self, contents: Sequence[tuple[WorkspacePath, bytes, int]], wrote: Callable[[], None] = lambda: None
    ) -> list[DiskEntry]:
        """Write many files with two syncs of the file system instead of two per file. Calls ``wrote`` for each.

        Each file is atomic even if the machine stops: no file is renamed before all bytes are durable.
        """
        names: list[str] = []
        try:
            for path, body, mode in contents:
                names.append(self._begin(path, body, mode))
                wrote()
            self.sync()
        except BaseException:
            for (path, _, _), name in zip(contents, names, strict=False):
                with suppress(ToolcribError, OSError), self._changing(path) as (folder, _):
                    os.unlink(name, dir_fd=folder)
            raise
        nodes = [self._finish(path, name) for (path, _, _), name in zip(contents, names, strict=True)]
        if self._syncs:
            self.sync()
        return nodes

    def _begin(self, path: WorkspacePath, body: bytes, mode: int) -> str:
        with self._changing(path) as (folder, name):
            self._require_replaceable(path, name, folder)
            with _temporary_file(folder, body, mode) as (temporary, _):
                return temporary

    def _finish(self, path: WorkspacePath, temporary: str) -> DiskEntry:
        with self._changing(path) as (folder, name):
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            with held(os.open(name, OPEN_PATH_FLAGS, dir_fd=folder)) as file:
                return node_at(file)

    def append(self, path: WorkspacePath, line: bytes) -> int:
        """Append to a log file, creating it if missing. Returns its new length.

        For logs without a history. Lines of several writers do not mix; the last ones may be lost if the machine stops.
        """
        with self._changing(path) as (folder, name), held(os.open(name, _LOG, 0o644, dir_fd=folder)) as file:
            self._require_plain(path, os.fstat(file).st_mode)
            _write_all(file, line)
            return os.fstat(file).st_size

    def make_folder(self, path: WorkspacePath, *, mode: int) -> DiskEntry:
        """Create a folder and its parents. An existing folder stays unchanged."""
        self._require_writable(path)
        with explaining(path), held(self._confined_root.folder(path, mode, sync=self._syncs)) as folder:
            return node_at(folder)

    def make_link(self, path: WorkspacePath, target: str) -> DiskEntry:
        """Create a symbolic link, or replace a file or link with one. Toolcrib never follows it."""
        with self._changing(path) as (folder, name):
            self._require_replaceable(path, name, folder, links=True)
            with _temporary(folder) as temporary:
                os.symlink(target, temporary, dir_fd=folder)
                with held(os.open(temporary, OPEN_PATH_FLAGS, dir_fd=folder)) as link:
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                    self._sync(folder)
                    return node_at(link)

    def rename(self, source: WorkspacePath, destination: WorkspacePath, *, into: "MountWriter | None" = None) -> None:
        """Move a file, link or folder to a free path, here or in another mount. Creates missing parent folders."""
        self._require_changeable(source)
        if into is None and destination.is_below(source):
            raise Conflict(f"{source.display} cannot be moved into itself. Choose a path outside it.")
        if self.stat(source) is None:
            raise NotFound(f"File not found: {source.display}")
        target = into or self
        with (
            target._changing(destination) as (there, name),
            held(self._confined_root.open(source.parent, OPEN_DIR_FLAGS)) as here,
        ):
            renameat2(here, source.name, there, name, flags=RENAME_NOREPLACE)
            if target._syncs:
                self._sync(there)
                self._sync(here)

    def can_rename_into(self, other: "MountWriter") -> bool:
        """Whether a rename from here to there is possible. Tries it: mount points of one device fail with EXDEV too."""
        name = f".~toolcrib-{secrets.token_hex(8)}.tmp"
        try:
            # The kernel compares the mounts before it looks up the name, which does not exist.
            renameat2(self._confined_root.root, name, other._confined_root.root, name, flags=RENAME_NOREPLACE)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        return False

    def normalize(self, path: WorkspacePath, *, imported: bool, setgid_folders: bool = False) -> None:
        """Strip what must not reach the host from ``path`` and everything below; see ``Normalizer``."""
        self._require_changeable(path)
        with explaining(path):
            Normalizer(self._confined_root, imported=imported, setgid_folders=setgid_folders).normalize(path)

    def hashed(self, path: WorkspacePath, *, room: int = 0) -> list[TreeHash]:
        """Hash ``path`` and everything below. Includes the bytes of small files while ``room`` lasts."""
        self._require_changeable(path)
        with explaining(path):
            return TreeHasher(self._confined_root, room=room).hashed(path)

    def gives_group(self, path: WorkspacePath) -> bool:
        """Whether new entries beside ``path`` inherit the folder's group. Checks the nearest folder that exists."""
        try:
            with held(self._confined_root.open(path.parent, OPEN_DIR_FLAGS)) as folder:
                return bool(os.fstat(folder).st_mode & stat.S_ISGID)
        except (FileNotFoundError, NotADirectoryError):
            return not path.parent.is_root and self.gives_group(path.parent)

    def set_mode(self, path: WorkspacePath, mode: int) -> DiskEntry:
        """Set the permissions of a file or folder."""
        with self._path_state(path) as node:
            current = os.fstat(node).st_mode
            inherited = current & stat.S_ISGID if stat.S_ISDIR(current) else 0
            os.chmod(_handle(node), inherited | mode & 0o777)
            self._flush(node)
            return node_at(node)

    def set_times(self, path: WorkspacePath) -> DiskEntry:
        """Set the modification time of a file or folder to now."""
        with self._path_state(path) as node:
            os.utime(_handle(node))
            self._flush(node)
            return node_at(node)

    def remove(self, path: WorkspacePath) -> None:
        """Remove a file, a link or an empty folder. A missing path is not an error."""
        self._require_changeable(path)
        with explaining(path):
            try:
                above = self._confined_root.open(path.parent, OPEN_DIR_FLAGS)
            except (FileNotFoundError, NotADirectoryError):
                return
            with held(above):
                _remove(path.name, above)
                self._sync(above)

    def remove_whole(self, path: WorkspacePath) -> None:
        """Remove ``path`` with everything below it. Links are removed, not followed."""
        self._require_changeable(path)
        node = self.stat(path)
        folders = [path] if node is not None and node.kind is EntryKind.FOLDER else []
        for folder in folders:
            # The owner of a folder may change its mode, and the server owns everything here.
            self.set_mode(folder, 0o700)
            folders += [folder.child(entry.name) for entry in self.entries(folder) if entry.kind is EntryKind.FOLDER]
        for folder in reversed(folders):
            with explaining(folder), held(self._open_folder(folder)) as opened:
                for name in os.listdir(opened):
                    _remove(name, opened)
        self.remove(path)

    def sweep(self, folder: WorkspacePath) -> int:
        """Remove temporary files that a crash left directly in ``folder``. Returns their number.

        For crash recovery only, while nothing else writes there: a temporary file may belong to a write in progress.
        """
        self._require_writable(folder)
        with explaining(folder):
            try:
                opened = self._confined_root.open(folder, OPEN_DIR_FLAGS)
            except (FileNotFoundError, NotADirectoryError):
                return 0
            with held(opened):
                strays = [name for name in os.listdir(opened) if TEMPORARY.fullmatch(name)]
                for name in strays:
                    _remove(name, opened)
                if strays:
                    os.fsync(opened)
                return len(strays)

    @contextmanager
    def _changing(self, path: WorkspacePath) -> Iterator[tuple[int, str]]:
        """Open the parent folder of ``path`` for a change, creating it if missing. Also yields the name in it."""
        self._require_changeable(path)
        try:
            folder = self._confined_root.folder(path.parent, sync=self._syncs)
            try:
                yield folder, path.name
            finally:
                os.close(folder)
        except OSError as error:
            explain(error, path)

    @contextmanager
    def _path_state(self, path: WorkspacePath) -> Iterator[int]:
        """Open the file or folder at ``path`` for a change of its metadata."""
        self._require_writable(path)
        try:
            opened = self._confined_root.open(path, OPEN_PATH_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"File not found: {path.display}") from None
        except OSError as error:
            explain(error, path)
        with explaining(path), held(opened):
            self._require_plain(path, os.fstat(opened).st_mode)
            yield opened

    def _sync(self, descriptor: int) -> None:
        if self._syncs:
            os.fsync(descriptor)

    def _flush(self, node: int) -> None:
        """Sync an entry that is open without access to its content."""
        if not self._syncs:
            return
        # An unreadable file cannot be opened for fsync; the kernel flushes it later.
        with suppress(PermissionError), held(os.open(_handle(node), OPEN_FILE_FLAGS)) as readable:
            os.fsync(readable)

    def _require_writable(self, path: WorkspacePath) -> None:
        require_normal(path)
        if not self._writable:
            raise ReadOnlyMount(f"{path} cannot be changed: @{path.mount} is read-only. Use another mount.")
        if _RESERVED.search(path.path):
            raise BadArguments({"path": "Names like .~toolcrib-….tmp are for temporary files. Choose another."})

    def _require_changeable(self, path: WorkspacePath) -> None:
        self._require_writable(path)
        if path.path == "/":
            raise Conflict(f"{path} is the root of its mount and cannot be removed. Use a path inside it.")

    def _require_replaceable(self, path: WorkspacePath, name: str, folder: int, *, links: bool = False) -> None:
        try:
            occupant = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if links and stat.S_ISLNK(occupant.st_mode):
            return
        if stat.S_ISDIR(occupant.st_mode):
            raise Conflict(f"{path.display} is a directory. Choose another path, or remove it first.")
        self._require_plain(path, occupant.st_mode)

    def _require_plain(self, path: WorkspacePath, mode: int) -> None:
        """Raise unless the mode is a regular file or a folder."""
        if stat.S_ISLNK(mode):
            raise self._confined_root.link_met(path)
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise Conflict(f"{path.display} is a special file, such as a FIFO or socket. Choose another path.")


@contextmanager
def _temporary(folder: int) -> Iterator[str]:
    """Yield a temporary name for a file that is renamed afterwards. Removes the file on failure."""
    name = f".~toolcrib-{secrets.token_hex(8)}.tmp"
    try:
        yield name
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        raise


@contextmanager
def _temporary_file(folder: int, body: bytes, mode: int) -> Iterator[tuple[str, int]]:
    """Yield the name and the descriptor of a temporary file with this content."""
    with _temporary(folder) as name:
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        try:
            os.fchmod(file, mode & 0o777)
            _write_all(file, body)
            yield name, file
        finally:
            os.close(file)


def _write_all(file: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(file, rest) :]


def _handle(node: int) -> str:
    """Return a path to the open entry itself, even if it was moved. Works without read permission."""
    return f"/proc/self/fd/{node}"


def _remove(name: str, above: int) -> None:
    try:
        os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        os.rmdir(name, dir_fd=above)
