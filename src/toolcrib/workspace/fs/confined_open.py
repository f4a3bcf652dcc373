"""Opens what stands at a place and never leaves the root. Reads and writes no content.

A path is not checked first and opened afterwards. It is opened under restrictions, by openat2 or one
component at a time, so that nobody can swap a folder for a link in between. Callers get a descriptor.
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

# The three things to open: a node whatever it is (a link too), a folder to work in, a file to read.
# NONBLOCK: a FIFO must not hang us. NOCTTY: a terminal must not become ours.
OPEN_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

RESOLVE_CONFINED = (
    syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_XDEV
)
_NOT_NORMALIZED = re.compile(r"\A(?!/)|\0|//|/\.\.?(?:/|\Z)|[^/]/\Z")
_MOST_STEPS = 256


class ConfinedRoot:
    """The way from one root, held open, down to whatever stands below it."""

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._root = os.open(root, OPEN_DIR_FLAGS)
        by_kernel = syscalls.has_openat2() if openat2 is None else openat2
        self._opener: _ConfinedOpener = _Openat2Opener(self._root) if by_kernel else _ComponentOpener(self._root)

    @property
    def root(self) -> int:
        """The root's own descriptor."""
        return self._root

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
        # The number may soon be another file's.
        self._root = -1
        self._opener = _ClosedOpener()

    def __del__(self) -> None:
        # Roots are shared: whoever lets go last closes it.
        if hasattr(self, "_opener"):
            self.close()

    def open(self, place: WorkspacePath, flags: int) -> int:
        """A descriptor of what stands at ``place``, which the caller closes.

        A link on the way is ``SymlinkNotFollowed`` or, if it leads out of the mount, ``PathOutsideMount``, as is the
        border of another file system. Every other failure is the kernel's ``OSError``.
        """
        require_normal(place)
        try:
            return self._opener.open(place.path[1:] or ".", flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self.link_met(place) from None
            if error.errno == errno.EXDEV:
                raise PathOutsideMount(
                    f"{shown(place)} is outside the workspace: another file system is mounted there."
                    " Name a path in the workspace itself."
                ) from None
            raise

    def folder(self, place: WorkspacePath, mode: int = FOLDER_MODE) -> int:
        """A descriptor of the folder at ``place``. It is made if missing, and so are those above it."""
        try:
            return self.open(place, OPEN_DIR_FLAGS)
        except FileNotFoundError:
            if place.is_root:
                raise
        above = self.folder(place.parent)
        try:
            is_ours = _made(place.name, above)
            opened = self.open(place, OPEN_DIR_FLAGS)
        finally:
            os.close(above)
        if is_ours:
            try:
                _settle(opened, mode)
            except OSError:
                os.close(opened)
                raise
        return opened

    def link_met(self, place: WorkspacePath) -> SymlinkNotFollowed | PathOutsideMount:
        """What to say of a link on the way to ``place``: that it leads out, or only that it is not followed.

        Only words depend on this. Nothing is opened by way of a link, and a link that is gone by now is
        described as one that stays inside.
        """
        met: WorkspacePath | None = None
        here, ahead = mount_root(place.mount, place.scope), list(place.parts)
        for _ in range(_MOST_STEPS):
            if not ahead:
                break
            name = ahead.pop(0)
            if name == ".." and here.is_root:
                return _leads_out(place)
            here = here.parent if name == ".." else here if name in ("", ".") else here.child(name)
            target = self._target(here)
            if target is None:
                continue
            if target.startswith("/"):
                return _leads_out(place)
            met = met or here
            here, ahead = here.parent, target.split("/") + ahead
        link = shown(met or place)
        return SymlinkNotFollowed(f"{link} is a symbolic link; links are not followed. Use the path it points to.")

    def _target(self, place: WorkspacePath) -> str | None:
        try:
            node = self._opener.open(place.path[1:] or ".", OPEN_PATH_FLAGS)
        except OSError:
            return None
        try:
            return os.readlink("", dir_fd=node)
        except OSError:
            return None
        finally:
            os.close(node)


def require_normal(place: WorkspacePath) -> None:
    """Places come normalised from the path languages. One that does not must not get past us either."""
    if _NOT_NORMALIZED.search(place.path):
        raise PathOutsideMount(f"{place.path!r} is outside the workspace: it is not normal. Name it plainly.")


class _ConfinedOpener(Protocol):
    """Opens a relative path beneath a root. A link is ELOOP, another mount EXDEV."""

    def open(self, path: str, flags: int) -> int: ...


class _Openat2Opener:
    """openat2: one call, whatever the depth."""

    def __init__(self, root: int) -> None:
        self._root = root

    def open(self, path: str, flags: int) -> int:
        try:
            return syscalls.openat2(self._root, path, flags=flags, resolve=RESOLVE_CONFINED)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
        # A program can make trees deeper than one path may say; step by step every part is short again.
        return _ComponentOpener(self._root).open(path, flags)


class _ComponentOpener:
    """One openat with O_NOFOLLOW per component, where openat2 is missing."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._mount = _mount_of(root)

    def open(self, path: str, flags: int) -> int:
        # A folder is entered like those above it, and opened from within.
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
            # Not even what is missing in another mount is told.
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
        """Going down never comes back to a mount once left: where one arrives speaks for the whole way."""
        if _mount_of(reached) != self._mount:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)


class _ClosedOpener:
    def open(self, path: str, flags: int) -> int:
        raise OSError(errno.EBADF, "The disk is closed", path)


def _folder_in(above: int, name: str) -> int:
    """The folder of that name. Opened whatever it is and looked at then, so that no swap comes between."""
    opened = os.open(name, OPEN_PATH_FLAGS, dir_fd=above)
    mode = os.fstat(opened).st_mode
    if stat.S_ISDIR(mode):
        return opened
    os.close(opened)
    number = errno.ELOOP if stat.S_ISLNK(mode) else errno.ENOTDIR
    raise OSError(number, os.strerror(number), name)


def _mount_of(descriptor: int) -> str:
    """Which mount a descriptor lies in. Where /proc does not say: which device, blind to bind mounts."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
            return next(line for line in info if line.startswith("mnt_id"))
    except (OSError, StopIteration):
        return f"device {os.fstat(descriptor).st_dev}"


def _made(name: str, above: int) -> bool:
    """Make a folder unless something stands there already, and say whether it was made."""
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return False
    os.fsync(above)
    return True


def _settle(folder: int, mode: int) -> None:
    """Give a new folder its mode, whatever the umask; a group that it inherits stays inherited."""
    inherited = os.fstat(folder).st_mode & stat.S_ISGID
    os.fchmod(folder, inherited | mode & 0o777)
    os.fsync(folder)


def _leads_out(place: WorkspacePath) -> PathOutsideMount:
    return PathOutsideMount(
        f"{shown(place)} is outside the workspace: a symbolic link on the way leads there."
        " Name a path in the workspace itself."
    )
