"""The application behind a real web server, and clients that use WebSocket and SSE."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.wait_until import PATIENCE
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.core.events import Event
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.storage.database import Tenant
from toolcrib.storage.events import EventStore


@asynccontextmanager
async def listening(services: ApiServices) -> AsyncIterator[str]:
    """Yield the server's ``127.0.0.1:port``."""
    config = uvicorn.Config(
        create_app(services),
        lifespan="off",
        log_config=None,
        ws="websockets-sansio",
        ws_max_size=100_000,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@dataclass(frozen=True)
class Room:
    """A session of Ada's workspace, behind a server."""

    services: ApiServices
    address: str
    tenant: Tenant
    session_id: SessionId
    token: str

    @property
    def workspace_id(self) -> WorkspaceId:
        return self.tenant.workspace_id

    @property
    def url(self) -> str:
        return f"ws://{self.address}/api/v1/workspaces/{self.workspace_id}/ws"

    @property
    def http(self) -> str:
        return f"http://{self.address}/api/v1/workspaces/{self.workspace_id}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator["Client"]:
        """Connect a client, with Ada's token by default."""
        options.setdefault("additional_headers", self.headers)
        async with connect(self.url, proxy=None, **options) as socket_:
            yield Client(socket_, str(self.session_id))

    async def happens(self, type_: str = "message", **payload: Any) -> int:
        """Write an event of the session, as the engine does."""
        async with self.services.database.transaction(self.tenant) as connection:
            seq = await EventStore.append_within(connection, self.tenant, Event(self.session_id, type_, payload))
        self.services.live.notify(self.workspace_id, self.session_id)
        return seq


class Client:
    """A client of the chat protocol that keeps every message it received."""

    def __init__(self, socket_: ClientConnection, session_id: str) -> None:
        self.socket = socket_
        self.result: list[dict[str, Any]] = []
        self._session_id = session_id

    async def say(self, type_: str, /, **payload: Any) -> None:
        await self.socket.send(json.dumps({"type": type_, "payload": payload}))

    async def ask(self, type_: str, /, **payload: Any) -> dict[str, Any]:
        """Send a message and wait for its response."""
        await self.socket.send(json.dumps({"type": type_, "payload": payload, "id": len(self.result)}))
        mine = len(self.result)
        return await self.until(lambda message: message.get("id") == mine)

    async def resume(self, after: int = 0) -> dict[str, Any]:
        await self.say("chat:resume", conversationId=self._session_id, after=after)
        return await self.until_type("chat:resumed")

    async def call(self, tool: str, /, **args: Any) -> str:
        """Call a tool and return the call's id."""
        said = await self.ask("chat:tool-call", conversationId=self._session_id, tool=tool, args=args)
        assert said["type"] == "chat:ok", said
        return str(said["payload"]["toolId"])

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        self.result.append(message)
        return message

    async def until(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not done(message := await self.next()):
            pass
        return message

    async def until_type(self, type_: str) -> dict[str, Any]:
        return await self.until(lambda message: message["type"] == type_)

    async def until_seq(self, seq: int) -> dict[str, Any]:
        return await self.until(lambda message: message.get("seq") == seq)

    async def closed(self) -> tuple[int, str]:
        """Return the code and the reason with which the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.socket.recv()
                except ConnectionClosed as closed:
                    frame = closed.rcvd
                    return (frame.code, frame.reason) if frame else (0, "")

    @property
    def seqs(self) -> list[int]:
        return [message["seq"] for message in self.result if "seq" in message]
