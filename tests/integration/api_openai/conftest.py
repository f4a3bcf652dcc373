"""A server for OpenAI clients, and a scripted model behind its agents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from tests.conftest import new_settings
from tests.databases import DatabaseUrls
from tests.fakes.model_server import KEY, ModelServer
from tests.integration.api_mcp.conftest import listening
from tests.integration.runs.conftest import MODEL
from tests.wait_until import PATIENCE
from toolcrib.api.api_services import ApiServices
from toolcrib.core.agents import AgentRules
from toolcrib.core.ids import AgentId, new_id
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import Run, RunState
from toolcrib.policy.agent_definition import render_definition
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.server import services as open_services

TOOLS = ("read", "write", "ls", "ask_user")


@dataclass(frozen=True)
class OpenAiFixture:
    """A workspace with an agent, and an official client with its owner's key."""

    services: ApiServices
    origin: str
    model: ModelServer
    email: str
    tenant: Tenant
    workspace: str
    agent_id: AgentId
    key: str
    client: AsyncOpenAI

    @property
    def name(self) -> str:
        return f"{self.workspace}/clerk"

    async def ask(self, *messages: Any, **more: Any) -> Any:
        return await self.client.chat.completions.create(
            model=more.pop("model", self.name), messages=list(messages), **more
        )

    def http(self, key: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx2.AsyncClient(base_url=f"{self.origin}/v1", headers=headers, timeout=PATIENCE, trust_env=False)

    def on_disk(self, path: str) -> Path:
        data = self.services.settings.data_dir
        return data / "workspaces" / str(self.tenant.workspace_id) / "project" / path

    async def change(self, **rules: Any) -> None:
        """Give the agent other rules, from its next turn on."""
        agent = await self.services.agents.get(self.tenant, self.agent_id)
        changed = render_definition(agent.rules.model_copy(update=rules))
        await self.services.agents.update(self.tenant, self.agent_id, definition=changed)

    async def first_run(self, state: RunState) -> Run:
        """Wait for the workspace's first run to reach a state and return it."""
        while True:
            for session in await self.services.sessions.page(self.tenant, before=None, limit=1):
                for run in await self.services.run_service.runs.page(self.tenant, session.id, before=None, limit=1):
                    if run.state is state:
                        return run

    async def until_ended(self, run: Run) -> Run:
        while (found := await self.services.run_service.runs.get(self.tenant, run.id)).state is not RunState.ENDED:
            pass
        return found

    def model_input(self, request: int = -1) -> list[tuple[str, str]]:
        """Return what a request sent to the model, without its prompt."""
        body = self.model.received[request].body
        return [(one["role"], one["content"]) for one in body["messages"] if one["role"] != "system"]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


@pytest.fixture(scope="module")
async def house(
    database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ApiServices, str]]:
    """One server for the tests of a module."""
    settings = new_settings(
        database_urls,
        tmp_path_factory.mktemp("house") / "data",
        node_name="openai-node",
        allowed_private_model_hosts=("*",),
    )
    async with open_services(settings) as services, listening(services) as origin:
        yield services, origin


@pytest.fixture
async def openai_api(house: tuple[ApiServices, str], model: ModelServer) -> AsyncIterator[OpenAiFixture]:
    """An agent that may use a few tools without approval."""
    async with opened_office(*house, model, trust="autonomous") as opened:
        yield opened


@pytest.fixture
async def guided(house: tuple[ApiServices, str], model: ModelServer) -> AsyncIterator[OpenAiFixture]:
    """An agent that asks before it writes."""
    async with opened_office(*house, model, trust="guided") as opened:
        yield opened


@asynccontextmanager
async def opened_office(
    services: ApiServices, origin: str, model: ModelServer, *, trust: str
) -> AsyncIterator[OpenAiFixture]:
    person = await services.accounts.create_user(email=f"{new_id()}@example.org", full_name="Ada", password_hash="x")
    owner, name = ActingUser(person.user_id), f"office {new_id()}"
    workspace = await services.workspaces.create(owner, name=name, node=services.settings.node_name)
    tenant = Tenant(workspace.id, person.user_id, 0)
    rules = AgentRules.model_validate(
        {
            "provider": "openai-compatible",
            "model": MODEL,
            "trust": trust,
            "context_window": 100_000,
            "tool_permissions": {tool: {"allowed": True} for tool in TOOLS},
        }
    )
    agent = await services.agents.create(tenant, name="clerk", definition=render_definition(rules))
    await services.access.store(owner, "openai-compatible", ProviderCredentials(KEY, f"{model.url}/v1"))
    _, key = await services.keys.create(owner, name="key", expires_at=None)
    async with (
        httpx2.AsyncClient(trust_env=False) as http,
        AsyncOpenAI(
            base_url=f"{origin}/v1", api_key=key, http_client=http, timeout=PATIENCE, _strict_response_validation=True
        ) as client,
    ):
        yield OpenAiFixture(services, origin, model, person.email, tenant, name, agent.id, key, client)
