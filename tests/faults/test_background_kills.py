"""``kill -9`` of the real server while background processes run: none outlives it, and the next server cleans up."""

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.databases import migrated_database, urls_of
from tests.faults.server import Server, client_of
from tests.faults.test_shell_kills import newcomer
from tests.integration.sandbox.test_starting import ended, marked
from tests.wait_until import PATIENCE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with migrated_database() as name, Server(tmp_path, urls_of(name)) as server:
        # After this time a silent server counts as dead.
        server.environment["TOOLCRIB_HEARTBEAT_LEASE_SECONDS"] = "2"
        server.start()
        yield server


@dataclass(frozen=True)
class Talk:
    """A session over HTTP."""

    http: httpx2.AsyncClient
    workspace: UUID
    session: str

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        call = {"tool": tool, "args": arguments, "session_id": self.session}
        answer = await self.http.post(f"/workspaces/{self.workspace}/tools", json=call)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return result

    async def processes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.call("bash_list"))["metadata"]["processes"]
        return found


async def test_killed_server_leaves_no_process_and_its_changes_can_be_undone(server: Server) -> None:
    token, workspace = await newcomer(server)
    project = server.data_dir / "workspaces" / str(workspace) / "project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "a").write_text("before")
    mark = secrets.token_hex(8)
    async with client_of(server, token) as http:
        session = (await http.post(f"/workspaces/{workspace}/sessions", json={})).json()["id"]
        talk = Talk(http, workspace, session)
        command = f"(setsid sh -c 'sleep 600; : {mark}' &); read go; echo after > a; echo new > b; echo done; sleep 600"
        process = (await talk.call("bash_start", command=command))["metadata"]["processId"]
        await talk.call("bash_input", process_id=process, text="go\n", offset=10**9)
    assert len(marked(mark)) >= 2

    server.kill()

    for left in marked(mark):
        ended(left)
    assert marked(mark) == []
    server.start()
    async with client_of(server, token) as http, asyncio.timeout(PATIENCE):
        talk = Talk(http, workspace, session)
        while (listed := (await talk.processes())[0])["running"]:
            pass
        assert listed["stopReason"] == "its server stopped unexpectedly"
        # Its changes are tracked by then, or a moment later.
        while (project / "b").exists():
            await talk.call("undo", session_id=session)
    assert (project / "a").read_text() == "before"
