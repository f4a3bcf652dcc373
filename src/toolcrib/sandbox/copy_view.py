"""A view for hosts without overlays: a copy of the tree, reflinked where possible, up to a size limit."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolcrib.core.errors import TooLarge, ToolFailed
from toolcrib.sandbox.bubblewrap import ViewMount, is_masked
from toolcrib.sandbox.contained_process import PATH
from toolcrib.sandbox.overlay import (
    DEEPEST,
    ChangedEntry,
    EntryChange,
    EntryType,
    give,
    locked,
    parent_of,
    stat_in,
    unlock,
)

MOST_ENTRIES: Final = 100_000
UNSHARE_ARGS: Final = ("/usr/bin/unshare", "--user", "--map-root-user", "--")
CP_ARGS: Final = ("--archive", "--no-preserve=ownership", "--reflink=auto", "--no-target-directory")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _CopiedEntry:
    kind: EntryType
    mode: int
    size: int
    target: str | None
    # A change of one of these means changed bytes; a changed ctime alone means a changed mode.
    inode: int
    modified: int

    def holds_as(self, other: "_CopiedEntry") -> bool:
        return (self.size, self.target, self.inode, self.modified) == (
            other.size,
            other.target,
            other.inode,
            other.modified,
        )


class CopyView:
    """A mount as a copy in ``folder``, compared with its state right after copying."""

    def __init__(self, mount: ViewMount, folder: Path, *, largest: int) -> None:
        self.mount = mount
        self._folder = folder
        self._largest = largest
        self.upper = folder / "copy"
        self.merged = self.upper
        self._before: dict[str, _CopiedEntry] = {}

    def prepare(self, owner: tuple[int, int] | None) -> None:
        """Copy the tree, empty masked paths and record the state of every entry."""
        try:
            self._reject_large()
        except PermissionError as error:
            raise locked(error) from None
        self._folder.mkdir()
        copied = subprocess.run(  # noqa: S603 - fixed arguments
            # As root of a user namespace, because the tree's owner may have locked files.
            [*UNSHARE_ARGS, "/bin/cp", *CP_ARGS, "--", self.mount.root, self.upper],
            env={"PATH": PATH},
            capture_output=True,
            check=False,
        )
        if copied.returncode:
            raise ToolFailed(f"The tree could not be copied: {copied.stderr.decode(errors='replace').strip()[:300]}")
        for path in self.mount.masked:
            _empty(self.upper, path, self.mount.substitutes.get(path))
        if owner:
            give(self._folder, owner)
        self._before = dict(self._walk(relock=True))

    def entries(self) -> Iterator[ChangedEntry]:
        """Yield the differences to the recorded state."""
        after = dict(self._walk(relock=False))
        gone = [path for path in self._before if path not in after or after[path].kind is not self._before[path].kind]
        for path in sorted(gone, reverse=True):
            state = self._before[path]
            yield self._entry(path, EntryChange.DELETED, state)
        for path in sorted(after):
            state, before = after[path], self._before.get(path)
            if before is None or before.kind is not state.kind:
                yield self._entry(path, EntryChange.CREATED, state, body=state.kind is EntryType.FILE)
            elif state.kind is EntryType.FOLDER or state.holds_as(before):
                if state.mode != before.mode:
                    yield self._entry(path, EntryChange.MODIFIED, state)
            else:
                yield self._entry(path, EntryChange.MODIFIED, state, body=True)

    def _entry(self, path: str, change: EntryChange, state: _CopiedEntry, *, body: bool = False) -> ChangedEntry:
        return ChangedEntry(
            self.mount.name,
            path,
            change,
            state.kind,
            mode=state.mode,
            size=state.size,
            target=state.target,
            body=body,
            masked=is_masked(path, self.mount.masked),
        )

    def _reject_large(self) -> None:
        size = count = 0
        for directory, folders, files in os.walk(self.mount.root, onerror=_raise):
            count += len(folders) + len(files)
            for name in files:
                size += os.lstat(os.path.join(directory, name)).st_size
            if size > self._largest or count > MOST_ENTRIES:
                raise TooLarge(
                    f"Overlays cannot be mounted here, and the tree is too large to copy for a command (more than "
                    f"{self._largest >> 20} MiB or {MOST_ENTRIES} files). Enable overlays (see `toolcrib "
                    "doctor`) or make the tree smaller."
                )

    def _walk(self, *, relock: bool) -> Iterator[tuple[str, _CopiedEntry]]:
        root = os.open(self.upper, _FOLDER)
        try:
            yield ".", _state(root, ".")
            yield from _below(root, "", 0, relock=relock)
        finally:
            os.close(root)


def _raise(error: OSError) -> None:
    raise error


def _below(folder: int, path: str, depth: int, *, relock: bool) -> Iterator[tuple[str, _CopiedEntry]]:
    if depth > DEEPEST:
        raise TooLarge(f"Directories are nested more than {DEEPEST} levels deep. Flatten them.")
    for name in sorted(os.listdir(folder)):
        here = f"{path}/{name}" if path else name
        state = _state(folder, name)
        yield here, state
        if state.kind is EntryType.FILE and not relock:
            unlock(folder, name, os.stat(name, dir_fd=folder, follow_symlinks=False))
        if state.kind is EntryType.FOLDER:
            unlock(folder, name, os.stat(name, dir_fd=folder, follow_symlinks=False))
            below = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from _below(below, here, depth + 1, relock=relock)
                if relock:
                    os.fchmod(below, state.mode)
            finally:
                os.close(below)


def _state(folder: int, name: str) -> _CopiedEntry:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    kind = EntryType.of(found.st_mode)
    return _CopiedEntry(
        kind=kind,
        mode=stat.S_IMODE(found.st_mode),
        size=found.st_size if kind is EntryType.FILE else 0,
        target=os.readlink(name, dir_fd=folder) if kind is EntryType.LINK else None,
        inode=found.st_ino,
        modified=found.st_mtime_ns,
    )


def _empty(root: Path, path: str, substitute: bytes | None) -> None:
    """Empty a masked path of the copy, or write its substitute. A missing path, or one behind a link, stays."""
    with ExitStack() as opened:
        try:
            folder, name = opened.enter_context(parent_of(root, path))
        except (FileNotFoundError, NotADirectoryError):
            return
        found = stat_in(folder, name)
        if found is None:
            return
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(name, dir_fd=folder)
            os.mkdir(name, mode=0o755, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
            mode = 0o444 if substitute is None else stat.S_IMODE(found.st_mode) & 0o777 | 0o400
            with open(os.open(name, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
                file.write(substitute or b"")
                os.fchmod(file.fileno(), mode)
