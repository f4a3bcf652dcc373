"""Change sets of up to 10,000 paths through the whole server: whatever is done, no step of its loop takes long."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.fakes.model_server import KEY, ModelServer, model_server_beside
from tests.integration.api.websocket_room import listening
from tests.integration.conftest import new_person
from tests.integration.runs.conftest import MODEL, says
from tests.loop_steps import loop_steps
from tests.wait_until import PATIENCE
from toolcrib.api.api_services import ApiServices
from toolcrib.gate.call_pipeline import GateLimits
from toolcrib.settings import Settings
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.server import services
from toolcrib.wiring.tool_runtime import Stores

# CPU seconds of the loop's thread in one step.
MOST_SECONDS = 0.05
# The most calls of a message, and paths of each.
MOST_CALLS, OF_EACH = 200, 50
RULES = """
provider: openai-compatible
model: {model}
context_window: 1000000
trust: {trust}
tool_permissions: {{bash: {{allowed: true{more}}}, write: {{allowed: true}}, read_multiple_files: {{allowed: true}}}}
"""


@dataclass
class Client:
    """A person's client in a thread of its own, and the longest step of the loop during each of its actions."""

    http: httpx2.Client
    model: ModelServer
    longest: dict[str, float] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)

    async def does(self, what: str, act: Callable[[], Any]) -> Any:
        with loop_steps() as steps:
            done = await asyncio.to_thread(act)
        self.longest[what], self.where[what] = steps.longest, str(steps)
        return done

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text[:2_000]
        return answer.json()

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text[:2_000]
        return answer.json()

    def session(self, name: str, trust: str, more: str = "") -> str:
        definition = RULES.format(model=MODEL, trust=trust, more=more)
        agent = self.post("/agents", {"name": name, "definition": definition}, 201)
        return str(self.post("/sessions", {"agent_id": agent["id"]}, 201)["id"])

    def runs(self, session: str, command: str, status: int = 200) -> Any:
        call = {"tool": "bash", "args": {"command": command, "timeout": 600}, "session_id": session}
        return self.post("/tools", call, status)["result"]

    def pages(self, path: str, offset: str, following: str) -> list[Any]:
        """Return all pages of a list."""
        pages: list[Any] = []
        start: int | None = 0
        while start is not None:
            pages.append(self.get(path, **{offset: start}))
            start = pages[-1][following]
        return pages

    def until(self, path: str, field_name: str, value: str) -> Any:
        until = time.monotonic() + PATIENCE
        while (found := self.get(path))[field_name] != value:
            assert time.monotonic() < until, found
        return found


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[ApiServices, str]]:
    settings = settings.model_copy(update={"allowed_private_model_hosts": "*"})
    async with services(settings, binds_logins=True) as opened, listening(opened) as address:
        yield opened, f"http://{address}/api/v1"


@pytest.fixture
async def client(settings: Settings, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A whole server on this loop. The client and its model are beside it: only the server's steps are measured."""
    async with served(settings) as (api, url):
        # How long it takes is not the question here.
        monkeypatch.setattr(api.executor, "_limits", GateLimits(call_seconds=600))
        ada = await new_person(stores)
        workspace = await api.workspaces.create(ActingUser(ada), name="w", node=settings.node_name)
        headers = {"Authorization": f"Bearer {api.tokens.issue(ada, 0)}"}
        with (
            model_server_beside() as model,
            httpx2.Client(
                base_url=f"{url}/workspaces/{workspace.id}", headers=headers, timeout=PATIENCE, trust_env=False
            ) as http,
        ):
            credentials = {"secret": KEY, "base_url": f"{model.url}/v1"}
            put = await asyncio.to_thread(http.put, f"{url}/credentials/openai-compatible", json=credentials)
            assert put.is_success, put.text
            yield Client(http, model)


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("paths", [10, 1_000, 10_000])
async def test_no_step_of_the_event_loop_grows_with_the_paths_of_a_change_set(client: Client, paths: int) -> None:
    asked = await asyncio.to_thread(client.session, "asked", "guided", ", approve: effect")
    free = await asyncio.to_thread(client.session, "free", "review")
    make = f"mkdir d; for n in $(seq {paths}); do echo line $n > d/f$n; done"

    pause = await client.does("ask", lambda: client.runs(asked, make, 202))
    at = f"/paused-calls/{pause['pause_id']}"
    shown = await client.does("show approval", lambda: client.get(at))
    pages = await client.does("show changes", lambda: client.pages(f"{at}/changes", "first", "next"))
    assert sum(len(page["changes"]) for page in pages) == paths + 1

    def approve() -> Any:
        client.post(f"{at}/decision", {"approved": True, "arguments_sha256": shown["arguments_sha256"]})
        return client.until(f"/calls/{pause['call_id']}", "state", "done")

    assert (await client.does("approve", approve))["error"] is None
    change = f"cd d; for n in $(seq {paths}); do echo more >> f$n; done"
    await client.does("change", lambda: client.runs(free, change))
    reviewed = await client.does("review", lambda: client.pages(f"/sessions/{free}/review", "offset", "next_offset"))
    assert reviewed[-1]["total"] == paths
    decisions = [
        {"path": one["path"], "version": one["version"], "decision": "keep"}
        for one in reviewed[0]["files"][: len(reviewed[0]["files"]) // 2]
    ]
    await client.does("keep", lambda: client.post(f"/sessions/{free}/review", {"decisions": decisions}))
    undo = {"tool": "undo", "args": {"session_id": free}}
    undone = await client.does("undo", lambda: client.post("/tools", undo))
    assert undone["result"]["total_changes"] == paths
    redo = {"tool": "undo", "args": {"calls": [undone["result"]["call_id"]]}}
    await client.does("redo", lambda: client.post("/tools", redo))
    await client.does("batch", lambda: batch(client, free, paths))

    print(f"\n{paths:,} paths, ms: { {what: round(1e3 * seconds) for what, seconds in client.longest.items()} }")  # noqa: T201
    late = {what: seconds for what, seconds in client.longest.items() if seconds > MOST_SECONDS}
    assert late == {}, "\n".join(f"{what}: {seconds:.3f} s\n{client.where[what]}" for what, seconds in late.items())


def batch(client: Client, session: str, paths: int) -> None:
    """Let the model read all files in one message, and write beside them."""
    names = [f"/d/f{number}" for number in range(1, paths + 1)]
    portions = [names[first : first + OF_EACH] for first in range(0, paths, OF_EACH)][:MOST_CALLS]
    calls: list[tuple[str, dict[str, Any]]] = [("read_multiple_files", {"paths": portion}) for portion in portions]
    calls += [("write", {"path": f"/e/f{number}", "content": "x"}) for number in range(min(50, paths))]
    client.model.say(says("", *calls), says("Read."))
    run = client.post(f"/sessions/{session}/messages", {"text": "Read all."}, 202)
    ended = client.until(f"/runs/{run['id']}", "state", "ended")
    assert ended["end_reason"] == "done", ended
