"""A local HTTP server for responses that no proper library would give: late, endless, broken."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """Sends the body ``pieces`` times, ``pause`` seconds apart; ``stay`` keeps the connection open afterwards."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: int = 1
    pause: float = 0
    stay: bool = False


Handler = Callable[[Request], Awaitable[Reply]]


@dataclass
class Loopback:
    """A server that responds as ``handler`` defines, and keeps the requests and how much it could send."""

    handler: Handler
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    sent_bytes: int = 0
    answering: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def queries(self) -> list[str]:
        return [request.query.get("q", "") for request in self.requests]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)
        try:
            request = _parsed((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            self.requests.append(request)
            await self._send(await self.handler(request), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _send(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = len(reply.body) * reply.pieces + (1 if reply.stay else 0)
        headers = {"Content-Type": reply.content_type, "Content-Length": str(length), **reply.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{head}\r\n".encode("latin-1"))
        for _ in range(reply.pieces):
            writer.write(reply.body)
            await writer.drain()
            self.sent_bytes += len(reply.body)
            if reply.pause:
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), reply.pause)
        if reply.stay:
            await reader.read()


@asynccontextmanager
async def loopback(handler: Handler) -> AsyncIterator[Loopback]:
    served = Loopback(handler)
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    async with server:
        try:
            yield served
        finally:
            # Handlers that still hold a connection.
            for task in served.answering:
                task.cancel()
            await asyncio.gather(*served.answering, return_exceptions=True)


def _parsed(head: str) -> Request:
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    parts = urlsplit(target)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), headers)
