"""``kill -9`` of the real server while it commits commands of 500 files: every effect is complete or absent."""

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import httpx2
import pytest

from tests.databases import DatabaseUrls
from tests.faults.consistency_check import Workspace
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE

FILES = 500
SCRIPT = """
mkdir -p many
for i in $(seq {files}); do echo {generation} > many/$i; done
echo {generation} > generation; chmod {mode} many/7
"""


@dataclass
class Campaign:
    """A workspace in which one command after the other rewrites all files."""

    server: Server
    token: str
    workspace: UUID
    truth: Workspace
    random: Random
    generation: int = 0
    acknowledged: int = 0
    seconds: list[float] = field(default_factory=list)
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, *, kill_after: float | None = None) -> None:
        """Run one command, and kill the server at some instant of it."""
        self.generation += 1
        mode = self.random.choice(("600", "640", "755"))
        script = SCRIPT.format(files=FILES, generation=self.generation, mode=mode)
        began = time.monotonic()
        if kill_after is not None:
            self.killed.clear()
            asyncio.get_running_loop().call_later(kill_after, self._kill)
        async with client_of(self.server, self.token) as http:
            try:
                answer = await http.post(
                    f"/workspaces/{self.workspace}/tools", json={"tool": "bash", "args": {"command": script}}
                )
            except httpx2.TransportError:
                return
        assert answer.status_code == 200, answer.text
        assert answer.json()["result"]["is_error"] is False, answer.text
        self.acknowledged = self.generation
        self.seconds.append(time.monotonic() - began)

    async def round(self) -> None:
        await self.run(kill_after=self.random.uniform(0, 1.2 * min(self.seconds)))
        # The command may have ended before its kill.
        await self.killed.wait()
        self.server.start_and_recover()
        self.check()

    def _kill(self) -> None:
        self.server.kill()
        self.killed.set()

    def check(self) -> None:
        found = {path.read_text() for path in (self.truth.project / "many").iterdir()}
        assert len(found) == 1, f"Half an effect: {found}"
        [generation] = map(int, found)
        assert generation in (self.acknowledged, self.generation)
        assert (self.truth.project / "generation").read_text() == f"{generation}\n"
        assert len(list((self.truth.project / "many").iterdir())) == FILES
        self.truth.assert_true()
        self.acknowledged = generation


async def newcomer(server: Server) -> tuple[str, UUID]:
    """A person's token, and their workspace."""
    async with client_of(server) as http:
        person = {"email": "ada@example.com", "password": "correct horse battery staple"}
        assert (await http.post("/auth/register", json=person)).status_code == 201
        token: str = (await http.post("/auth/login", json=person)).json()["access_token"]
    async with client_of(server, token) as http:
        return token, UUID((await http.post("/workspaces", json={"name": "killed"})).json()["id"])


async def campaign(server: Server, urls: DatabaseUrls, *, kills: int, seed: int) -> None:
    token, workspace = await newcomer(server)
    project = server.data_dir / "workspaces" / str(workspace) / "project"
    running = Campaign(server, token, workspace, Workspace(urls.owner, workspace, project), Random(seed))
    await running.run()
    await running.run()
    for number in range(kills):
        try:
            await running.round()
        except AssertionError as error:
            error.add_note(f"kill {number + 1} of {kills}, seed {seed}")
            raise


async def test_ten_kills_leave_every_effect_complete_or_absent(server: Server, urls: DatabaseUrls) -> None:
    await campaign(server, urls, kills=10, seed=secrets.randbits(32))


@pytest.mark.crash
async def test_hundred_kills_leave_every_effect_complete_or_absent(server: Server, urls: DatabaseUrls) -> None:
    await campaign(server, urls, kills=100, seed=secrets.randbits(32))


AGENT = """
trust: guided
toolsets: [studio]
tool_permissions: {bash: {allowed: true, approve: effect}}
"""


async def test_effect_proposed_before_a_kill_is_committed_by_the_next_server(
    server: Server, urls: DatabaseUrls
) -> None:
    token, workspace = await newcomer(server)
    home = f"/workspaces/{workspace}"
    async with client_of(server, token) as http:
        agent = (await http.post(f"{home}/agents", json={"name": "hand", "definition": AGENT})).json()
        key = (await http.post(f"{home}/agents/{agent['id']}/keys", json={"name": "hand"})).json()["secret"]
    async with client_of(server, key) as http:
        call = {"tool": "bash", "args": {"command": SCRIPT.format(files=FILES, generation=1, mode="640")}}
        asked = await http.post(f"{home}/tools", json=call)
    assert asked.status_code == 202, asked.text
    pending = asked.json()["result"]

    server.kill()
    server.start()
    async with client_of(server, token) as http:
        place = f"{home}/paused-calls/{pending['pause_id']}"
        decision = {"approved": True, "arguments_sha256": (await http.get(place)).json()["arguments_sha256"]}
        decided = await http.post(f"{place}/decision", json=decision)
        assert decided.status_code == 200, decided.text
        async with asyncio.timeout(PATIENCE):
            while (await http.get(f"{home}/calls/{pending['call_id']}")).json()["state"] in ("paused", "running"):
                pass
        # The history is ahead of the disk for a moment; a reader of such a file waits until it is applied.
        seen = await http.post(f"{home}/tools", json={"tool": "read", "args": {"path": f"/many/{FILES}"}})
        assert seen.status_code == 200, seen.text

    project = server.data_dir / "workspaces" / str(workspace) / "project"
    assert {path.read_text() for path in (project / "many").iterdir()} == {"1\n"}
    assert (project / "many" / "7").stat().st_mode & 0o777 == 0o640
    Workspace(urls.owner, workspace, project).assert_true()
