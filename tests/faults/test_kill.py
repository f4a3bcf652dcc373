"""``kill -9`` of the real server at random instants, under many clients: everything acknowledged is kept."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from uuid import UUID

import httpx2
import pytest

from tests.databases import DatabaseUrls
from tests.faults.consistency_check import Workspace
from tests.faults.load import SHARED, Client, at_full_speed
from tests.faults.server import Server, client_of

CLIENTS = 5
MOST_SECONDS = 0.3
PASSWORD = "correct horse battery staple"


async def test_ten_kills_lose_nothing_that_was_acknowledged(server: Server, urls: DatabaseUrls) -> None:
    await kill_again_and_again(server, urls, kills=10, seed=secrets.randbits(32))


@pytest.mark.crash
async def test_two_hundred_kills_lose_nothing_that_was_acknowledged(server: Server, urls: DatabaseUrls) -> None:
    await kill_again_and_again(server, urls, kills=200, seed=secrets.randbits(32))


@dataclass(frozen=True)
class Campaign:
    """A workspace under load, and the server that is killed."""

    server: Server
    clients: list[Client]
    truth: Workspace
    random: Random

    async def round(self) -> None:
        """Apply load, kill at a random instant, restart, and check everything."""
        working = [asyncio.create_task(client.work()) for client in self.clients]
        await at_full_speed(self.clients, working, calls=2)
        # The instant is random here; nothing is waited for.
        loop = asyncio.get_running_loop()
        loop.call_later(self.random.uniform(0, MOST_SECONDS), self.server.kill)
        await asyncio.gather(*working)
        self.server.start_and_recover()
        self.check()

    def check(self) -> None:
        live = self.truth.live()
        for client in self.clients:
            client.settle({p: d for p, d in live.items() if p == client.home or p.startswith(f"{client.home}/")})
        self._check_shared_file()
        self._check_acknowledged_versions()
        self.truth.assert_true()

    def _check_shared_file(self) -> None:
        found = (self.truth.project / SHARED[1:]).read_text().splitlines()
        for client in self.clients:
            client.settle_line(found)
        assert sorted(found) == sorted(line for client in self.clients for line in client.lines)

    def _check_acknowledged_versions(self) -> None:
        kept = {str(row.id): row.sha256 for row in self.truth.versions()}
        for client in self.clients:
            assert client.versions.items() <= kept.items()


async def kill_again_and_again(server: Server, urls: DatabaseUrls, *, kills: int, seed: int) -> None:
    async with campaign(server, urls, seed) as running:
        for number in range(kills):
            try:
                await running.round()
            except AssertionError as error:
                error.add_note(f"kill {number + 1} of {kills}, seed {seed}")
                raise
        calls = sum(client.calls for client in running.clients)
        # A campaign with little activity shows little.
        assert calls > kills * CLIENTS * 2
    verified = server.command("audit", "verify", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["sealed_records"] > 0


@asynccontextmanager
async def campaign(server: Server, urls: DatabaseUrls, seed: int) -> AsyncIterator[Campaign]:
    random = Random(seed)
    async with AsyncExitStack() as stack:
        token = await _registered(server)
        clients: list[httpx2.AsyncClient] = [
            await stack.enter_async_context(client_of(server, token)) for _ in range(CLIENTS)
        ]
        made = await clients[0].post("/workspaces", json={"name": "killed"})
        workspace_id = made.json()["id"]
        loaders = [
            Client(http, workspace_id, f"c{number}", Random(random.random())) for number, http in enumerate(clients)
        ]
        shared = await clients[0].post(
            f"/workspaces/{workspace_id}/tools", json={"tool": "write", "args": {"path": SHARED, "content": ""}}
        )
        assert shared.status_code == 200, shared.text
        await asyncio.gather(*(loader.prepare() for loader in loaders))
        project = server.data_dir / "workspaces" / workspace_id / "project"
        yield Campaign(server, loaders, Workspace(urls.owner, UUID(workspace_id), project), random)


async def _registered(server: Server) -> str:
    async with client_of(server) as http:
        person = {"email": "ada@example.com", "password": PASSWORD}
        assert (await http.post("/auth/register", json=person)).status_code == 201
        login = await http.post("/auth/login", json=person)
    token: str = login.json()["access_token"]
    return token
