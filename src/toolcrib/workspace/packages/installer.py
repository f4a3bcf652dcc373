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


class PackageInstaller:
    """Changes a workspace's package: its row, its agents and its files together."""

    def __init__(self, rows: PackageStore, files: FileStore, mounts: MountTable, *, node: str) -> None:
        self.rows = rows
        self._files = files
        self._mounts = mounts
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
        # Shielded: a cancelled request must not leave files without their row.
        return await asyncio.shield(self._install(tenant, await package_in(archive)))

    async def _install(self, tenant: Tenant, contents: PackageContents) -> Package:
        folders, before, is_placed = self._mounts.packages, None, False

        async def path() -> None:
            nonlocal before, is_placed
            before, is_placed = await in_thread(folders.put, tenant.workspace_id, contents.files), True

        try:
            return await self.rows.install(tenant, contents, path)
        except BaseException:
            if is_placed:
                folders.show(tenant.workspace_id, before)
            raise

    async def remove(self, tenant: Tenant, name: str) -> None:
        """Remove a package with its agents. Owners only."""
        await self._home(tenant, WorkspaceRole.OWNER)

        async def take_away() -> None:
            await in_thread(self._mounts.packages.show, tenant.workspace_id, None)

        await asyncio.shield(self.rows.remove(tenant, name, take_away))

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
        disk = self._mounts.disk(tenant.workspace_id, home.root_path, path)
        await in_thread(partial(disk.write, path, document, mode=FILE_MODE))

    async def _home(self, tenant: Tenant, needs: WorkspaceRole) -> WorkspaceHome:
        home = (await self._files.lookup(tenant, [mount_root(Mount.PROJECT)], needs)).home
        home.require(self._node)
        return home
