"""Values for what was seen on disk: a directory entry, and a disk entry with its fingerprint."""

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from toolcrib.core.files import EntryKind, Fingerprint

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.FOLDER, stat.S_IFLNK: EntryKind.LINK}
_BIGGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DirEntry:
    """A name in a folder. ``kind`` is ``None`` for a special file: a FIFO, a socket or a device."""

    name: str
    kind: EntryKind | None


@dataclass(frozen=True, slots=True)
class DiskEntry:
    """The entry at a path. ``kind`` is ``None`` for a special file; ``target`` is where a link points."""

    kind: EntryKind | None
    mode: int
    fingerprint: Fingerprint
    links: int
    target: str | None = None

    @property
    def mtime(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.fingerprint.mtime_ns // 1000)


def node_of(seen: os.stat_result, *, seen_ns: int, target: str | None = None) -> DiskEntry:
    """Convert a stat result. ``seen_ns`` is the time just before the stat call."""
    return DiskEntry(
        kind=_KINDS.get(stat.S_IFMT(seen.st_mode)),
        mode=seen.st_mode & 0o777,
        fingerprint=Fingerprint(
            inode=_wrapped(seen.st_ino),
            size=seen.st_size,
            mtime_ns=_clamped(seen.st_mtime_ns),
            ctime_ns=_clamped(seen.st_ctime_ns),
            checked_ns=seen_ns,
        ),
        links=seen.st_nlink,
        target=target,
    )


def entry_of(found: os.DirEntry[str]) -> DirEntry:
    """Convert an entry of ``os.scandir``."""
    return DirEntry(found.name, entry_kind(found))


def entry_kind(found: os.DirEntry[str]) -> EntryKind | None:
    """Return the kind of a directory entry; ``None`` for a special file."""
    if found.is_file(follow_symlinks=False):
        return EntryKind.FILE
    if found.is_dir(follow_symlinks=False):
        return EntryKind.FOLDER
    return EntryKind.LINK if found.is_symlink() else None


def _wrapped(inode: int) -> int:
    """Convert an inode to the signed 64-bit number that the database stores."""
    return inode if inode <= _BIGGEST else inode - 2**64


def _clamped(time_ns: int) -> int:
    """Clamp a timestamp.

    Files can be dated past 2262, where nanoseconds overflow; their ctime still identifies them.
    """
    return max(-_BIGGEST, min(time_ns, _BIGGEST))
