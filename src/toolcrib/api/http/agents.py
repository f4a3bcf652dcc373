"""Agents of a workspace and their API keys."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, LoggedIn, tenant_for
from toolcrib.api.http.api_keys import ApiKeyCreate, ApiKeyCreatedOut, ApiKeyOut
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, Name, OutModel, Page
from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.ids import AgentId
from toolcrib.policy.agent_definition import MAX_CHARACTERS

router = APIRouter(prefix="/workspaces/{workspace_id}/agents", tags=["agents"], route_class=StrictRoute)

Definition = Annotated[
    str,
    # PostgreSQL cannot store NUL.
    StringConstraints(max_length=MAX_CHARACTERS, pattern=r"^[^\x00]*$"),
    Field(
        description="The agent's definition in YAML.",
        examples=["trust: guided\ntool_permissions:\n  write: {allowed: true, paths: [docs/**]}\n"],
    ),
]


class AgentCreate(InModel):
    name: Name = Field(examples=["writer"])
    definition: Definition


class AgentUpdate(InModel):
    name: Name | None = None
    definition: Definition | None = None


class AgentOut(OutModel):
    id: UUID
    name: str = Field(examples=["writer"])
    definition: str
    rules: AgentRules = Field(description="The parsed definition, including defaults.")
    max_trust: TrustLevel | None = Field(
        description="The highest trust level of a session: the lower of the agent's and the workspace's `max_trust`."
    )
    package: str | None = Field(description="The package that installed the agent; null if an owner created it.")
    created_by: UUID
    created_at: datetime
    updated_at: datetime


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="create_agent",
)
async def create(workspace_id: UUID, given: AgentCreate, principal: APerson, services: Injected) -> AgentOut:
    """Create an agent. Owners only."""
    agent = await services.agents.create(
        tenant_for(principal, workspace_id), name=given.name, definition=given.definition
    )
    return AgentOut.model_validate(agent)


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_agents")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[AgentOut]:
    """List the workspace's agents by name."""
    agents = await services.agents.list(tenant_for(principal, workspace_id))
    return Page(items=[AgentOut.model_validate(agent) for agent in agents])


@router.get("/{agent_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"), name="get_agent")
async def get(workspace_id: UUID, agent_id: UUID, principal: APerson, services: Injected) -> AgentOut:
    """Return one agent."""
    agent = await services.agents.get(tenant_for(principal, workspace_id), AgentId(agent_id))
    return AgentOut.model_validate(agent)


@router.patch(
    "/{agent_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="update_agent",
)
async def update(
    workspace_id: UUID, agent_id: UUID, given: AgentUpdate, principal: APerson, services: Injected
) -> AgentOut:
    """Change an agent's name, its rules or both. Owners only. The rules apply from its next call on."""
    agent = await services.agents.update(
        tenant_for(principal, workspace_id), AgentId(agent_id), name=given.name, definition=given.definition
    )
    return AgentOut.model_validate(agent)


@router.delete(
    "/{agent_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="delete_agent",
)
async def delete(workspace_id: UUID, agent_id: UUID, principal: APerson, services: Injected) -> None:
    """Delete an agent and its keys. Owners only."""
    await services.agents.delete(tenant_for(principal, workspace_id), AgentId(agent_id))


@router.post(
    "/{agent_id}/keys",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="create_agent_key",
)
async def create_key(
    workspace_id: UUID, agent_id: UUID, given: ApiKeyCreate, principal: LoggedIn, services: Injected
) -> ApiKeyCreatedOut:
    """Create a key with which the agent calls tools and reads files in this workspace, and nothing else.

    Owners only.
    """
    key, secret = await services.keys.create_for_agent(
        tenant_for(principal, workspace_id), AgentId(agent_id), name=given.name, expires_at=given.expires_at
    )
    return ApiKeyCreatedOut(key=ApiKeyOut.model_validate(key), secret=secret)
