"""MCP servers of a workspace, as rows. Their secrets are read only to connect to the server."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from psycopg.errors import UniqueViolation

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, NotFound
from toolcrib.core.idempotency import EffectKind, effect_id
from toolcrib.core.ids import McpServerId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.mcp_servers import McpServer, McpTool, McpTransport, McpWorkspaceAccess
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.provider_credentials import EncryptedText, Encryptor

MOST_SERVERS: Final = 20
MOST_SECRETS: Final = 20


class McpServerStore:
    """Queries on MCP servers."""

    def __init__(self, database: Database, lock: Encryptor) -> None:
        self._database = database
        self._lock = lock

    async def create(
        self,
        tenant: Tenant,
        *,
        name: str,
        transport: McpTransport,
        command: Sequence[str] = (),
        url: str | None = None,
        hosts: Sequence[str] = (),
        workspace_access: McpWorkspaceAccess = McpWorkspaceAccess.NONE,
        safe_tools: Sequence[str] = (),
        secrets: Mapping[str, str] | None = None,
    ) -> McpServer:
        """Add a server without approved tools. Owners only."""
        server_id = McpServerId(effect_id(EffectKind.MCP_SERVER))
        locked = self._locked(tenant.workspace_id, server_id, secrets or {})
        try:
            async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
                row = await connection.fetch_row(
                    f"""
                    insert into toolcrib.mcp_servers
                        (workspace_id, id, name, transport, command, url, hosts, workspace_access, safe_tools,
                         encrypted, key_id, secret_names, secrets_set_at, created_by)
                    select %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, case when %s then now() end, %s
                    where (select count(*) from toolcrib.mcp_servers where workspace_id = %s) < %s
                    returning {_COLUMNS}
                    """,  # noqa: S608 - the columns are a constant of this module
                    (tenant.workspace_id, server_id, name, transport, list(command), url, list(hosts), workspace_access,
                     list(safe_tools), locked and locked.data, locked and locked.key_id, sorted(secrets or {}),
                     bool(secrets), tenant.user_id, tenant.workspace_id, MOST_SERVERS),
                )  # fmt: skip
        except UniqueViolation:
            raise Conflict(f"An MCP server named {name!r} already exists. Choose another name.") from None
        if row is None:
            raise Conflict(f"This workspace has {MOST_SERVERS} MCP servers, the limit. Remove one first.")
        return _server(row)

    async def list(self, tenant: Tenant) -> list[McpServer]:
        """Return every server of the workspace, by name."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                f"select {_COLUMNS} from toolcrib.mcp_servers where workspace_id = %s order by name",  # noqa: S608 - as above
                (tenant.workspace_id,),
            )
            return [_server(row) for row in await cursor.fetchall()]

    async def get(
        self, tenant: Tenant, server_id: McpServerId, *, needs: WorkspaceRole = WorkspaceRole.VIEWER
    ) -> McpServer:
        """Return one server."""
        async with self._database.transaction(tenant, needs=needs) as connection:
            row = await connection.fetch_row(
                f"select {_COLUMNS} from toolcrib.mcp_servers where workspace_id = %s and id = %s",  # noqa: S608 - as above
                (tenant.workspace_id, server_id),
            )
        return _found(row, server_id)

    async def with_secrets(self, server: McpServer) -> McpServer:
        """Return the server with the secrets that it names, to connect to it. One that was added since is left out."""
        async with self._database.transaction(Tenant(server.workspace_id)) as connection:
            row = await connection.fetch_row(
                "select encrypted, key_id from toolcrib.mcp_servers where workspace_id = %s and id = %s",
                (server.workspace_id, server.id),
            )
        opened = self._opened(server.workspace_id, server.id, row)
        return replace(server, secrets={name: opened[name] for name in server.secret_names if name in opened})

    async def update(
        self,
        tenant: Tenant,
        server_id: McpServerId,
        *,
        enabled: bool | None = None,
        safe_tools: Sequence[str] | None = None,
        hosts: Sequence[str] | None = None,
        workspace_access: McpWorkspaceAccess | None = None,
        secrets: Mapping[str, str | None] | None = None,
    ) -> McpServer:
        """Change what is given. Owners only. The command or URL never changes: that would be another server.

        Args:
            secrets: Those to set, and with None those to remove. The others stay.
        """
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            if secrets:
                await self._set_secrets(connection, tenant.workspace_id, server_id, secrets)
            row = await connection.fetch_row(
                f"""
                update toolcrib.mcp_servers
                set enabled = coalesce(%s, enabled), safe_tools = coalesce(%s, safe_tools), hosts = coalesce(%s, hosts),
                    workspace_access = coalesce(%s, workspace_access), revision = revision + 1, updated_at = now()
                where workspace_id = %s and id = %s returning {_COLUMNS}
                """,  # noqa: S608 - as above
                (enabled, None if safe_tools is None else list(safe_tools), None if hosts is None else list(hosts),
                 workspace_access, tenant.workspace_id, server_id),
            )  # fmt: skip
        return _found(row, server_id)

    async def _set_secrets(
        self,
        connection: Connection,
        workspace_id: WorkspaceId,
        server_id: McpServerId,
        changed: Mapping[str, str | None],
    ) -> None:
        row = await connection.fetch_row(
            "select encrypted, key_id from toolcrib.mcp_servers where workspace_id = %s and id = %s for update",
            (workspace_id, server_id),
        )
        merged = {**self._opened(workspace_id, server_id, row), **changed}
        secrets = {name: value for name, value in merged.items() if value is not None}
        if len(secrets) > MOST_SECRETS:
            raise BadArguments({"secrets": f"A server can have at most {MOST_SECRETS} secrets."})
        locked = self._locked(workspace_id, server_id, secrets)
        await connection.execute(
            """
            update toolcrib.mcp_servers set encrypted = %s, key_id = %s, secret_names = %s, secrets_set_at = now()
            where workspace_id = %s and id = %s
            """,
            (locked and locked.data, locked and locked.key_id, sorted(secrets), workspace_id, server_id),
        )

    def _locked(
        self, workspace_id: WorkspaceId, server_id: McpServerId, secrets: Mapping[str, str]
    ) -> EncryptedText | None:
        if not secrets:
            return None
        return self._lock.encrypt(json.dumps(dict(secrets)), owner=_owner(workspace_id, server_id))

    def _opened(self, workspace_id: WorkspaceId, server_id: McpServerId, row: tuple[Any, ...] | None) -> dict[str, str]:
        if row is None or row[0] is None:
            return {}
        opened = self._lock.decrypt(EncryptedText(row[1], bytes(row[0])), owner=_owner(workspace_id, server_id))
        secrets: dict[str, str] = json.loads(opened)
        return secrets

    async def approve(self, tenant: Tenant, server: McpServer) -> McpServer:
        """Approve the tools of ``server.offered_tools`` if the server has the latest list. Owners only."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            row = await connection.fetch_row(
                f"""
                update toolcrib.mcp_servers
                set approved_tools = offered_tools, approved_by = %s, approved_at = now(), revision = revision + 1,
                    updated_at = now()
                where workspace_id = %s and id = %s and revision = %s and offered_tools is not null
                returning {_COLUMNS}
                """,  # noqa: S608 - as above
                (tenant.user_id, tenant.workspace_id, server.id, server.revision),
            )
        if row is None:
            raise Conflict("The server's tools changed since you fetched them. Review the new list, then approve it.")
        return _server(row)

    async def delete(self, tenant: Tenant, server_id: McpServerId) -> None:
        """Delete a server."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            cursor = await connection.execute(
                "delete from toolcrib.mcp_servers where workspace_id = %s and id = %s", (tenant.workspace_id, server_id)
            )
            if cursor.rowcount == 0:
                raise _no_server(server_id)

    async def of_workspace(self, workspace_id: WorkspaceId) -> Sequence[McpServer]:
        """Return the enabled servers, with the system role."""
        async with self._database.transaction(Tenant(workspace_id)) as connection:
            cursor = await connection.execute(
                f"select {_COLUMNS} from toolcrib.mcp_servers where workspace_id = %s and enabled order by name",  # noqa: S608 - as above
                (workspace_id,),
            )
            return [_server(row) for row in await cursor.fetchall()]

    async def save_offered(self, server: McpServer, tools: Sequence[McpTool] | None, error: str | None) -> None:
        """Store the tools that the server offers, or the error if it could not be asked."""
        offered = None if tools is None else json_text([asdict(tool) for tool in tools])
        async with self._database.transaction(Tenant(server.workspace_id)) as connection:
            await connection.execute(
                """
                update toolcrib.mcp_servers
                set offered_tools = coalesce(%(offered)s::jsonb, offered_tools), last_error = %(error)s,
                    offered_at = now(),
                    revision = revision
                        + (coalesce(%(offered)s::jsonb, offered_tools) is distinct from offered_tools)::int
                where workspace_id = %(workspace_id)s and id = %(id)s
                """,
                {"offered": offered, "error": error, "workspace_id": server.workspace_id, "id": server.id},
            )


