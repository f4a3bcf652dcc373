"""A complete engine without a server: a person, a workspace, and the gate."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from tests.fakes.model_server import ModelServer, model_server
from tests.integration.storage.accounts import someone
from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, UserId, new_id
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.events import EventHub
from toolcrib.policy.agent_definition import render_definition
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import Stores, ToolRuntime, assemble


@dataclass(frozen=True)
class WorkspaceFixture:
    """A workspace and a person in it."""

    engine: ToolRuntime
    caller: Caller

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    @property
    def database(self) -> Database:
        return self.engine.database

    @property
    def stores(self) -> Stores:
        return self.engine.stores

    @property
    def tenant(self) -> Tenant:
        return Tenant.of(self.caller)

    @property
    def project(self) -> Path:
        """Return the path of @project on disk."""
        return self.mount("project")

    def mount(self, tree: str) -> Path:
        path = self.settings.data_dir / "workspaces" / str(self.caller.workspace_id) / tree
        path.mkdir(parents=True, exist_ok=True)
        return path

    def with_engine(self, settings: Settings | None = None, **how: Any) -> Self:
        """Return the same workspace behind its own engine, as in another process. ``how`` is for ``assemble``."""
        return replace(self, engine=assemble(settings or self.settings, self.database, **how))

    async def call(self, tool: str, _caller: Caller | None = None, /, **arguments: Any) -> Outcome:
        """Make one call through the gate, with its own call id."""
        caller = replace(_caller or self.caller, call_id=CallId(new_id()))
        return await self.engine.executor.execute(ToolCall(tool, arguments), caller)

    async def result(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Make a call that must succeed and return its result."""
        outcome = await self.call(tool, **arguments)
        assert outcome.succeeded, (outcome.error, outcome.error and outcome.error.fields)
        return dict(outcome.result)

    async def agent(self, **rules: Any) -> Caller:
        """Create an agent in this workspace, on its owner's behalf."""
        definition = render_definition(AgentRules.model_validate(rules))
        stored = await self.stores.agents.create(self.tenant, name=f"agent {new_id()}", definition=definition)
        return replace(self.caller, agent=stored.as_caller)


async def new_person(stores: Stores) -> UserId:
    return (await someone(stores)).user_id


async def new_caller(engine: ToolRuntime) -> Caller:
    """Create a person who owns a new workspace."""
    user_id = await new_person(engine.stores)
    owner = ActingUser(user_id)
    workspace = await engine.stores.workspaces.create(owner, name="w", node=engine.settings.node_name)
    return Caller(workspace.id, user_id)


async def new_workspace(database: Database, settings: Settings, **how: Any) -> WorkspaceFixture:
    """Create a workspace with its own engine. ``how`` are more arguments of ``assemble``."""
    engine = assemble(settings, database, **how)
    return WorkspaceFixture(engine, await new_caller(engine))


@pytest.fixture
def stores(database: Database, settings: Settings) -> Stores:
    return Stores(settings, database)


@pytest.fixture
async def live(database: Database) -> AsyncIterator[EventHub]:
    async with EventHub.open(database) as opened:
        yield opened


@pytest.fixture
async def providers() -> AsyncIterator[ProviderRegistry]:
    async with open_providers(private_hosts=["*"]) as opened:
        yield opened


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A strict fake of a model server."""
    async with model_server() as server:
        yield server


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    return await new_workspace(database, settings)
