"""Opens paths without ever leaving the mount root. Reads and writes no content.

A path is not checked first and opened later. It is opened under restrictions, by openat2 or one component at a time, so
that a folder cannot be swapped for a link in between. Callers get a file descriptor.
"""

import ctypes
import errno
import os
import platform
import re
import stat
from functools import cache
from pathlib import Path
from typing import Protocol

from toolcrib.core.errors import PathOutsideMount, SymlinkNotFollowed
from toolcrib.core.files import FOLDER_MODE
from toolcrib.core.paths import WorkspacePath, mount_root

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 0x01

_SYS_OPENAT2 = 437
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}

# The kernel returns EAGAIN during a concurrent rename and EINTR on a signal. Both are temporary.
_PASSING = (errno.EAGAIN, errno.EINTR)
_MOST_TRIES = 128


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)

_openat2 = _libc["syscall"]
_openat2.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(_OpenHow),
    ctypes.c_size_t,
)
_openat2.restype = ctypes.c_long

_renameat2 = _libc["syscall"]
_renameat2.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_uint,
)
_renameat2.restype = ctypes.c_long


class _StatxTime(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_uint32), ("_reserved", ctypes.c_int32))


class _Statx(ctypes.Structure):
    """The start of the kernel's `struct statx`, which has 256 bytes."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_sizes", ctypes.c_uint8 * 76),
        ("born", _StatxTime),
        ("_rest", ctypes.c_uint8 * 160),
    )


_statx = _libc["statx"]
_statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Statx))
_AT_EMPTY_PATH, _STATX_BTIME = 0x1000, 0x800


def birth_time(descriptor: int) -> int | None:
    """Return when an open file or folder was created, in nanoseconds; None if its file system does not know."""
    found = _Statx()
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, ctypes.byref(found)) or not found.mask & _STATX_BTIME:
        return None
    return int(found.born.seconds) * 10**9 + int(found.born.nanoseconds)


# Flags for three uses: any entry including a link, a folder to work in, a file to read. NONBLOCK: opening a FIFO must
# not hang. NOCTTY: a terminal must not become our controlling terminal.
OPEN_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

RESOLVE_CONFINED = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
_NOT_NORMALIZED = re.compile(r"\A(?!/)|\0|//|/\.\.?(?:/|\Z)|[^/]/\Z")
_MOST_STEPS = 256


class ConfinedRoot:
    """Opens paths below one root directory, which it keeps open."""

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._root = os.open(root, OPEN_DIR_FLAGS)
        by_kernel = has_openat2() if openat2 is None else openat2
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
                    f"{path.display} is outside the workspace: another file system is mounted there."
                    " Use a path inside the workspace."
                ) from None
            raise

    def folder(self, path: WorkspacePath, mode: int = FOLDER_MODE, *, sync: bool = True) -> int:
        """Open the folder at ``path``, creating it and its parents if they are missing; durably with ``sync``."""
        try:
            return self.open(path, OPEN_DIR_FLAGS)
        except FileNotFoundError:
            if path.is_root:
                raise
        above = self.folder(path.parent, sync=sync)
        try:
            is_ours = _made(path.name, above, sync=sync)
            opened = self.open(path, OPEN_DIR_FLAGS)
        finally:
            os.close(above)
        if is_ours:
            try:
                _set_mode(opened, mode, sync=sync)
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
        link = (met or path).display
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
            return openat2(self._root, path, flags=flags, resolve=RESOLVE_CONFINED)
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


def _made(name: str, above: int, *, sync: bool) -> bool:
    """Create a folder unless something exists there. Returns whether it was created."""
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return False
    if sync:
        os.fsync(above)
    return True


def _set_mode(folder: int, mode: int, *, sync: bool) -> None:
    """Set a new folder's mode independent of the umask; keeps an inherited set-group-ID bit."""
    inherited = os.fstat(folder).st_mode & stat.S_ISGID
    os.fchmod(folder, inherited | mode & 0o777)
    if sync:
        os.fsync(folder)


def _leads_out(path: WorkspacePath) -> PathOutsideMount:
    return PathOutsideMount(
        f"{path.display} is outside the workspace: a symbolic link on the way leads there."
        " Use a path inside the workspace."
    )


# System calls that Python does not offer.


def openat2(folder: int, path: str, *, flags: int, resolve: int) -> int:
    """Open ``path`` relative to the descriptor ``folder``, under the restrictions of ``resolve``."""
    how = _how(flags, resolve)
    name = os.fsencode(path)
    for _ in range(_MOST_TRIES):
        opened: int = _openat2(_SYS_OPENAT2, folder, name, how, _SIZE_OF_HOW)
        if opened >= 0:
            return opened
        if ctypes.get_errno() not in _PASSING:
            break
    raise _failure(path)


def renameat2(folder: int, name: str, to_folder: int, to_name: str, *, flags: int) -> None:
    """Rename between two folders given by their descriptors."""
    number = _SYS_RENAMEAT2.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"The syscall number of renameat2 on {platform.machine()} is unknown")
    source, destination = os.fsencode(name), os.fsencode(to_name)
    for _ in range(_MOST_TRIES):
        if _renameat2(number, folder, source, to_folder, destination, flags) == 0:
            return
        if ctypes.get_errno() not in _PASSING:
            break
    raise _failure(name)


def syncfs(descriptor: int) -> None:
    """Flush the file system of ``descriptor`` to disk."""
    if _libc.syncfs(descriptor) != 0:
        raise _failure("")


@cache
def has_openat2() -> bool:
    """Whether the kernel (5.6 and later) and an outer seccomp filter allow openat2."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(openat2(root, ".", flags=os.O_PATH | os.O_CLOEXEC, resolve=RESOLVE_BENEATH))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


@cache
def _how(flags: int, resolve: int) -> _OpenHow:
    """Build the struct once per combination. The kernel only reads it, so that threads can share it."""
    return _OpenHow(flags, 0, resolve)


_SIZE_OF_HOW = ctypes.sizeof(_OpenHow)


def _failure(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
