"""MCP servers of a workspace: owners add them and approve their tool lists."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field, StringConstraints, model_validator

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, OutModel, Page
from toolcrib.core.ids import McpServerId
from toolcrib.core.mcp_servers import McpServer, McpTool, McpTransport
from toolcrib.mcp.mcp_http import checked_url
from toolcrib.mcp.tool_catalog import catalog_sha256

router = APIRouter(prefix="/workspaces/{workspace_id}/mcp-servers", tags=["MCP servers"], route_class=StrictRoute)

ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"), Field(examples=["everything"])]
Word = Annotated[str, StringConstraints(min_length=1, max_length=4_000, pattern=r"^[^\x00]+$")]
ToolName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
# Valid names of request headers and environment variables.
SecretName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
SecretValue = Annotated[str, StringConstraints(max_length=4_000, pattern=r"^[\x20-\x7e]*$")]
# Headers that say where a request goes and where it ends.
_NOT_TO_SET = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})


class McpServerCreate(InModel):
    """A program (`command`) that runs in the sandbox, or a `url`."""

    name: ServerName
    command: list[Word] | None = Field(default=None, min_length=1, max_length=50, examples=[["node", "server.js"]])
    url: Annotated[str, StringConstraints(max_length=2_000)] | None = None
    secrets: dict[SecretName, SecretValue] = Field(
        default={},
        max_length=20,
        description="Request headers for a `url`, environment variables for a `command`. They are not shown again.",
    )
    safe_tools: list[ToolName] = Field(
        default=[], max_length=200, description="Tools that are safe. They need no approval at trust level `guided`."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("Give either a command or a url.")
        if self.url is not None and (ours := sorted(name for name in self.secrets if name.lower() in _NOT_TO_SET)):
            raise ValueError(f"These headers cannot be set: {', '.join(ours)}.")
        return self


class McpServerUpdate(InModel):
    enabled: bool | None = None
    safe_tools: list[ToolName] | None = Field(default=None, max_length=200)


class McpApprovalIn(InModel):
    """The hash of the tool list to approve."""

    sha256: str = Field(max_length=64, description="`seen_sha256` of the tool list that you reviewed.")


class McpToolOut(OutModel):
    name: str
    description: str
    input_schema: dict[str, Any]
    sha256: str


class McpServerOut(OutModel):
    """An MCP server. Its tools are usable once their list is approved; a changed list needs a new approval."""

    id: UUID
    name: str
    toolset: str = Field(examples=["mcp:everything"])
    transport: McpTransport
    command: list[str]
    url: str | None
    enabled: bool
    safe_tools: list[str]
    approved_tools: list[McpToolOut]
    approved_by: UUID | None
    approved_at: datetime | None
    offered_tools: list[McpToolOut] | None = Field(description="The tools that the server offered at the last refresh.")
    offered_sha256: str | None
    offered_at: datetime | None
    changed_tools: list[str] = Field(description="Approved tools that are disabled because they changed.")
    needs_approval: bool
    last_error: str | None
    created_by: UUID
    created_at: datetime
    updated_at: datetime


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="create_mcp_server",
)
async def create(workspace_id: UUID, given: McpServerCreate, principal: APerson, services: Injected) -> McpServerOut:
    """Add a server and list its tools. Owners only. No tool is usable until the list is approved."""
    tenant = tenant_for(principal, workspace_id)
    url = (
        None if given.url is None else checked_url(given.url, private_hosts=services.settings.allowed_private_mcp_hosts)
    )
    made = await services.toolbox.rows.create(
        tenant,
        name=given.name,
        transport=McpTransport.STDIO if url is None else McpTransport.HTTP,
        command=given.command or (),
        url=url,
        safe_tools=given.safe_tools,
        secrets=given.secrets,
    )
    return _shown(await services.toolbox.refresh(tenant, made.id))


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_mcp_servers")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[McpServerOut]:
    """List the workspace's MCP servers by name."""
    found = await services.toolbox.rows.list(tenant_for(principal, workspace_id))
    return Page(items=[_shown(server) for server in found])


@router.get("/{server_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"), name="get_mcp_server")
async def get(workspace_id: UUID, server_id: UUID, principal: APerson, services: Injected) -> McpServerOut:
    """Return one server."""
    return _shown(await services.toolbox.rows.get(tenant_for(principal, workspace_id), McpServerId(server_id)))


@router.patch(
    "/{server_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="update_mcp_server",
)
async def update(
    workspace_id: UUID, server_id: UUID, given: McpServerUpdate, principal: APerson, services: Injected
) -> McpServerOut:
    """Enable or disable a server, or set which of its tools are safe. Owners only."""
    server = await services.toolbox.rows.update(
        tenant_for(principal, workspace_id), McpServerId(server_id), enabled=given.enabled, safe_tools=given.safe_tools
    )
    await services.toolbox.disconnect(server)
    return _shown(server)


@router.post(
    "/{server_id}/refresh",
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="refresh_mcp_server",
)
async def refresh(workspace_id: UUID, server_id: UUID, principal: APerson, services: Injected) -> McpServerOut:
    """Connect to the server and list its tools again. Owners only. `last_error` says why, if that fails."""
    return _shown(await services.toolbox.refresh(tenant_for(principal, workspace_id), McpServerId(server_id)))


@router.post(
    "/{server_id}/approve",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="approve_mcp_server",
)
async def approve(
    workspace_id: UUID, server_id: UUID, given: McpApprovalIn, principal: APerson, services: Injected
) -> McpServerOut:
    """Approve the latest tool list, if it is the one you saw. Owners only."""
    tenant = tenant_for(principal, workspace_id)
    return _shown(await services.toolbox.approve(tenant, McpServerId(server_id), given.sha256))


@router.delete(
    "/{server_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="delete_mcp_server",
)
async def delete(workspace_id: UUID, server_id: UUID, principal: APerson, services: Injected) -> None:
    """Delete a server and its tools. Owners only."""
    tenant = tenant_for(principal, workspace_id)
    server = await services.toolbox.rows.get(tenant, McpServerId(server_id))
    await services.toolbox.rows.delete(tenant, server.id)
    await services.toolbox.disconnect(server)


def _shown(server: McpServer) -> McpServerOut:
    return McpServerOut(
        id=server.id,
        name=server.name,
        toolset=server.toolset,
        transport=server.transport,
        command=list(server.command),
        url=server.url,
        enabled=server.enabled,
        safe_tools=list(server.safe_tools),
        approved_tools=_tools(server.approved_tools),
        approved_by=server.approved_by,
        approved_at=server.approved_at,
        offered_tools=None if server.offered_tools is None else _tools(server.offered_tools),
        offered_sha256=None if server.offered_tools is None else catalog_sha256(server.offered_tools),
        offered_at=server.offered_at,
        changed_tools=sorted(server.changed_tools),
        needs_approval=server.needs_approval,
        last_error=server.last_error,
        created_by=server.created_by,
        created_at=server.created_at,
        updated_at=server.updated_at,
    )


def _tools(tools: tuple[McpTool, ...]) -> list[McpToolOut]:
    return [McpToolOut.model_validate(tool) for tool in tools]
