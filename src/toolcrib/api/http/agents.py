"""Agents of a workspace, their API keys, and the packages that install agents."""

from typing import Annotated, Any

from fastapi import Path, Request

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import LoggedIn, tenant_for
from toolcrib.api.auth.request_tenant import PersonTenant
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.ids import AgentId, WorkspaceId
from toolcrib.policy.agent_definition import unknown_names
from toolcrib.schemas.accounts import ApiKeyCreate, ApiKeyCreatedOut
from toolcrib.schemas.agents import AgentCreate, AgentOut, AgentUpdate, PackageOut
from toolcrib.schemas.schema_base import Page

router = api_router("/workspaces/{workspace_id}/agents", tag="agents")
packages_router = api_router("/workspaces/{workspace_id}/packages", tag="packages")


@router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "CONFLICT"))
async def create_agent(given: AgentCreate, tenant: PersonTenant, services: Injected) -> AgentOut:
    """Create an agent. Owners only."""
    agent = await services.agents.create(
        tenant, name=given.name, definition=given.definition, known=services.registry.names
    )
    return AgentOut.model_validate(agent)


@router.get("")
async def list_agents(tenant: PersonTenant, services: Injected) -> Page[AgentOut]:
    """List the workspace's agents by name."""
    return Page[AgentOut].of(await services.agents.list(tenant))


@router.get("/{agent_id}", responses=examples("NOT_FOUND"))
async def get_agent(agent_id: AgentId, tenant: PersonTenant, services: Injected) -> AgentOut:
    """Return one agent."""
    return AgentOut.model_validate(await services.agents.get(tenant, agent_id))


@router.patch("/{agent_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def update_agent(agent_id: AgentId, given: AgentUpdate, tenant: PersonTenant, services: Injected) -> AgentOut:
    """Change an agent's name, its rules or both. Owners only. The rules apply from its next call on."""
    agent = await services.agents.update(
        tenant, agent_id, name=given.name, definition=given.definition, known=services.registry.names
    )
    return AgentOut.model_validate(agent)


@router.delete("/{agent_id}", status_code=204, responses=examples("NOT_FOUND"))
async def delete_agent(agent_id: AgentId, tenant: PersonTenant, services: Injected) -> None:
    """Delete an agent and its keys. Owners only."""
    await services.agents.delete(tenant, agent_id)


@router.post("/{agent_id}/keys", status_code=201, responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def create_agent_key(
    workspace_id: WorkspaceId, agent_id: AgentId, given: ApiKeyCreate, principal: LoggedIn, services: Injected
) -> ApiKeyCreatedOut:
    """Create a key with which the agent calls tools and reads files in this workspace, and nothing else.

    Owners only.
    """
    key, secret = await services.keys.create_for_agent(
        tenant_for(principal, workspace_id), agent_id, name=given.name, expires_at=given.expires_at
    )
    return ApiKeyCreatedOut.model_validate({"key": key, "secret": secret})


# Packages, which install agents

_ARCHIVE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A zip, tar or tar.gz file. Detected from its first bytes; the content type is ignored.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@packages_router.post(
    "", status_code=201, responses=examples("VALIDATION_ERROR", "CONFLICT", "TOO_LARGE"), openapi_extra=_ARCHIVE
)
async def install_package(request: Request, tenant: PersonTenant, services: Injected) -> PackageOut:
    """Install a zip, tar or tar.gz, or another version of the installed package. Owners only.

    A tool that its agents name and this server does not have is a warning: the rest of the package works.
    """
    await services.packages.require_installer(tenant)
    installed = PackageOut.model_validate(await services.packages.install(tenant, await request.body()))
    known = services.registry.names
    agents = [one for one in await services.agents.list(tenant) if one.package == installed.name]
    warnings = [f"{one.name}: {flaw}" for one in agents for flaw in unknown_names(one.rules, known)]
    return installed.model_copy(update={"warnings": warnings})


@packages_router.get("")
async def list_packages(tenant: PersonTenant, services: Injected) -> Page[PackageOut]:
    """List the workspace's package, if it has one."""
    return Page[PackageOut].of(await services.packages.rows.list(tenant))


@packages_router.delete("/{package_name}", status_code=204, responses=examples("NOT_FOUND"))
async def remove_package(
    package_name: Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$", examples=["demo"])],
    tenant: PersonTenant,
    services: Injected,
) -> None:
    """Remove a package and its agents. Owners only. Sessions that run its workflow continue."""
    await services.packages.remove(tenant, package_name)
