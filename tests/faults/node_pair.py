"""Two real servers with names and disks of their own on one database; a workspace's home is the first."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg

from tests.databases import DatabaseUrls
from tests.faults.server import Server, client_of, free_port

_SHARED = ("TOOLCRIB_JWT_SECRET", "TOOLCRIB_AUDIT_SEAL_KEY")


@contextmanager
def node_pair(
    folder: Path, urls: DatabaseUrls, *, first_urls: DatabaseUrls | None = None, **environment: str
) -> Iterator[tuple[Server, Server]]:
    """Start both nodes, each with an internal listener.

    Args:
        first_urls: How the first node reaches the database, if not as the second does.
    """
    with ExitStack() as opened:
        made: list[Server] = []
        for name, reached in (("first", first_urls or urls), ("second", urls)):
            (folder / name).mkdir()
            server = opened.enter_context(Server(folder / name, reached))
            server.environment |= {
                "TOOLCRIB_NODE_NAME": name,
                "TOOLCRIB_INTERNAL_PORT": str(free_port()),
                **environment,
                **{secret: made[0].environment[secret] for secret in _SHARED if made},
            }
            made.append(server)
            server.start()
        yield made[0], made[1]


@dataclass(frozen=True)
class PairedWorkspace:
    """A workspace whose files are on the first node, and a person who uses both."""

    first: Server
    second: Server
    token: str
    workspace: UUID

    @property
    def project(self) -> Path:
        """Its files, which only the first node has."""
        return self.first.data_dir / "workspaces" / str(self.workspace) / "project"

    @property
    def url(self) -> str:
        return f"/workspaces/{self.workspace}"

    def client(self, server: Server | None = None) -> httpx2.AsyncClient:
        """A client of the second node, or of another."""
        return client_of(server or self.second, self.token)

    async def answer(self, tool: str, /, *, at: Server | None = None, **arguments: Any) -> httpx2.Response:
        """Call a tool at the second node, or at another, and return the response."""
        async with self.client(at) as http:
            return await http.post(f"{self.url}/tools", json={"tool": tool, "args": arguments})

    async def result(self, tool: str, /, *, at: Server | None = None, **arguments: Any) -> Any:
        """Call a tool and return its result."""
        answer = await self.answer(tool, at=at, **arguments)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    async def streamed(self, tool: str, /, **arguments: Any) -> list[dict[str, Any]]:
        """Call a tool at the second node and return the messages of the stream."""
        async with self.client() as http:
            body, accept = {"tool": tool, "args": arguments}, {"Accept": "text/event-stream"}
            answer = await http.post(f"{self.url}/tools", json=body, headers=accept)
        return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]

    async def session(self, **given: Any) -> str:
        async with self.client() as http:
            made = await http.post(f"{self.url}/sessions", json=given)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


async def workspace_of_first(first: Server, second: Server) -> PairedWorkspace:
    """Create a person, and their workspace at the first node."""
    person = {"email": f"{secrets.token_hex(6)}@example.com", "password": "correct horse battery staple"}
    async with client_of(first) as http:
        assert (await http.post("/auth/register", json=person)).status_code == 201
        token: str = (await http.post("/auth/login", json=person)).json()["access_token"]
    async with client_of(first, token) as http:
        while True:
            # Each node gets about as many.
            made = (await http.post("/workspaces", json={"name": "shared"})).json()["id"]
            if await asyncio.to_thread(_home, first, made) == first.environment["TOOLCRIB_NODE_NAME"]:
                return PairedWorkspace(first, second, token, UUID(made))


def _home(server: Server, workspace: str) -> str:
    with psycopg.connect(server.environment["TOOLCRIB_SYSTEM_DATABASE_URL"]) as connection:
        row = connection.execute("select home_node from toolcrib.workspaces where id = %s", (workspace,)).fetchone()
    assert row is not None
    return str(row[0])
