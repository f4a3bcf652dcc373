"""The test bed of the client programs: a real server, a scripted model, and people who have only network access."""

import json
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from psycopg import sql
from websockets.sync.client import ClientConnection, connect

from tests.acceptance.serving import serving
from tests.clients.model import KEY, Reply, ScriptedModel, scripted_model
from tests.databases import DatabaseUrls, admin_url, url_for
from tests.wait_until import PATIENCE

PASSWORD = "correct horse battery staple"
Message = dict[str, Any]


@dataclass
class Space:
    """A workspace that one person accesses over the network. ``directory`` is its directory on the server's disk."""

    http: httpx2.Client
    origin: str
    id: str
    token: str
    directory: Path

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self.http.post(f"/workspaces/{self.id}{path}", json=body, headers=self.headers)

    def put(self, path: str, body: Any) -> httpx2.Response:
        return self.http.put(f"/workspaces/{self.id}{path}", json=body, headers=self.headers)

    def patch(self, path: str, body: Any) -> httpx2.Response:
        return self.http.patch(f"/workspaces/{self.id}{path}", json=body, headers=self.headers)

    def get(self, path: str, **query: Any) -> httpx2.Response:
        return self.http.get(f"/workspaces/{self.id}{path}", params=query, headers=self.headers)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def call(self, tool: str, /, **args: Any) -> httpx2.Response:
        return self.post("/tools", {"tool": tool, "args": args})

    def result(self, tool: str, /, **args: Any) -> Any:
        """Makes a call that must succeed and returns its result."""
        answer = self.call(tool, **args)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def put_file(self, path: str, content: str | bytes) -> Path:
        """Writes a file to the server's disk, as another program would."""
        file = self.directory / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def agent(self, definition: str) -> str:
        made = self.post("/agents", {"name": f"agent-{secrets.token_hex(4)}", "definition": definition})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def as_agent(self, agent_id: str) -> "Space":
        """The workspace accessed with the agent's key."""
        key = self.post(f"/agents/{agent_id}/keys", {"name": "client"})
        assert key.status_code == 201, key.text
        return Space(self.http, self.origin, self.id, key.json()["secret"], self.directory)

    def session(self, agent_id: str, **more: Any) -> str:
        made = self.post("/sessions", {"agent_id": agent_id, **more})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"/sessions/{session_id}/messages", results=True).json()["items"]
        return items

    @contextmanager
    def socket(self, protocol: str | None = None) -> Iterator["Socket"]:
        address = f"{self.origin.replace('http', 'ws', 1)}/api/v1/workspaces/{self.id}/ws"
        with connect(
            address,
            additional_headers=self.headers,
            subprotocols=[protocol] if protocol else None,  # type: ignore[list-item]
            proxy=None,
        ) as opened:
            yield Socket(opened)


@dataclass
class Socket:
    """A WebSocket that records every message."""

    connection: ClientConnection
    sent: list[Message] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)
    _unread: deque[Message] = field(default_factory=deque)

    def send(self, message: Message) -> None:
        self.sent.append(message)
        self.connection.send(json.dumps(message))

    def next(self) -> Message:
        frame = self.connection.recv(PATIENCE)
        assert isinstance(frame, str), "A frame is not text."
        message: Message = json.loads(frame)
        self.received.append(message)
        return message

    def until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        """Every message up to and including the first that matches."""
        got: list[Message] = []
        while not got or not wanted(got[-1]):
            got.append(self.next())
        return got

    # The chat protocol

    def chat(self, kind: str, **payload: Any) -> None:
        self.send({"type": kind, "payload": payload})

    def until_type(self, kind: str, **facts: Any) -> list[Message]:
        return self.until(lambda one: one["type"] == kind and facts.items() <= one.get("payload", {}).items())

    def run(self, conversation: str, content: str, **more: Any) -> list[Message]:
        """Sends a message and returns everything up to the end of the run."""
        self.chat("chat:send", conversationId=conversation, content=content, **more)
        return self.until_type("chat:run-state", state="ended")


@dataclass
class Stage:
    """The server and the model, and how to create users of them."""

    origin: str
    data_dir: Path
    model: ScriptedModel
    jwt_secret: str
    http: httpx2.Client

    def person(self) -> tuple[str, str]:
        """Registers a new person. Returns their email address and token."""
        email = f"{secrets.token_hex(6)}@example.com"
        with httpx2.Client(base_url=self.api, trust_env=False, timeout=PATIENCE) as own:
            made = own.post("/auth/register", json={"email": email, "password": PASSWORD})
            assert made.status_code == 201, made.text
            token = own.post("/auth/login", json={"email": email, "password": PASSWORD}).json()["access_token"]
        return email, token

    def space(self, token: str | None = None) -> Space:
        """Creates a workspace with a provider key, for the programs' common owner or for the owner of this token."""
        token = token or self._owner
        headers = {"Authorization": f"Bearer {token}"}
        made = self.http.post("/workspaces", json={"name": "client"}, headers=headers)
        assert made.status_code == 201, made.text
        for provider, path in (("openai-compatible", "/v1"), ("copilot", ""), ("anthropic", ""), ("ollama", "")):
            given = {"secret": KEY, "base_url": f"{self.model.url}{path}", "check": False}
            stored = self.http.put(f"/credentials/{provider}", json=given, headers=headers)
            assert stored.status_code == 204, stored.text
        workspace_id = made.json()["id"]
        directory = self.data_dir / "workspaces" / workspace_id / "project"
        directory.mkdir(parents=True, exist_ok=True)
        return Space(self.http, self.origin, workspace_id, token, directory)

    @cached_property
    def _owner(self) -> str:
        """The token of the common owner of all programs: registration is slow by design."""
        return self.person()[1]

    @property
    def api(self) -> str:
        return f"{self.origin}/api/v1"


@contextmanager
def stage_in(directory: Path, urls: DatabaseUrls) -> Iterator[Stage]:
    """Starts a server on this database."""
    with scripted_model() as model:
        environment = {
            "TOOLCRIB_SEARXNG_URL": model.url,
            "TOOLCRIB_BRAVE_URL": f"{model.url}/res/v1/web/search",
            "TOOLCRIB_BRAVE_API_KEY": "brave-key",
            "MY_API_KEY": "secret-of-the-server",
        }
        with (
            serving(directory, urls, environment) as server,
            httpx2.Client(base_url=server.api, trust_env=False, timeout=PATIENCE) as http,
        ):
            yield Stage(server.origin, server.data_dir, model, server.jwt_secret, http)


@contextmanager
def fresh_database() -> Iterator[str]:
    """An empty database, dropped afterwards. Yields the URL of its owner."""
    name = f"toolcrib_clients_{secrets.token_hex(4)}"
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield url_for(name)
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


__all__ = ["Reply", "Socket", "Space", "Stage", "fresh_database", "stage_in"]