_COLUMNS = """
    workspace_id, id, name, transport, command, url, hosts, workspace_access, secret_names, safe_tools, enabled,
    approved_tools, approved_by, approved_at, offered_tools, offered_at, last_error, revision, created_by, created_at,
    updated_at
"""


def _server(row: tuple[Any, ...]) -> McpServer:
    workspace_id, server_id, name, transport, command, url, hosts, access, secrets, safe, *rest = row
    enabled, approved, by, at, offered, *rest = rest
    return McpServer(
        workspace_id,
        server_id,
        name,
        McpTransport(transport),
        tuple(command),
        url,
        tuple(hosts),
        McpWorkspaceAccess(access),
        tuple(secrets),
        tuple(safe),
        enabled,
        _tools(approved),
        by,
        at,
        None if offered is None else _tools(offered),
        *rest,
    )


def _tools(rows: list[dict[str, Any]]) -> tuple[McpTool, ...]:
    return tuple(McpTool(**one) for one in rows)


def _found(row: tuple[Any, ...] | None, server_id: McpServerId) -> McpServer:
    if row is None:
        raise _no_server(server_id)
    return _server(row)


def _no_server(server_id: McpServerId) -> NotFound:
    return NotFound(f"MCP server {server_id} not found in this workspace.")


def _owner(workspace_id: WorkspaceId, server_id: McpServerId) -> str:
    return f"{workspace_id}/mcp/{server_id}"
