"""Maps mounts to directories on this node, and caches their open roots."""

import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from secrets import token_hex
from uuid import UUID

from toolcrib.core.errors import HomeMoved, Misconfigured, ToolFailed
from toolcrib.core.files import FILE_MODE
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.runtime.process_setup import make_private
from toolcrib.workspace.fs.aside import AsideDirectory
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.trash import TrashDirectory

# Where commands in the sandbox see the mounts.
VIEWED = {mount: f"/{mount}" for mount in Mount}

# In a workspace's directory: says that this disk has its trees. See ``sync.tree_marker``.
MARKER = "marker.json"
# Roots kept open at once. An evicted root closes with its last reference.
_OPEN_ROOTS = 512
# In a workspace's directory: the installed packages, and the link to the current one.
_FOLDERS, _CURRENT = "packages", "package"
# The folder of the execution log in @state.
_LOGS = frozenset({"logs"})
# Bytes that stay free on the disk for other users.
_SPARE = 1_000_000


@dataclass(frozen=True, slots=True)
class CheckedTrees:
    """This disk has the trees of a workspace since a home epoch; all of their files, or those that were needed yet."""

    home_epoch: int
    are_whole: bool


class MountTable:
    """Opens and caches the mounts of all workspaces."""

    def __init__(self, data_dir: Path, *, aside: AsideDirectory | None = None, openat2: bool | None = None) -> None:
        self._data_dir = data_dir
        self._openat2 = openat2
        self.aside = aside or AsideDirectory(data_dir)
        self.packages = PackageFolders(data_dir)
        # Workspaces whose marker this process has checked. See ``sync.rebuild``.
        self.checked: dict[WorkspaceId, CheckedTrees] = {}
        self._disks: OrderedDict[tuple[WorkspaceId, str | None, Mount, str, Path | None], MountWriter] = OrderedDict()
        self._lock = threading.Lock()

    def disk(self, workspace_id: WorkspaceId, tree: str | None, path: WorkspacePath) -> MountWriter:
        """Return the disk of a path's mount. ``tree`` is the user's own directory for @project, if there is one."""
        package = self.packages.current(workspace_id) if path.mount is Mount.PKG else None
        key = (workspace_id, tree, path.mount, path.scope, package)
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

    def is_checked(self, workspace_id: WorkspaceId, home_epoch: int | None = None) -> bool:
        """Whether this process has checked the marker of a workspace, in this epoch or in any."""
        found = self.checked.get(workspace_id)
        return found is not None and home_epoch in (None, found.home_epoch)

    def require_current(self, workspace_id: WorkspaceId, home_epoch: int) -> None:
        """Raise HomeMoved unless the trees were checked in this epoch, and are still there. For all that writes.

        In another epoch, another node or disk has changed them. What is written to a disk that was emptied would make
        its tree look like one from which all other files were deleted.
        """
        if not self.is_checked(workspace_id, home_epoch):
            raise HomeMoved("This workspace was on another node for a while. Call again.")
        if not self.has_marker(workspace_id):
            self.forget(workspace_id)
            raise HomeMoved("The files of this workspace are missing on its node's disk. Call again to restore them.")

    def has_marker(self, workspace_id: WorkspaceId) -> bool:
        """Whether this disk has the workspace's marker now."""
        return (self.beside(workspace_id) / MARKER).exists()

    def forget(self, workspace_id: WorkspaceId) -> None:
        """Close the roots of a workspace whose trees are gone."""
        self.checked.pop(workspace_id, None)
        with self._lock:
            for key in [key for key in self._disks if key[0] == workspace_id]:
                del self._disks[key]

    def close(self) -> None:
        """Close the roots of all workspaces, each when its last user drops it."""
        with self._lock:
            self._disks.clear()

    def trash(self, workspace_id: WorkspaceId) -> TrashDirectory:
        """Return the workspace's trash directory on this node."""
        root = self._data_dir / "workspaces" / str(workspace_id) / "trash"
        return TrashDirectory(root, make=partial(make_private, root, self._data_dir), openat2=self._openat2)

    def beside(self, workspace_id: WorkspaceId) -> Path:
        """Return the workspace's own directory on this node, which has its trees. It may not exist."""
        return self._data_dir / "workspaces" / str(workspace_id)

    def make_beside(self, workspace_id: WorkspaceId) -> Path:
        """Create the workspace's own directory."""
        make_private(folder := self.beside(workspace_id), self._data_dir)
        return folder

    def stored(self) -> list[WorkspaceId]:
        """Return the workspaces that have a directory on this disk."""
        try:
            names = os.listdir(self._data_dir / "workspaces")
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            with suppress(ValueError):
                found.append(WorkspaceId(UUID(name)))
        return found

    def put_aside(self, workspace_id: WorkspaceId) -> None:
        """Put the workspace's own directory aside in one step. The caller holds the lock of the whole workspace."""
        self.forget(workspace_id)
        self.aside.put(self.beside(workspace_id), workspace_id)

    def is_missing(self, workspace_id: WorkspaceId, tree: str | None, path: WorkspacePath) -> bool:
        """Whether the directory of a path's mount does not exist or has nothing in it. Creates nothing.

        Calls append to the execution log in @state without a look at the history, so it does not count.
        """
        passed_over = _LOGS if path.mount is Mount.STATE else frozenset()
        try:
            with os.scandir(self._root(workspace_id, tree, path)) as entries:
                return all(entry.name in passed_over for entry in entries)
        except FileNotFoundError:
            return True

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

    def root(self, path: WorkspacePath) -> Path:
        """Return the directory of a path's mount."""
        return self._mounts.root(self._workspace_id, self._tree, path)

    @cached_property
    def trash(self) -> TrashDirectory:
        return self._mounts.trash(self._workspace_id)

    @contextmanager
    def synced_together(self) -> Iterator["WorkspaceDisks"]:
        """Yield the disks for many changes, which become durable together at the end of the block.

        Syncing each change by itself would take minutes. The trash is on the disk whose content it has.
        """
        unsynced = _UnsyncedDisks(self._mounts, self._workspace_id, self._tree)
        yield unsynced
        for disk in unsynced.used.values():
            disk.sync()


