"""A complete engine without a server: a person, a workspace, and the gate."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, UserId, WorkspaceId, new_id
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.policy.agent_definition import render_definition
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser, UserStore
from toolcrib.storage.workspaces import WorkspaceStore
from toolcrib.wiring import ToolRuntime, assemble


@dataclass(frozen=True)
class WorkspaceFixture:
    """A workspace and a person in it."""

    engine: ToolRuntime
    database: Database
    settings: Settings
    caller: Caller

    @property
    def project(self) -> Path:
        """Return the path of @project on disk."""
        return self.mount("project")

    def mount(self, tree: str) -> Path:
        path = self.settings.data_dir / "workspaces" / str(self.caller.workspace_id) / tree
        path.mkdir(parents=True, exist_ok=True)
        return path

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
        definition = render_definition(AgentRules(**rules))
        stored = await AgentStore(self.database).create(
            Tenant.of(self.caller), name=f"agent {new_id()}", definition=definition
        )
        return replace(self.caller, agent=stored.as_caller)


async def new_person(database: Database) -> UserId:
    profile = await UserStore(database).create_user(email=f"{new_id()}@example.org", full_name=None, password_hash="x")
    return profile.user_id


async def new_caller(database: Database, settings: Settings) -> Caller:
    """Create a person who owns a new workspace."""
    user_id = await new_person(database)
    workspace = await WorkspaceStore(database).create(ActingUser(user_id), name="w", node=settings.node_name)
    return Caller(WorkspaceId(workspace.id), user_id)


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    return WorkspaceFixture(assemble(settings, database), database, settings, await new_caller(database, settings))
