"""One smoke test for every form of deployment: account, run with approval, events, undo, audit log, metrics."""

import json
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.acceptance.local_machine import Model
from tests.fakes.model_server import KEY, model_server_beside
from tests.integration.runs.conftest import says

SECONDS: Final = 600.0
PERSON: Final = {"email": "ada@example.com", "password": "correct horse battery staple"}
CHANGED: Final = PERSON | {"password": "another long enough phrase"}
AGENT: Final = """
provider: openai-compatible
model: fake
trust: guided
tool_permissions: {write: {allowed: true}, bash: {allowed: true}}
"""
KEPT: Final = "/kept.md"
# The sandbox's name for its machine shows that the command ran in it.
COMMAND: Final = "hostname > where.txt; wc -l < notes.md >> where.txt"


@dataclass(frozen=True)
class Deployment:
    """A running server.

    Attributes:
        command: Runs a command of the deployment with the server's settings. Returns its output; raises if it fails.
        logged: Returns what the server has logged.
        model_host: The name that this machine has for the server.
        has_administrator: Its settings have created the first account. Otherwise, it has logged a link that does.
    """

    origin: str
    command: Callable[..., str]
    logged: Callable[[], str]
    metrics_token: str
    model_host: str = "127.0.0.1"
    has_administrator: bool = False
    tls: ssl.SSLContext | None = None