class _UnsyncedDisks(WorkspaceDisks):
    def __init__(self, mounts: MountTable, workspace_id: WorkspaceId, tree: str | None) -> None:
        super().__init__(mounts, workspace_id, tree)
        self.used: dict[str, MountWriter] = {}

    def __call__(self, path: WorkspacePath) -> MountWriter:
        disk = self.used.get(path.mount_key)
        if disk is None:
            disk = self.used[path.mount_key] = super().__call__(path).without_sync()
        return disk


class PackageFolders:
    """The installed packages of all workspaces: each in its own folder, with a link to the current one.

    The link is replaced atomically, so that every process sees either the old or the new package as @pkg.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def current(self, workspace_id: WorkspaceId) -> Path | None:
        """Return the folder that @pkg shows."""
        above = self._above(workspace_id)
        try:
            return above / os.readlink(above / _CURRENT)
        except FileNotFoundError:
            return None

    def put(self, workspace_id: WorkspaceId, files: Sequence[tuple[str, bytes]]) -> Path | None:
        """Unpack files and make @pkg show them.

        Returns the previous folder. Call it for one package at a time per workspace.

        The previous folder stays until the next installation, for readers that still use it.
        """
        above, before = self._above(workspace_id), self.current(workspace_id)
        folder = above / _FOLDERS / token_hex(16)
        make_private(folder, self._data_dir)
        try:
            with MountWriter(folder) as disk:
                if disk.free_bytes() < sum(len(body) for _, body in files) + _SPARE:
                    raise ToolFailed("The disk is full: the package does not fit. Nothing was changed.")
                # Not as @pkg, which is read-only.
                disk.write_all([(WorkspacePath(Mount.PROJECT, f"/{path}"), body, FILE_MODE) for path, body in files])
            self.show(workspace_id, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for other in folder.parent.iterdir():
            if other not in (folder, before):
                # Toolcrib wrote everything in it, and there are no links.
                shutil.rmtree(other, ignore_errors=True)
        return before

    def show(self, workspace_id: WorkspaceId, folder: Path | None) -> None:
        """Make @pkg show a folder, or nothing."""
        above = self._above(workspace_id)
        if folder is None:
            (above / _CURRENT).unlink(missing_ok=True)
            return
        fresh = above / f"{_CURRENT}.{token_hex(8)}"
        fresh.symlink_to(Path(_FOLDERS) / folder.name)
        fresh.rename(above / _CURRENT)

    def _above(self, workspace_id: WorkspaceId) -> Path:
        return self._data_dir / "workspaces" / str(workspace_id)
