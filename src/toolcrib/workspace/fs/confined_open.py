"""Opens paths without ever leaving the mount root. Reads and writes no content.

A path is not checked first and opened later. It is opened under restrictions, by openat2 or one component at a time, so
that a folder cannot be swapped for a link in between. Callers get a file descriptor.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Protocol

from toolcrib.core.errors import PathOutsideMount, SymlinkNotFollowed
from toolcrib.core.files import FOLDER_MODE
from toolcrib.core.paths import WorkspacePath, mount_root, shown
from toolcrib.workspace.fs import syscalls

# Flags for three uses: any entry including a link, a folder to work in, a file to read. NONBLOCK: opening a FIFO must
# not hang. NOCTTY: a terminal must not become our controlling terminal.
OPEN_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

RESOLVE_CONFINED = (
    syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_XDEV
)
_NOT_NORMALIZED = re.compile(r"\A(?!/)|\0|//|/\.\.?(?:/|\Z)|[^/]/\Z")
_MOST_STEPS = 256


class ConfinedRoot:
    """Opens paths below one root directory, which it keeps open."""

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._root = os.open(root, OPEN_DIR_FLAGS)
        by_kernel = syscalls.has_openat2() if openat2 is None else openat2
        self._opener: _ConfinedOpener = _Openat2Opener(self._root) if by_kernel else _ComponentOpener(self._root)

    @property
    def root(self) -> int:
        """The file descriptor of the root."""
        return self._root

    def close(self) -> None:
        """Close the root. Later opens fail."""
        if self._root >= 0:
            os.close(self._root)
        # The kernel may soon reuse the number for another file.
        self._root = -1
        self._opener = _ClosedOpener()

    def __del__(self) -> None:
        # Roots are shared: the last reference closes the descriptor.
        if hasattr(self, "_opener"):
            self.close()

    def open(self, path: WorkspacePath, flags: int) -> int:
        """Open ``path`` and return a descriptor, which the caller closes.

        Raises:
            SymlinkNotFollowed: A link is on the way.
            PathOutsideMount: A link leads out of the mount, or another file system is mounted on the way.
            OSError: Every other failure.
        """
        require_normal(path)
        try:
            return self._opener.open(path.path[1:] or ".", flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self.link_met(path) from None
            if error.errno == errno.EXDEV:
                raise PathOutsideMount(
                    f"{shown(path)} is outside the workspace: another file system is mounted there."
                    " Use a path inside the workspace."
                ) from None
            raise

    def folder(self, path: WorkspacePath, mode: int = FOLDER_MODE) -> int:
        """Open the folder at ``path``, creating it and its parents if they are missing."""
        try:
            return self.open(path, OPEN_DIR_FLAGS)
        except FileNotFoundError:
            if path.is_root:
                raise
        above = self.folder(path.parent)
        try:
            is_ours = _made(path.name, above)
            opened = self.open(path, OPEN_DIR_FLAGS)
        finally:
            os.close(above)
        if is_ours:
            try:
                _set_mode(opened, mode)
            except OSError:
                os.close(opened)
                raise
        return opened

    def link_met(self, path: WorkspacePath) -> SymlinkNotFollowed | PathOutsideMount:
        """Build the error for a link on the way to ``path``: it leads out of the mount, or it is not followed.

        Only the message depends on this. Nothing is opened through a link, and a link that is gone by now is described
        as one that stays inside.
        """
        met: WorkspacePath | None = None
        here, ahead = mount_root(path.mount, path.scope), list(path.parts)
        for _ in range(_MOST_STEPS):
            if not ahead:
                break
            name = ahead.pop(0)
            if name == ".." and here.is_root:
                return _leads_out(path)
            here = here.parent if name == ".." else here if name in ("", ".") else here.child(name)
            target = self._target(here)
            if target is None:
                continue
            if target.startswith("/"):
                return _leads_out(path)
            met = met or here
            here, ahead = here.parent, target.split("/") + ahead
        link = shown(met or path)
        return SymlinkNotFollowed(f"{link} is a symbolic link; links are not followed. Use the path it points to.")

    def _target(self, path: WorkspacePath) -> str | None:
        try:
            node = self._opener.open(path.path[1:] or ".", OPEN_PATH_FLAGS)
        except OSError:
            return None
        try:
            return os.readlink("", dir_fd=node)
        except OSError:
            return None
        finally:
            os.close(node)


def require_normal(path: WorkspacePath) -> None:
    """Reject a path that is not normalized. Parsers normalize every path; this check is the second barrier."""
    if _NOT_NORMALIZED.search(path.path):
        raise PathOutsideMount(f"{path.path!r} is outside the workspace: it is not normalized. Use a normalized path.")


class _ConfinedOpener(Protocol):
    """Opens a relative path beneath a root. Fails with ELOOP at a link and EXDEV at another mount."""

    def open(self, path: str, flags: int) -> int: ...


class _Openat2Opener:
    """Opens with openat2: one system call for any depth."""

    def __init__(self, root: int) -> None:
        self._root = root

    def open(self, path: str, flags: int) -> int:
        try:
            return syscalls.openat2(self._root, path, flags=flags, resolve=RESOLVE_CONFINED)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
        # A program can create trees deeper than PATH_MAX. Component by component, every part is short again.
        return _ComponentOpener(self._root).open(path, flags)


class _ComponentOpener:
    """Opens with one O_NOFOLLOW openat per component, where openat2 is missing."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._mount = _mount_of(root)

    def open(self, path: str, flags: int) -> int:
        # Enter the last folder like those above it, then open "." from within.
        *folders, last = [*path.split("/"), "."] if flags & os.O_DIRECTORY else path.split("/")
        at = self._root
        try:
            for name in folders:
                below = _folder_in(at, name)
                if at != self._root:
                    os.close(at)
                at = below
            opened = os.open(last, flags | os.O_NOFOLLOW, dir_fd=at)
        except OSError:
            # A missing file in another mount also reports EXDEV, so that errors reveal nothing about it.
            self._require_same_mount(at, path)
            raise
        finally:
            if at != self._root:
                os.close(at)
        try:
            self._require_same_mount(opened, path)
        except OSError:
            os.close(opened)
            raise
        return opened

    def _require_same_mount(self, reached: int, path: str) -> None:
        """Check the final mount only: a path that goes down never returns to a mount that it left."""
        if _mount_of(reached) != self._mount:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)