@dataclass
class Smoke:
    """A person at a deployment, with a fake model."""

    deployment: Deployment
    model: Model
    headers: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Raise AssertionError where something does not work."""
        self._has_the_web_ui()
        self._becomes_the_first_administrator()
        workspace = self._post("/workspaces", {"name": "first"})["id"]
        self._works_in(f"/workspaces/{workspace}")
        # It fails if a record is missing or altered.
        self.deployment.command("audit", "verify")
        self._is_measured()

    def _is_measured(self) -> None:
        """The metrics need their token, and count what was done."""
        at = f"{self.deployment.origin}/metrics"
        assert self._client.get(at).status_code == 401
        scraped = self._client.get(at, headers={"Authorization": f"Bearer {self.deployment.metrics_token}"})
        assert scraped.status_code == 200, scraped.text
        for counted in ('calls_total{outcome="done",tool="bash"} 1.0', 'runs_ended_total{ending="done"} 1.0'):
            assert f"toolcrib_{counted}\n" in scraped.text, f"{counted} is not in the metrics:\n{scraped.text[:3000]}"

    def _has_the_web_ui(self) -> None:
        page = self._client.get(self.deployment.origin + "/")
        assert page.status_code == 200, page.text
        assert "<script" in page.text, "This is not the web UI."

    def _becomes_the_first_administrator(self) -> None:
        """Takes the first account, and changes its password as an operator would at once."""
        if not self.deployment.has_administrator:
            [link] = re.findall(r"#setup=([\w.-]+)", self.deployment.logged())
            self._post("/auth/register", PERSON | {"setup": link})
        self._log_in(PERSON)
        passwords = {"current_password": PERSON["password"], "new_password": CHANGED["password"]}
        self._post("/auth/password", passwords)
        refused = self._client.post(f"{self.deployment.origin}/api/v1/auth/login", json=PERSON)
        assert refused.status_code == 401, f"The old password still works: {refused.status_code} {refused.text}"
        self._log_in(CHANGED)
        [account] = self._get("/users")["items"]
        assert (account["email"], account["is_administrator"]) == (PERSON["email"], True), account
        assert json.loads(self.deployment.command("user", "list", "--json"))["administrator"] is True

    def _log_in(self, person: dict[str, str]) -> None:
        token = self._post("/auth/login", person)["access_token"]
        self.headers["Authorization"] = f"Bearer {token}"

    def _works_in(self, at: str) -> None:
        self._send("PUT", "/credentials/openai-compatible", {"secret": KEY, "base_url": f"{self._model_url}/v1"})
        agent = self._post(f"{at}/agents", {"name": "helper", "definition": AGENT})["id"]
        session = self._post(f"{at}/sessions", {"agent_id": agent})["id"]
        self.model.script = [
            says("", ("write", {"path": "/notes.md", "content": "# Notes\n"})),
            says("", ("bash", {"command": COMMAND})),
            says("It is written."),
        ]
        with self._events(f"{at}/sessions/{session}") as heard:
            run = self._post(f"{at}/sessions/{session}/messages", {"text": "Write notes"})["id"]
            self._approve_all(at, run, heard)
        self._speaks_on_a_websocket(at, session)
        self._ran_in_the_sandbox(at, session)
        self._tool(at, "undo", run_id=run)
        assert "where.txt" not in json.dumps(self._tool(at, "ls", path="/"))
        self._tool(at, "write", path=KEPT, content="kept\n")

    def _ran_in_the_sandbox(self, at: str, session: str) -> None:
        try:
            assert self._tool(at, "read", path="/where.txt").startswith("sandbox\n1")
        except AssertionError as error:
            events = json.dumps(self._get(f"{at}/sessions/{session}/events"), indent=1)
            raise AssertionError(f"{error}\nWhat happened:\n{events}") from error

    def _approve_all(self, at: str, run: str, heard: Iterator[str]) -> None:
        """Approve what the run asks for, when the stream tells of it, until the run has ended."""
        approved, told, deadline = 0, "", time.monotonic() + SECONDS
        # Each line comes at once, through every proxy: a stream that is held back ends in a timeout.
        for line in heard:
            told += line
            assert time.monotonic() < deadline, f"The run has not ended: {told[-1000:]}"
            for paused in self._get(f"{at}/paused-calls")["items"]:
                if paused["state"] == "pending":
                    answer = {"approved": True, "arguments_sha256": paused["arguments_sha256"]}
                    self._post(f"{at}/paused-calls/{paused['id']}/decision", answer)
                    approved += 1
            state = self._get(f"{at}/runs/{run}")
            if state["state"] == "ended":
                assert (state["end_reason"], approved) == ("done", 2), state
                return
        raise AssertionError(f"The stream ended before the run: {told[-1000:]}")

    @contextmanager
    def _events(self, at: str) -> Iterator[Iterator[str]]:
        path = f"{self.deployment.origin}/api/v1{at}/events/stream"
        with self._client.stream("GET", path, headers=self.headers) as stream:
            assert stream.status_code == 200
            yield stream.iter_lines()

    def _speaks_on_a_websocket(self, at: str, session: str) -> None:
        address = self.deployment.origin.replace("http", "ws", 1) + f"/api/v1{at}/ws"
        with connect(
            address, additional_headers=self.headers, ssl=self.deployment.tls, open_timeout=SECONDS, proxy=None
        ) as socket:
            socket.send(json.dumps({"type": "chat:resume", "payload": {"conversationId": session, "after": 0}}))
            said = ""
            while "It is written." not in said:
                said += str(socket.recv(timeout=SECONDS))

    def _tool(self, at: str, tool: str, **args: Any) -> Any:
        outcome = self._post(f"{at}/tools", {"tool": tool, "args": args})
        result = outcome.get("result", outcome)
        return result.get("content", result) if isinstance(result, dict) else result

    def _get(self, path: str) -> Any:
        return self._send("GET", path)

    def _post(self, path: str, body: Any) -> Any:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._client.request(method, f"{self.deployment.origin}/api/v1{path}", json=body, headers=self.headers)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    @property
    def _model_url(self) -> str:
        return f"http://{self.deployment.model_host}:{self.model.url.rpartition(':')[2]}"

    @property
    def _client(self) -> httpx2.Client:
        # A new one each time: a login sets cookies, which no other request may send.
        return httpx2.Client(verify=self.deployment.tls or False, trust_env=False, timeout=SECONDS)


def smoke(deployment: Deployment) -> None:
    """Play it against a deployment that has no account yet. Raises AssertionError where something does not work."""
    try:
        model = Model()
        if deployment.model_host != model.address:
            # A container reaches it by another address of this machine.
            model.address = "0.0.0.0"
        with model_server_beside(model):
            Smoke(deployment, model).run()
    except (httpx2.HTTPError, WebSocketException, TimeoutError) as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{deployment.logged()[-3000:]}") from error


def require_kept(deployment: Deployment) -> None:
    """Require what the smoke test left: its account, with the new password, and its file."""
    with httpx2.Client(trust_env=False, timeout=SECONDS) as client:
        at = f"{deployment.origin}/api/v1"
        login = client.post(f"{at}/auth/login", json=CHANGED)
        assert login.is_success, f"{login.status_code} {login.text}"
        bearer = {"Authorization": f"Bearer {login.json()['access_token']}"}
        [workspace] = client.get(f"{at}/workspaces", headers=bearer).json()["items"]
        read = {"tool": "read", "args": {"path": KEPT}}
        found = client.post(f"{at}/workspaces/{workspace['id']}/tools", json=read, headers=bearer)
        assert "kept\\n" in found.text, found.text
