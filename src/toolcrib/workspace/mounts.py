"""Where a workspace's trees lie on this node, and their open roots."""

import threading
from collections import OrderedDict
from functools import cached_property
from pathlib import Path

from toolcrib.domain.errors import Misconfigured
from toolcrib.domain.ids import WorkspaceId
from toolcrib.domain.places import Mount, Place, root_of
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.trash import Trash

# Where commands see the mounts.
VIEWED = {mount: f"/{mount}" for mount in Mount}

# Roots held open at once. An evicted one closes when the last who uses it lets go.
_OPEN_ROOTS = 512


class Mounts:
    """Gives the disk that a place is on."""

    def __init__(self, data_dir: Path, *, openat2: bool | None = None) -> None:
        self._data_dir = data_dir
        self._openat2 = openat2
        self._disks: OrderedDict[tuple[WorkspaceId, str | None, str], Disk] = OrderedDict()
        self._lock = threading.Lock()

    def disk(self, workspace_id: WorkspaceId, tree: str | None, place: Place) -> Disk:
        """The disk of a place's mount; ``tree`` is where @project lies if it is the user's own directory."""
        key = (workspace_id, tree, place.tree)
        with self._lock:
            disk = self._disks.get(key)
            if disk is None:
                root = self._root(workspace_id, tree, place)
                disk = self._disks[key] = self._open(root, place, own=tree is not None)
                if len(self._disks) > _OPEN_ROOTS:
                    self._disks.popitem(last=False)
            self._disks.move_to_end(key)
            return disk

    def disks_of(self, workspace_id: WorkspaceId, tree: str | None) -> "Disks":
        """The same, for all places of one workspace."""
        return Disks(self, workspace_id, tree)

    def root(self, workspace_id: WorkspaceId, tree: str | None, place: Place) -> Path:
        """The directory of a place's mount, made if it is ours: for programs that work on it."""
        self.disk(workspace_id, tree, place)
        return self._root(workspace_id, tree, place).resolve()

    def trash(self, workspace_id: WorkspaceId) -> Trash:
        """Where the workspace's displaced files lie on this node."""
        return Trash(self._data_dir / "workspaces" / str(workspace_id) / "trash", openat2=self._openat2)

    def inside(self, workspace_id: WorkspaceId, tree: str | None, mount: Mount, path: str) -> str | None:
        """Where an absolute path of this machine, or of a command's view, lies in a mount; only by its words."""
        root = self._root(workspace_id, tree, root_of(mount))
        for known in (root.absolute(), root.resolve(), Path(VIEWED[mount])):
            if path == str(known) or path.startswith(f"{known}/"):
                return path[len(str(known)) :].lstrip("/") or "."
        return None

    def _root(self, workspace_id: WorkspaceId, tree: str | None, place: Place) -> Path:
        if place.mount is Mount.PROJECT and tree is not None:
            return Path(tree)
        return self._data_dir / "workspaces" / str(workspace_id) / place.tree

    def _open(self, root: Path, place: Place, *, own: bool) -> Disk:
        if not (own and place.mount is Mount.PROJECT):
            root.mkdir(parents=True, exist_ok=True)
        try:
            return Disk(root, writable=place.mount.writable, openat2=self._openat2)
        except FileNotFoundError:
            raise Misconfigured(
                f"The workspace's directory {root} is gone. Put it back, or delete the workspace."
            ) from None


class Disks:
    """The disks of one workspace, and its trash."""

    def __init__(self, mounts: Mounts, workspace_id: WorkspaceId, tree: str | None) -> None:
        self._mounts = mounts
        self._workspace_id = workspace_id
        self._tree = tree

    def __call__(self, place: Place) -> Disk:
        return self._mounts.disk(self._workspace_id, self._tree, place)

    @cached_property
    def trash(self) -> Trash:
        return self._mounts.trash(self._workspace_id)