class _ClosedOpener:
    def open(self, path: str, flags: int) -> int:
        raise OSError(errno.EBADF, "The disk is closed", path)


def _folder_in(above: int, name: str) -> int:
    """Open any entry by name, then check that it is a folder, so that no swap comes in between."""
    opened = os.open(name, OPEN_PATH_FLAGS, dir_fd=above)
    mode = os.fstat(opened).st_mode
    if stat.S_ISDIR(mode):
        return opened
    os.close(opened)
    number = errno.ELOOP if stat.S_ISLNK(mode) else errno.ENOTDIR
    raise OSError(number, os.strerror(number), name)


def _mount_of(descriptor: int) -> str:
    """Return the mount of a descriptor. Without /proc: its device, which does not distinguish bind mounts."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
            return next(line for line in info if line.startswith("mnt_id"))
    except (OSError, StopIteration):
        return f"device {os.fstat(descriptor).st_dev}"


def _made(name: str, above: int) -> bool:
    """Create a folder unless something exists there. Returns whether it was created."""
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return False
    os.fsync(above)
    return True


def _set_mode(folder: int, mode: int) -> None:
    """Set a new folder's mode independent of the umask; keeps an inherited set-group-ID bit."""
    inherited = os.fstat(folder).st_mode & stat.S_ISGID
    os.fchmod(folder, inherited | mode & 0o777)
    os.fsync(folder)


def _leads_out(path: WorkspacePath) -> PathOutsideMount:
    return PathOutsideMount(
        f"{shown(path)} is outside the workspace: a symbolic link on the way leads there."
        " Use a path inside the workspace."
    )
