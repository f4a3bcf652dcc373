"""What every tree of this server is made of, and the guard that each one asks. Holds; does nothing."""

from dataclasses import dataclass
from typing import Protocol

from toolcrib.domain.places import Place
from toolcrib.storage.blobs import Blobs
from toolcrib.storage.changes import Changes
from toolcrib.storage.files import Files
from toolcrib.storage.regexes import Regexes
from toolcrib.storage.since import Since
from toolcrib.storage.trash import TrashEntries
from toolcrib.storage.undo import Undoing
from toolcrib.workspace.mounts import Mounts
from toolcrib.workspace.search.ripgrep import Ripgrep
from toolcrib.workspace.sync import Sync


class Guard(Protocol):
    """Says no by raising. The policy's guard, or one that lets everything pass."""

    def check_read(self, place: Place) -> None: ...

    def check_write(self, place: Place) -> None: ...


@dataclass(frozen=True, slots=True)
class Shelves:
    """What every tree of this server is made of."""

    files: Files
    blobs: Blobs
    changes: Changes
    mounts: Mounts
    sync: Sync
    undoing: Undoing
    regexes: Regexes
    ripgrep: Ripgrep
    trash: TrashEntries
    since: Since
    node: str
    max_file_bytes: int
    trash_bytes: int
