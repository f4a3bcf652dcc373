"""MCP servers of a workspace: owners add them and approve their tool lists."""

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.request_tenant import PersonTenant
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import McpServerId
from toolcrib.core.mcp_servers import McpTransport
from toolcrib.mcp.mcp_toolsets import checked_hosts, checked_url
from toolcrib.schemas.mcp_servers import (
    McpApprovalIn,
    McpServerCreate,
    McpServerOut,
    McpServerUpdate,
    url_flaw,
)
from toolcrib.schemas.schema_base import Page

router = api_router("/workspaces/{workspace_id}/mcp-servers", tag="MCP servers")


@router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "CONFLICT"))
async def create_mcp_server(given: McpServerCreate, tenant: PersonTenant, services: Injected) -> McpServerOut:
    """Add a server and list its tools. Owners only. No tool is usable until the list is approved."""
    private_hosts = services.settings.allowed_private_mcp_hosts
    url = None if given.url is None else checked_url(given.url, private_hosts=private_hosts)
    made = await services.toolbox.rows.create(
        tenant,
        name=given.name,
        transport=McpTransport.STDIO if url is None else McpTransport.HTTP,
        command=given.command or (),
        url=url,
        hosts=checked_hosts(given.hosts),
        workspace_access=given.workspace_access,
        safe_tools=given.safe_tools,
        secrets=given.secrets,
    )
    return McpServerOut.model_validate(await services.mcp_servers.refresh(tenant, made.id))


@router.get("")
async def list_mcp_servers(tenant: PersonTenant, services: Injected) -> Page[McpServerOut]:
    """List the workspace's MCP servers by name."""
    return Page[McpServerOut].of(await services.toolbox.rows.list(tenant))


@router.get("/{server_id}", responses=examples("NOT_FOUND"))
async def get_mcp_server(server_id: McpServerId, tenant: PersonTenant, services: Injected) -> McpServerOut:
    """Return one server."""
    return McpServerOut.model_validate(await services.toolbox.rows.get(tenant, server_id))


@router.patch("/{server_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def update_mcp_server(
    server_id: McpServerId, given: McpServerUpdate, tenant: PersonTenant, services: Injected
) -> McpServerOut:
    """Enable or disable a server, or change its secrets, its hosts, or which of its tools are safe. Owners only."""
    server = await services.toolbox.rows.get(tenant, server_id, needs=WorkspaceRole.OWNER)
    flaw = url_flaw(given.secrets, given.hosts, given.workspace_access) if server.url is not None else None
    if flaw:
        raise BadArguments({"url": flaw})
    server = await services.toolbox.rows.update(
        tenant,
        server_id,
        enabled=given.enabled,
        safe_tools=given.safe_tools,
        hosts=None if given.hosts is None else checked_hosts(given.hosts),
        workspace_access=given.workspace_access,
        secrets=given.secrets,
    )
    await services.toolbox.disconnect(server)
    return McpServerOut.model_validate(server)


@router.post("/{server_id}/refresh", responses=examples("NOT_FOUND"))
async def refresh_mcp_server(server_id: McpServerId, tenant: PersonTenant, services: Injected) -> McpServerOut:
    """Connect to the server and list its tools again. Owners only. `last_error` says why, if that fails."""
    return McpServerOut.model_validate(await services.mcp_servers.refresh(tenant, server_id))


@router.post("/{server_id}/approve", responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def approve_mcp_server(
    server_id: McpServerId, given: McpApprovalIn, tenant: PersonTenant, services: Injected
) -> McpServerOut:
    """Approve the latest tool list, if it is the one you saw. Owners only."""
    return McpServerOut.model_validate(await services.toolbox.approve(tenant, server_id, given.sha256))


@router.delete("/{server_id}", status_code=204, responses=examples("NOT_FOUND"))
async def delete_mcp_server(server_id: McpServerId, tenant: PersonTenant, services: Injected) -> None:
    """Delete a server and its tools. Owners only."""
    server = await services.toolbox.rows.get(tenant, server_id)
    await services.toolbox.rows.delete(tenant, server.id)
    await services.toolbox.disconnect(server)
