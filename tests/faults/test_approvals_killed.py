"""``kill -9`` between request, decision and execution: an approved call is executed once, any other never."""

import asyncio
import os
import secrets
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg

from tests.databases import DatabaseUrls
from tests.faults.processes import FORKED, Site, engine_at, run_command
from tests.faults.server import Server
from tests.wait_until import PATIENCE
from toolcrib.core.ids import PauseId, UserId, WorkspaceId
from toolcrib.core.paused_calls import ApprovalDecision
from toolcrib.storage.database import Tenant

PASSWORD = "correct horse battery staple"
EMAIL = "ada@example.com"
RULES = "trust: guided\ntool_permissions: {write: {allowed: true}}"
_LOOKS = 3_000
# The number of kills, and by how many statements each is later than the one before.
DEATHS, EVERY = 10, 5


class People:
    """Ada and her agent, over HTTP."""

    def __init__(self, server: Server) -> None:
        self._server = server
        ada = self._send("POST", "/auth/register", {"email": EMAIL, "password": PASSWORD})
        self.user_id = ada["id"]
        self.token = self._send("POST", "/auth/login", {"email": EMAIL, "password": PASSWORD})["access_token"]
        self.workspace = str(self._send("POST", "/workspaces", {"name": "w"})["id"])
        agent = self._send("POST", f"/workspaces/{self.workspace}/agents", {"name": "a", "definition": RULES})
        keys = f"/workspaces/{self.workspace}/agents/{agent['id']}/keys"
        self.key = self._send("POST", keys, {"name": "k"})["secret"]

    @property
    def project(self) -> Path:
        return self._server.data_dir / "workspaces" / self.workspace / "project"

    def ask(self, path: str) -> dict[str, Any]:
        call = {"tool": "write", "args": {"path": path, "content": f"{path}\n"}}
        result = self._send("POST", f"/workspaces/{self.workspace}/tools", call, token=self.key)
        return dict(result["result"])

    def decide(self, approval_id: str) -> None:
        place = f"/workspaces/{self.workspace}/paused-calls/{approval_id}"
        seen = {"approved": True, "arguments_sha256": self._send("GET", place)["arguments_sha256"]}
        decision = f"{self._server.origin}/api/v1{place}/decision"
        headers = {"Authorization": f"Bearer {self.token}"}
        result = httpx2.post(decision, json=seen, headers=headers, timeout=PATIENCE, trust_env=False)
        assert result.status_code in (200, 409), result.text

    def ended(self, call_id: str) -> str:
        for _ in range(_LOOKS):
            state = str(self._send("GET", f"/workspaces/{self.workspace}/calls/{call_id}")["state"])
            if state not in ("paused", "running"):
                return state
        raise AssertionError(f"Call {call_id} has not ended.")

    def on_disk(self, *names: str) -> None:
        """A change is on disk a moment after its commit."""
        for _ in range(_LOOKS):
            if {path.name for path in self.project.iterdir()} == set(names):
                return
            self._send("GET", f"/workspaces/{self.workspace}")
        raise AssertionError(f"On disk are {sorted(self.project.iterdir())}.")

    def _send(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        token = token or getattr(self, "token", None)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = httpx2.request(
            method, f"{self._server.origin}/api/v1{path}", json=body, headers=headers, timeout=PATIENCE, trust_env=False
        )
        assert response.is_success, response.text
        return response.json()


def test_call_pending_at_a_kill_is_decided_without_a_server_and_executed_by_the_next(
    server: Server, tmp_path: Path
) -> None:
    people = People(server)
    yes, no = people.ask("/yes.txt"), people.ask("/no.txt")

    server.kill()
    for asked, more in ((yes, ()), (no, ("--reject",))):
        decided = ("approve", asked["pause_id"], "--database", "--as", EMAIL, "--yes", *more)
        said = run_command(*decided, environment=server.environment, scratch=tmp_path)
        assert said.status == 0, said.said
    assert not (people.project / "yes.txt").exists()
    server.start()

    assert (people.ended(yes["call_id"]), people.ended(no["call_id"])) == ("done", "denied")
    people.on_disk("yes.txt")
    assert (people.project / "yes.txt").read_text() == "/yes.txt\n"
    assert not (people.project / "no.txt").exists()


def test_node_killed_at_any_statement_of_decision_and_execution_leaves_the_call_to_the_next(
    server: Server, urls: DatabaseUrls
) -> None:
    people = People(server)
    asked = [people.ask(f"/{number}.txt") for number in range(DEATHS)]
    server.kill()
    site = Site(urls.app, urls.system, server.data_dir, server.node)
    first = secrets.randbelow(EVERY)
    ends = [dies(site, people, one["pause_id"], after=first + number * EVERY) for number, one in enumerate(asked)]
    assert ends[0] == -signal.SIGKILL, "the first dies at one of its first statements"
    assert ends[-1] == 0, "the last lives to see the end, so that deaths fall everywhere before it"

    server.start()
    for one in asked:
        # Calls that were undecided when their node died are decided now; the others report that they are decided.
        people.decide(one["pause_id"])
    states = [people.ended(one["call_id"]) for one in asked]

    assert states == ["done"] * len(asked), f"The first died after {first} statements."
    people.on_disk(*(f"{number}.txt" for number in range(DEATHS)))
    with psycopg.connect(urls.owner) as connection:
        twice = connection.execute(
            "select path, count(*) from toolcrib.versions where path like '/%.txt' group by path having count(*) <> 1"
        ).fetchall()
        booked = connection.execute(
            "select call_id, count(*) from toolcrib.audit_records where outcome = 'done' "
            "group by 1 having count(*) <> 1"
        ).fetchall()
        left = connection.execute(
            "select count(*) from toolcrib.paused_calls where state <> 'approved' or resumed_at is null"
        ).fetchone()
    assert (twice, booked, left) == ([], [], (0,))


def dies(site: Site, people: People, approval_id: str, *, after: int) -> int | None:
    """Decide and execute in a process that is killed before a given statement; return how it ended."""
    arguments = (site, people.workspace, people.user_id, approval_id, after)
    process = FORKED.Process(target=_die, args=arguments, daemon=True)
    process.start()
    process.join()
    return process.exitcode


def _die(site: Site, workspace: str, user: str, approval: str, statements: int) -> None:
    left = statements
    execute = psycopg.AsyncCursor.execute

    async def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await execute(self, *arguments, **options)

    psycopg.AsyncCursor.execute = counted  # type: ignore[method-assign]
    asyncio.run(_decide_and_do(site, workspace, user, approval))
    os._exit(0)


async def _decide_and_do(site: Site, workspace: str, user: str, approval: str) -> None:
    tenant = Tenant(WorkspaceId(UUID(workspace)), UserId(UUID(user)))
    async with engine_at(site) as engine:
        await engine.paused_calls.decide(tenant, PauseId(UUID(approval)), ApprovalDecision(approved=True), via="test")
        await engine.resume_worker.execute(tenant.workspace_id, PauseId(UUID(approval)))
