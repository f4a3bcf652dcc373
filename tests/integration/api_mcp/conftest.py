"""A server on loopback for MCP clients, with workspaces and keys."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import uvicorn

from tests.conftest import new_settings
from tests.databases import DatabaseUrls
from tests.fakes.conformance_tools import conformance_tools
from tests.wait_until import PATIENCE
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.core.agents import AgentRules
from toolcrib.core.ids import WorkspaceId, new_id
from toolcrib.policy.agent_definition import render_definition
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.server import services as open_services


@dataclass(frozen=True)
class Served:
    """A workspace behind a server. ``origin`` is the server's URL."""

    services: ApiServices
    origin: str
    tenant: Tenant
    key: str

    @property
    def workspace_id(self) -> WorkspaceId:
        return self.tenant.workspace_id

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp/{self.workspace_id}"

    @property
    def open_url(self) -> str:
        """A URL at which the owner's key is added, for clients that cannot be given one."""
        return f"{self.origin}/open/{self.workspace_id}/{self.key}"

    def client(self, key: str | None = None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key or self.key}"}, timeout=PATIENCE, trust_env=False
        )

    async def agent_key(self, **rules: Any) -> str:
        definition = render_definition(AgentRules.model_validate(rules))
        agent = await self.services.agents.create(self.tenant, name=f"agent {new_id()}", definition=definition)
        _, secret = await self.services.keys.create_for_agent(self.tenant, agent.id, name="key", expires_at=None)
        return secret


async def founded(services: ApiServices, origin: str) -> Served:
    """A new workspace on the same server."""
    user = await services.accounts.create_user(email=f"{new_id()}@example.org", full_name="Ada", password_hash="x")
    workspace = await services.workspaces.create(ActingUser(user.user_id), name="w", node=services.settings.node_name)
    _, secret = await services.keys.create(ActingUser(user.user_id), name="key", expires_at=None)
    return Served(services, origin, Tenant(workspace.id, user.user_id, 0), secret)


@pytest.fixture(scope="module")
async def house(
    database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ApiServices, str]]:
    """One server for the tests of a module, with the tools that the conformance suite looks for."""
    settings = new_settings(
        database_urls,
        tmp_path_factory.mktemp("house") / "data",
        node_name="mcp-node",
        secure_cookies=False,
        allowed_private_mcp_hosts=("*",),
    )
    async with open_services(settings, tools=conformance_tools()) as services, listening(services) as origin:
        yield services, origin


@pytest.fixture
async def served(house: tuple[ApiServices, str]) -> Served:
    """A new workspace on that server."""
    return await founded(*house)


@asynccontextmanager
async def listening(services: ApiServices) -> AsyncIterator[str]:
    config = uvicorn.Config(
        _with_key(create_app(services)), lifespan="on", log_config=None, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


def _with_key(app: Any) -> Any:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/open/"):
            _, _, workspace_id, key = scope["path"].split("/")
            path = f"/mcp/{workspace_id}"
            headers = [*scope["headers"], (b"authorization", f"Bearer {key}".encode())]
            scope = {**scope, "path": path, "raw_path": path.encode(), "headers": headers}
        await app(scope, receive, send)

    return serve
