"""Copy-on-write views by overlayfs, and the effect of a command on a tree.

The tree is the lower layer, fresh staging the upper one. This module prepares and compares them; ``fork_server`` mounts
them inside the sandbox's own namespaces, so that no mount outlives a command.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

from toolcrib.core.errors import TooLarge, ToolFailed
from toolcrib.sandbox.bubblewrap import ViewMount, is_masked
from toolcrib.sandbox.contained_process import OverlayDirs

# In a user namespace, overlayfs keeps its marks in `user.` attributes.
XATTR_OPAQUE: Final = "user.overlay.opaque"
DEEPEST: Final = 128
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20


class EntryChange(StrEnum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"


class EntryType(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    # A FIFO, socket or device: reported, never imported.
    SPECIAL = "special"

    @classmethod
    def of(cls, mode: int) -> "EntryType":
        """Return the type of a file mode."""
        return _KINDS.get(stat.S_IFMT(mode), cls.SPECIAL)


_KINDS = {stat.S_IFREG: EntryType.FILE, stat.S_IFDIR: EntryType.FOLDER, stat.S_IFLNK: EntryType.LINK}


@dataclass(frozen=True, slots=True)
class ChangedEntry:
    """The change of one entry. ``path`` is relative to the mount's root, with undecodable bytes as surrogates.

    Attributes:
        body: False if the bytes did not change, only the mode.
        masked: The command touched a path that was hidden from it, where it saw an empty file or folder.
    """

    mount: str
    path: str
    change: EntryChange
    kind: EntryType
    mode: int = 0
    size: int = 0
    target: str | None = None
    body: bool = False
    masked: bool = False


@dataclass(frozen=True, slots=True)
class FilesystemEffect:
    """Everything that a command did to its mounts. Bodies stay on disk until they are opened.

    Deletions come first, deepest first; then created and changed entries, folders before their content. Applied in this
    order to the tree that the command saw, they produce the tree that it left.

    Attributes:
        written: The directory with the bytes of each mount's created and changed files. Valid as long as ``open``.
    """

    entries: tuple[ChangedEntry, ...] = ()
    written: Mapping[str, Path] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, entries: Iterable[ChangedEntry], written: Mapping[str, Path]) -> "FilesystemEffect":
        """Build the effect. Puts deletions first; otherwise keeps the order."""
        return cls(tuple(sorted(entries, key=lambda entry: entry.change is not EntryChange.DELETED)), written)

    def __iter__(self) -> Iterator[ChangedEntry]:
        return iter(self.entries)

    @property
    def masked(self) -> tuple[ChangedEntry, ...]:
        """Entries at paths that were hidden from the command."""
        return tuple(entry for entry in self.entries if entry.masked)

    def open(self, entry: ChangedEntry) -> BinaryIO:
        """Open the bytes of a created or changed file. Valid until the transaction ends."""
        if entry.kind is not EntryType.FILE or entry.change is EntryChange.DELETED:
            raise ToolFailed(f"{entry.path} is a {entry.change} {entry.kind}: it has no bytes to read.")
        with parent_of(self.written[entry.mount], entry.path) as (folder, name):
            # Without following a link or blocking on a FIFO.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ToolFailed(f"{entry.path} is no longer a regular file.")
        return open(file, "rb")


class OverlayView:
    """One mount as layers beside ``directory``: a mask over the tree, and ``upper`` over both.

    The merged view is mounted on the upper folder itself. Few folders on purpose: creating and removing them is a good
    part of the cost of a command.
    """

    def __init__(self, mount: ViewMount, directory: Path) -> None:
        self.mount = mount
        self._directory = directory
        self.upper = self.merged = self._beside("upper")
        self._mask = self._beside("mask")
        self._owner: tuple[int, int] | None = None
        self._mounted = 0

    def prepare(self, owner: tuple[int, int] | None) -> None:
        """Create the layers. If the server is root, they are given to ``owner``."""
        self.upper.mkdir(mode=0o700)
        # The upper folder's mode is what the command sees of the root.
        self.upper.chmod(stat.S_IMODE(self.mount.root.stat().st_mode))
        self._owner = owner
        if owner:
            give(self.upper, owner)
        if self.mount.masked:
            _make_mask(self._mask, self.mount)
            if owner:
                give(self._mask, owner)

    def laid(self) -> OverlayDirs:
        """Return the layers to mount for the next command, with its own work folder."""
        overlay = OverlayDirs(self.merged.name, mask=self._mask.name if self.mount.masked else None)
        if not self.mount.writable and self.mount.masked:
            return overlay
        # Without a mask, an overlay needs an upper folder, also one that is bound read-only.
        self._mounted += 1
        work = self._beside(f"work{self._mounted}")
        work.mkdir(mode=0o700)
        if self._owner:
            os.chown(work, *self._owner)
        return replace(overlay, upper=self.upper.name, work=work.name)

    def entries(self) -> Iterator[ChangedEntry]:
        """Yield what the command changed. Unlocks what it locked, so that no further command may run."""
        if not self.mount.writable:
            return
        upper, lower = os.open(self.upper, _FOLDER), os.open(self.mount.root, _FOLDER)
        try:
            before, after = os.fstat(lower).st_mode, os.fstat(upper).st_mode
            if stat.S_IMODE(before) != stat.S_IMODE(after):
                yield ChangedEntry(self.mount.name, ".", EntryChange.MODIFIED, EntryType.FOLDER, stat.S_IMODE(after))
            for entry in _LayerComparison(self.mount.name).folder(upper, lower, "", opaque=False, depth=0):
                yield replace(entry, masked=True) if is_masked(entry.path, self.mount.masked) else entry
        except PermissionError as error:
            raise locked(error) from None
        finally:
            os.close(upper)
            os.close(lower)

    def _beside(self, name: str) -> Path:
        return self._directory.with_name(f"{self._directory.name}-{name}")


class _LayerComparison:
    """Compares the upper with the lower layer, by descriptors and without following links."""

    def __init__(self, mount: str) -> None:
        self._mount = mount

    def folder(self, upper: int, lower: int | None, path: str, *, opaque: bool, depth: int) -> Iterator[ChangedEntry]:
        if depth > DEEPEST:
            raise TooLarge(f"The command created directories more than {DEEPEST} levels deep. Flatten them.")
        names = sorted(os.listdir(upper))
        if opaque and lower is not None:
            kept = set(names)
            for name in sorted(os.listdir(lower)):
                if name not in kept:
                    yield from self._deleted(lower, name, _joined(path, name), depth)
        for name in names:
            yield from self._entry(upper, lower, name, _joined(path, name), opaque=opaque, depth=depth)

    def _entry(
        self, upper: int, lower: int | None, name: str, path: str, *, opaque: bool, depth: int
    ) -> Iterator[ChangedEntry]:
        after, before = os.stat(name, dir_fd=upper, follow_symlinks=False), stat_in(lower, name)
        kind = EntryType.of(after.st_mode)
        is_whiteout = stat.S_ISCHR(after.st_mode) and after.st_rdev == 0
        if before and lower is not None and (is_whiteout or EntryType.of(before.st_mode) is not kind):
            yield from self._deleted(lower, name, path, depth)
            before = None
        if is_whiteout:
            return
        if kind in (EntryType.FILE, EntryType.FOLDER):
            unlock(upper, name, after)
        entry = ChangedEntry(
            self._mount,
            path,
            EntryChange.MODIFIED if before else EntryChange.CREATED,
            kind,
            mode=stat.S_IMODE(after.st_mode),
            size=after.st_size if kind is EntryType.FILE else 0,
            target=os.readlink(name, dir_fd=upper) if kind is EntryType.LINK else None,
        )
        if before is None or lower is None:
            yield replace(entry, body=kind is EntryType.FILE)
        elif body := _differs(upper, lower, name, kind, after, before):
            yield replace(entry, body=body)
        elif kind is not EntryType.LINK and stat.S_IMODE(before.st_mode) != entry.mode:
            yield entry
        if kind is EntryType.FOLDER:
            here = os.open(name, _FOLDER, dir_fd=upper)
            below = os.open(name, _FOLDER, dir_fd=lower) if before else None
            try:
                yield from self.folder(here, below, path, opaque=opaque or _is_opaque(here), depth=depth + 1)
            finally:
                os.close(here)
                if below is not None:
                    os.close(below)

    def _deleted(self, lower: int, name: str, path: str, depth: int) -> Iterator[ChangedEntry]:
        """Yield the deletion of a path and everything below it, deepest first."""
        if depth > 2 * DEEPEST:
            raise TooLarge(f"The tree has directories more than {2 * DEEPEST} levels deep. Flatten them.")
        before = stat_in(lower, name)
        if before is None:
            return
        if stat.S_ISDIR(before.st_mode):
            here = os.open(name, _FOLDER, dir_fd=lower)
            try:
                for inner in sorted(os.listdir(here)):
                    yield from self._deleted(here, inner, _joined(path, inner), depth + 1)
            finally:
                os.close(here)
        yield ChangedEntry(
            self._mount, path, EntryChange.DELETED, EntryType.of(before.st_mode), stat.S_IMODE(before.st_mode)
        )


def _make_mask(mask: Path, mount: ViewMount) -> None:
    """Create a layer in which masked files are empty or substituted, and masked folders are empty and opaque."""
    mask.mkdir()
    tree = os.open(mount.root, _FOLDER)
    try:
        mask.chmod(stat.S_IMODE(os.fstat(tree).st_mode))
        for path in sorted(mount.masked):
            _mask_one(mask, tree, path, mount.substitutes.get(path))
    finally:
        os.close(tree)


def _mask_one(mask: Path, tree: int, path: str, substitute: bytes | None) -> None:
    """Mask one path. Folders on the way get the tree's modes; a missing path, or one behind a link, needs no mask."""
    folder, here = os.dup(tree), mask
    try:
        *parents, name = path.split("/")
        for parent in parents:
            found = stat_in(folder, parent)
            if found is None or not stat.S_ISDIR(found.st_mode):
                return
            here = here / parent
            if not here.exists():
                here.mkdir()
                here.chmod(stat.S_IMODE(found.st_mode))
            below = os.open(parent, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        found = stat_in(folder, name)
    except PermissionError as error:
        raise locked(error) from None
    finally:
        os.close(folder)
    if found is None:
        return
    here = here / name
    if stat.S_ISDIR(found.st_mode):
        here.mkdir(exist_ok=True)
        os.setxattr(here, XATTR_OPAQUE, b"y")
        here.chmod(0o555)
    elif not here.exists():
        here.touch(mode=0o444)
        if substitute is not None:
            here.chmod(0o600)
            here.write_bytes(substitute)
            # Git gives the mode to the file with which it replaces this one.
            here.chmod(stat.S_IMODE(found.st_mode) & 0o777 | 0o400)


@contextmanager
def parent_of(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a path below ``root``, step by step without following links. Yields it with the name."""
    folder = os.open(root, _FOLDER)
    *parents, name = path.split("/")
    try:
        for parent in parents:
            below = os.open(parent, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)


def stat_in(folder: int | None, name: str) -> os.stat_result | None:
    """Stat an entry of a folder without following a link; ``None`` if there is none."""
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def locked(error: PermissionError) -> ToolFailed:
    """Build the error for a locked path.

    The command has the same owner and could unlock it, so its effect is unknown.
    """
    return ToolFailed(
        f"{error.filename!r} is not accessible to its owner, so changes of a command there cannot be detected. "
        "Make it accessible (chmod -R u+rwX), then run the command again."
    )


def unlock(folder: int, name: str, found: os.stat_result) -> None:
    """Let the server, as owner, read what the command made unreadable."""
    wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o400
    if found.st_mode & wanted == wanted:
        return
    directory = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(found.st_mode) | wanted)
    finally:
        os.close(directory)


def give(folder: Path, owner: tuple[int, int]) -> None:
    """Change the owner of a new directory and everything in it."""
    made = folder.stat()
    if (made.st_uid, made.st_gid) == owner:
        return
    for directory, _, files in os.walk(folder):
        for name in (".", *files):
            os.chown(Path(directory, name), *owner, follow_symlinks=False)


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, XATTR_OPAQUE) == b"y"
    except OSError:
        return False


def _differs(upper: int, lower: int, name: str, kind: EntryType, after: os.stat_result, before: os.stat_result) -> bool:
    if kind is EntryType.FOLDER:
        return False
    if kind is EntryType.LINK:
        return os.readlink(name, dir_fd=upper) != os.readlink(name, dir_fd=lower)
    if kind is EntryType.SPECIAL:
        return after.st_rdev != before.st_rdev or stat.S_IFMT(after.st_mode) != stat.S_IFMT(before.st_mode)
    if after.st_size != before.st_size:
        return True
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        old = os.open(name, flags, dir_fd=lower)
    except (PermissionError, FileNotFoundError):
        return True  # The old bytes are unreadable, so the command's count.
    with open(os.open(name, flags, dir_fd=upper), "rb") as ours, open(old, "rb") as theirs:
        while piece := ours.read(_PIECE):
            if piece != theirs.read(_PIECE):
                return True
    return False


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
