"""Packages of a workspace, as rows. Their files are on the node."""

from collections.abc import Awaitable, Callable

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound, Superseded
from toolcrib.core.json_text import json_text
from toolcrib.core.packages import Package, PackageContents, Workflow
from toolcrib.storage.agents import put_packaged
from toolcrib.storage.database import Connection, Store, Tenant
from toolcrib.storage.files import WorkspaceHome


class PackageStore(Store):
    """Queries on packages. A workspace has one at a time, visible under @pkg."""

    async def install(
        self, tenant: Tenant, contents: PackageContents, home: WorkspaceHome, path: Callable[[], Awaitable[None]]
    ) -> Package:
        """Install a package and its agents, or another version of it. ``path`` writes its files, under the lock.

        Raises:
            Superseded: The workspace has another home, or another epoch, than ``home``.
        """
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            await _lock(connection, tenant, home)
            known = await connection.fetch_row(
                "select name from toolcrib.packages where workspace_id = %s", (tenant.workspace_id,)
            )
            if known is not None and known[0] != contents.name:
                raise Conflict(
                    f"Package {known[0]!r} is already installed; a workspace has at most one. Remove it first."
                )
            agents = await put_packaged(connection, tenant, contents.name, contents.agents)
            workflow = None if contents.workflow is None else json_text(contents.workflow.as_json())
            [package] = await connection.fetch_all(
                Package,
                f"""
                insert into toolcrib.packages
                    (workspace_id, name, version, sha256, files, bytes, agents, document, workflow, installed_by)
                values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
                on conflict (workspace_id) do update
                set version = excluded.version, sha256 = excluded.sha256, files = excluded.files,
                    bytes = excluded.bytes, agents = excluded.agents, document = excluded.document,
                    workflow = excluded.workflow, installed_by = excluded.installed_by, installed_at = now()
                returning {_COLUMNS}
                """,  # noqa: S608 - the columns are a constant of this module
                (
                    tenant.workspace_id,
                    contents.name,
                    contents.version,
                    contents.sha256,
                    len(contents.files),
                    contents.size,
                    list(agents),
                    contents.document,
                    workflow,
                    tenant.user_id,
                ),
            )
            await path()
        return package

    async def list(self, tenant: Tenant) -> list[Package]:
        """Return the workspace's package, if it has one."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                Package,
                f"select {_COLUMNS} from toolcrib.packages where workspace_id = %s",  # noqa: S608 - as above
                (tenant.workspace_id,),
            )

    async def remove(
        self, tenant: Tenant, name: str, home: WorkspaceHome, take_away: Callable[[], Awaitable[None]]
    ) -> None:
        """Remove a package and its agents. Sessions that run its workflow keep their rules.

        Raises:
            Superseded: As ``install`` does.
        """
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            await _lock(connection, tenant, home)
            cursor = await connection.execute(
                "delete from toolcrib.packages where workspace_id = %s and name = %s", (tenant.workspace_id, name)
            )
            if cursor.rowcount == 0:
                raise _no_package(name)
            await put_packaged(connection, tenant, name, ())
            await take_away()

    async def workflow(self, tenant: Tenant, name: str) -> tuple[bytes | None, Workflow | None]:
        """Return a package's workflow document and its rules."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.MEMBER) as connection:
            row = await connection.fetch_row(
                "select document, workflow from toolcrib.packages where workspace_id = %s and name = %s",
                (tenant.workspace_id, name),
            )
        if row is None:
            raise _no_package(name)
        return row[0], None if row[1] is None else Workflow.from_json(row[1])


async def installed_package(connection: Connection, tenant: Tenant) -> str | None:
    """Return the name and version of the workspace's package, within a transaction of the tenant."""
    row = await connection.fetch_row(
        "select name || ' ' || version from toolcrib.packages where workspace_id = %s", (tenant.workspace_id,)
    )
    return None if row is None else str(row[0])


_COLUMNS = """
    name, version, sha256, files, bytes as size, agents, workflow is not null as has_workflow, installed_by,
    installed_at
"""


async def _lock(connection: Connection, tenant: Tenant, home: WorkspaceHome) -> None:
    """Serialize changes of a workspace's package. Until the end of the transaction, its home stays the same."""
    row = await connection.fetch_row(
        "select home_node, home_epoch from toolcrib.workspaces where id = %s for no key update", (tenant.workspace_id,)
    )
    if row != (home.node, home.epoch):
        raise Superseded("This workspace has moved to another node. Call again.")


def _no_package(name: str) -> NotFound:
    return NotFound(f"Package {name!r} is not installed in this workspace.")
