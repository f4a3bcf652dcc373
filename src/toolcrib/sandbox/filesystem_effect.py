"""The effect of a command on a tree: which entries it created, changed or deleted, and where their bytes are.

Deletions come first, deepest first; then created and changed entries, folders before their content. Applied in this
order to the tree that the command saw, they produce the tree that it left.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from toolcrib.core.errors import ToolFailed


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
    """Everything that a command did to its mounts. Bodies stay on disk until they are opened."""

    entries: tuple[ChangedEntry, ...] = ()
    _roots: dict[str, Path] = field(default_factory=dict, repr=False)

    def __iter__(self) -> Iterator[ChangedEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def specials(self) -> tuple[ChangedEntry, ...]:
        """Created special files, which cannot be imported."""
        return tuple(
            entry
            for entry in self.entries
            if entry.kind is EntryType.SPECIAL and entry.change is not EntryChange.DELETED
        )

    @property
    def masked(self) -> tuple[ChangedEntry, ...]:
        """Entries at paths that were hidden from the command."""
        return tuple(entry for entry in self.entries if entry.masked)

    @property
    def written(self) -> Mapping[str, Path]:
        """The directory with the bytes of each mount's created and changed files. Valid as long as ``open``."""
        return self._roots

    def open(self, entry: ChangedEntry) -> BinaryIO:
        """Open the bytes of a created or changed file. Valid until the transaction ends."""
        if entry.kind is not EntryType.FILE or entry.change is EntryChange.DELETED:
            raise ToolFailed(f"{entry.path} is a {entry.change} {entry.kind}: it has no bytes to read.")
        return open_beneath(self._roots[entry.mount], entry.path)


def open_beneath(root: Path, path: str) -> BinaryIO:
    """Open a regular file below ``root``, without following links or blocking on a FIFO."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *parents, name = path.split("/")
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ToolFailed(f"{path} is no longer a regular file.")
    return open(file, "rb")
