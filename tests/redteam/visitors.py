"""Users of a real server: each with an account, a workspace and a logged-in client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx2

from tests.faults.server import Server, client_of

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Visitor:
    """A client with its own workspace."""

    client: httpx2.AsyncClient
    workspace_id: UUID

    async def call(self, tool: str, **arguments: Any) -> httpx2.Response:
        return await self.client.post(f"/workspaces/{self.workspace_id}/tools", json={"tool": tool, "args": arguments})

    async def result(self, tool: str, **arguments: Any) -> Any:
        """Make a call that must succeed and return its result."""
        answer = await self.call(tool, **arguments)
        assert answer.status_code == 200, answer.text[:1000]
        return answer.json()["result"]

    async def another_workspace(self) -> "Visitor":
        made = await self.client.post("/workspaces", json={"name": "another"})
        assert made.status_code in (200, 201), made.text
        return Visitor(self.client, UUID(made.json()["id"]))


@asynccontextmanager
async def visitor(server: Server) -> AsyncIterator[Visitor]:
    """Register a new person. The server must allow registration."""
    email = f"{uuid4().hex}@example.com"
    async with client_of(server) as stranger:
        person = {"email": email, "password": PASSWORD}
        registered = await stranger.post("/auth/register", json=person)
        assert registered.status_code in (200, 201), registered.text
        login = await stranger.post("/auth/login", json={"email": email, "password": PASSWORD})
        token = login.json()["access_token"]
    async with client_of(server, token) as client:
        made = await client.post("/workspaces", json={"name": "mine"})
        assert made.status_code in (200, 201), made.text
        yield Visitor(client, UUID(made.json()["id"]))
