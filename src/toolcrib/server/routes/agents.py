"""Agents of a workspace, and the keys by which they act."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.ids import AgentId
from toolcrib.policy.rules import MAX_CHARACTERS
from toolcrib.server.auth import APerson, LoggedIn, tenant_for
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.routes.keys import KeyAnswer, MadeKey, NewKey
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Given, Name, Page, Shown

router = APIRouter(prefix="/workspaces/{workspace_id}/agents", tags=["agents"], route_class=StrictRoute)

Definition = Annotated[
    str,
    # PostgreSQL keeps no NUL.
    StringConstraints(max_length=MAX_CHARACTERS, pattern=r"^[^\x00]*$"),
    Field(
        description="The agent's rules, as YAML.",
        examples=["trust: guided\ntool_permissions:\n  write: {allowed: true, paths: [docs/**]}\n"],
    ),
]


class NewAgent(Given):
    name: Name = Field(examples=["writer"])
    definition: Definition


class AgentChange(Given):
    name: Name | None = None
    definition: Definition | None = None


class AgentAnswer(Shown):
    id: UUID
    name: str = Field(examples=["writer"])
    definition: str
    rules: AgentRules = Field(description="What the definition says, defaults filled in.")
    created_by: UUID
    created_at: datetime
    updated_at: datetime


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="create_agent",
)
async def create(workspace_id: UUID, given: NewAgent, principal: APerson, services: Injected) -> AgentAnswer:
    """Adds an agent; for owners."""
    agent = await services.agents.create(
        tenant_for(principal, workspace_id), name=given.name, definition=given.definition
    )
    return AgentAnswer.model_validate(agent)


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_agents")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[AgentAnswer]:
    """The workspace's agents, by name."""
    agents = await services.agents.list(tenant_for(principal, workspace_id))
    return Page(items=[AgentAnswer.model_validate(agent) for agent in agents])


@router.get("/{agent_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"), name="get_agent")
async def get(workspace_id: UUID, agent_id: UUID, principal: APerson, services: Injected) -> AgentAnswer:
    """One agent."""
    agent = await services.agents.get(tenant_for(principal, workspace_id), AgentId(agent_id))
    return AgentAnswer.model_validate(agent)


@router.patch(
    "/{agent_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="update_agent",
)
async def update(
    workspace_id: UUID, agent_id: UUID, given: AgentChange, principal: APerson, services: Injected
) -> AgentAnswer:
    """Changes an agent's name, its rules or both; for owners. Its next call is bound by them."""
    agent = await services.agents.update(
        tenant_for(principal, workspace_id), AgentId(agent_id), name=given.name, definition=given.definition
    )
    return AgentAnswer.model_validate(agent)


@router.delete(
    "/{agent_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="delete_agent",
)
async def delete(workspace_id: UUID, agent_id: UUID, principal: APerson, services: Injected) -> None:
    """Removes an agent; its keys end with it. For owners."""
    await services.agents.delete(tenant_for(principal, workspace_id), AgentId(agent_id))


@router.post(
    "/{agent_id}/keys",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="create_agent_key",
)
async def create_key(
    workspace_id: UUID, agent_id: UUID, given: NewKey, principal: LoggedIn, services: Injected
) -> MadeKey:
    """Makes a key by which the agent calls tools and reads files here, and nothing else; for owners."""
    key, secret = await services.keys.create_for_agent(
        tenant_for(principal, workspace_id), AgentId(agent_id), name=given.name, expires_at=given.expires_at
    )
    return MadeKey(key=KeyAnswer.model_validate(key), secret=secret)
