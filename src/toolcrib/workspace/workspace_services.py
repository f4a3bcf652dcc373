"""The services that the trees of all calls share."""

from dataclasses import dataclass

from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.change_sets import ChangeSetStore
from toolcrib.storage.file_history import SnapshotStore, UndoStore
from toolcrib.storage.files import FileStore
from toolcrib.storage.regex_search import PostgresRegex
from toolcrib.storage.trash import TrashStore
from toolcrib.storage.virtual_files import VirtualFileStore
from toolcrib.workspace.fs.mounts import MountTable
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.sync.reconcile import Reconciler


@dataclass(frozen=True, slots=True)
class WorkspaceServices:
    """The services that the trees of all calls share: stores, mounts, limits."""

    files: FileStore
    blobs: BlobStore
    changes: ChangeSetStore
    mounts: MountTable
    sync: Reconciler
    undoing: UndoStore
    regexes: PostgresRegex
    virtual: VirtualFileStore
    ripgrep: Ripgrep
    trash: TrashStore
    since: SnapshotStore
    node: str
    max_file_bytes: int
    trash_bytes: int
