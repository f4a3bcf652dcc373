"""Installs packages into workspaces, and starts runs of their workflows."""

import asyncio
from dataclasses import replace
from functools import partial

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments
from toolcrib.core.files import FILE_MODE
from toolcrib.core.ids import SessionId
from toolcrib.core.packages import WORKFLOW, Package, PackageContents, Workflow
from toolcrib.core.paths import Mount, mount_root
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore, WorkspaceHome
from toolcrib.storage.packages import PackageStore
from toolcrib.workspace.fs.mounts import MountTable
from toolcrib.workspace.packages.package_archive import package_in
from toolcrib.workspace.sync.rebuild import TreeRebuilder


class PackageInstaller:
    """Changes a workspace's package: its row, its agents and its files together."""

    def __init__(
        self, rows: PackageStore, files: FileStore, mounts: MountTable, trees: TreeRebuilder, *, node: str
    ) -> None:
        self.rows = rows
        self._files = files
        self._mounts = mounts
        self._trees = trees
        self._node = node

    async def require_installer(self, tenant: Tenant) -> None:
        """Check role and home node before an archive is accepted.

        Raises:
            Forbidden: The caller is not an owner.
            Superseded: The workspace lives on another node.
        """
        await self._home(tenant, WorkspaceRole.OWNER)

    async def install(self, tenant: Tenant, archive: bytes) -> Package:
        """Install a package archive, or replace the installed version. Owners only."""
        await self._home(tenant, WorkspaceRole.OWNER)
        contents = await package_in(archive)
        home = await self._home(tenant, WorkspaceRole.OWNER)
        # Shielded: a cancelled request must not leave files without their row.
        return await asyncio.shield(self._install(tenant, contents, home))

    async def _install(self, tenant: Tenant, contents: PackageContents, home: WorkspaceHome) -> Package:
        folders, before, is_placed = self._mounts.packages, None, False

        async def path() -> None:
            nonlocal before, is_placed
            self._mounts.require_current(tenant.workspace_id, home.epoch)
            before, is_placed = await in_thread(folders.put, tenant.workspace_id, contents.files), True

        try:
            return await self.rows.install(tenant, contents, home, path)
        except BaseException:
            if is_placed:
                folders.show(tenant.workspace_id, before)
            raise

    async def remove(self, tenant: Tenant, name: str) -> None:
        """Remove a package with its agents. Owners only."""
        home = await self._home(tenant, WorkspaceRole.OWNER)

        async def take_away() -> None:
            self._mounts.require_current(tenant.workspace_id, home.epoch)
            await in_thread(self._mounts.packages.show, tenant.workspace_id, None)

        await asyncio.shield(self.rows.remove(tenant, name, home, take_away))

    async def workflow(self, tenant: Tenant, name: str) -> tuple[bytes, Workflow]:
        """Return the document and the workflow that a run of a package starts with."""
        document, workflow = await self.rows.workflow(tenant, name)
        if document is None or workflow is None:
            raise BadArguments({"package": f"{name!r} has no workflow.md, so there is nothing to run."})
        return document, workflow

    async def begin(self, tenant: Tenant, session_id: SessionId, document: bytes) -> None:
        """Write the workflow document into the session's @state."""
        home = await self._home(tenant, WorkspaceRole.MEMBER)
        path = replace(WORKFLOW, scope=str(session_id))
        self._mounts.require_current(tenant.workspace_id, home.epoch)
        disk = self._mounts.disk(tenant.workspace_id, home.root_path, path)
        await in_thread(partial(disk.write, path, document, mode=FILE_MODE))

    async def _home(self, tenant: Tenant, needs: WorkspaceRole) -> WorkspaceHome:
        """Check the caller's role, and that this disk has the trees. Returns the home in which that is true."""
        root = [mount_root(Mount.PROJECT)]
        home = (await self._files.lookup(tenant, root, needs)).home
        home.require(self._node)
        if not self._mounts.is_checked(tenant.workspace_id, home.epoch):
            # It may begin a rebuild, in another epoch.
            await self._trees.ensure(tenant.workspace_id, home_epoch=home.epoch)
            home = (await self._files.lookup(tenant, root, needs)).home
        return home
