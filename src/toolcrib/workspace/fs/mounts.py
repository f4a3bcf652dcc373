"""Maps mounts to directories on this node, and caches their open roots."""

import threading
from collections import OrderedDict
from functools import cached_property, partial
from pathlib import Path

from toolcrib.core.errors import Misconfigured
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.runtime.private_directory import make_private
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.trash import TrashDirectory
from toolcrib.workspace.packages.package_folders import PackageFolders

# Where commands in the sandbox see the mounts.
VIEWED = {mount: f"/{mount}" for mount in Mount}

# Roots kept open at once. An evicted root closes with its last reference.
_OPEN_ROOTS = 512


class MountTable:
    """Opens and caches the mounts of all workspaces."""

    def __init__(self, data_dir: Path, *, openat2: bool | None = None) -> None:
        self._data_dir = data_dir
        self._openat2 = openat2
        self.packages = PackageFolders(data_dir)
        self._disks: OrderedDict[tuple[WorkspaceId, str | None, str, Path | None], MountWriter] = OrderedDict()
        self._lock = threading.Lock()

    def disk(self, workspace_id: WorkspaceId, tree: str | None, path: WorkspacePath) -> MountWriter:
        """Return the disk of a path's mount. ``tree`` is the user's own directory for @project, if there is one."""
        package = self.packages.current(workspace_id) if path.mount is Mount.PKG else None
        key = (workspace_id, tree, path.mount_key, package)
        with self._lock:
            disk = self._disks.get(key)
            if disk is None:
                root = package or self._root(workspace_id, tree, path)
                disk = self._disks[key] = self._open(root, path, own=tree is not None)
                if len(self._disks) > _OPEN_ROOTS:
                    self._disks.popitem(last=False)
            self._disks.move_to_end(key)
            return disk

    def disks_of(self, workspace_id: WorkspaceId, tree: str | None) -> "WorkspaceDisks":
        """Return the disks of one workspace, keyed by path."""
        return WorkspaceDisks(self, workspace_id, tree)

    def root(self, workspace_id: WorkspaceId, tree: str | None, path: WorkspacePath) -> Path:
        """Return the directory of a path's mount for programs that run in it. Creates it if Toolcrib owns it."""
        self.disk(workspace_id, tree, path)
        return self._root(workspace_id, tree, path).resolve()

    def forget(self, workspace_id: WorkspaceId) -> None:
        """Close the roots of a deleted workspace."""
        with self._lock:
            for key in [key for key in self._disks if key[0] == workspace_id]:
                del self._disks[key]

    def trash(self, workspace_id: WorkspaceId) -> TrashDirectory:
        """Return the workspace's trash directory on this node."""
        root = self._data_dir / "workspaces" / str(workspace_id) / "trash"
        return TrashDirectory(root, make=partial(make_private, root, self._data_dir), openat2=self._openat2)

    def inside(self, workspace_id: WorkspaceId, tree: str | None, mount: Mount, path: str) -> str | None:
        """Convert an absolute path of this machine, or of the sandbox, to one below a mount. Compares text only."""
        root = self._root(workspace_id, tree, mount_root(mount))
        for known in (root.absolute(), root.resolve(), Path(VIEWED[mount])):
            if path == str(known) or path.startswith(f"{known}/"):
                return path[len(str(known)) :].lstrip("/") or "."
        return None

    def _root(self, workspace_id: WorkspaceId, tree: str | None, path: WorkspacePath) -> Path:
        if path.mount is Mount.PROJECT and tree is not None:
            return Path(tree)
        if path.mount is Mount.PKG and (package := self.packages.current(workspace_id)) is not None:
            return package
        return self._data_dir / "workspaces" / str(workspace_id) / path.mount_key

    def _open(self, root: Path, path: WorkspacePath, *, own: bool) -> MountWriter:
        if not (own and path.mount is Mount.PROJECT):
            make_private(root, self._data_dir)
        try:
            return MountWriter(root, writable=path.mount.writable, openat2=self._openat2)
        except FileNotFoundError:
            raise Misconfigured(
                f"The workspace's directory {root} does not exist. Restore it, or delete the workspace."
            ) from None


class WorkspaceDisks:
    """The disks of one workspace, and its trash."""

    def __init__(self, mounts: MountTable, workspace_id: WorkspaceId, tree: str | None) -> None:
        self._mounts = mounts
        self._workspace_id = workspace_id
        self._tree = tree

    def __call__(self, path: WorkspacePath) -> MountWriter:
        return self._mounts.disk(self._workspace_id, self._tree, path)

    @cached_property
    def trash(self) -> TrashDirectory:
        return self._mounts.trash(self._workspace_id)
