"""Requests to a Toolcrib server, and its refusals as the errors that they were on its side. Knows no route."""

import json
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import httpx2

from toolcrib.core.errors import (
    BadArguments,
    CallDenied,
    Conflict,
    Forbidden,
    NotFound,
    ToolcribError,
    ToolFailed,
    Unauthenticated,
)

_PAGE = 100
# A stream says every 15 s that it lives.
_STREAM = httpx2.Timeout(45.0, connect=5)

Token = str | Callable[[], str] | None


class ServerUnreachable(ToolcribError):
    """Nobody answers at the address, or it is no Toolcrib."""

    code = "NO_ANSWER"


class ServerUnavailable(ToolcribError):
    """The server answers, and cannot serve just now: its database is away, for example."""

    code = "UNAVAILABLE"


class HttpClient:
    """One server, and who speaks to it. ``token`` may be a function, which is asked for every request."""

    def __init__(self, server: str, token: Token, *, seconds: float = 30) -> None:
        self._server = server.rstrip("/")
        self._client = httpx2.Client(
            base_url=f"{self._server}/api/v1",
            auth=_Bearer(token) if token else None,
            timeout=httpx2.Timeout(seconds, connect=5),
            trust_env=False,
            # Reading the certificates takes a while, and an address without TLS asks for none.
            verify=not self._server.startswith("http://"),
        )
        self._streams: WeakSet[JsonStream] = WeakSet()

    def close(self) -> None:
        """Whoever reads a stream, in whichever thread, reads its end."""
        for stream in self._streams:
            stream.close()
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> Any:
        """What the server answers; raises what it refuses. ``content`` is sent as it is, in place of a JSON body."""
        try:
            if content is None:
                response = self._client.request(method, path, json=body, params=query)
            else:
                headers = {"Content-Type": "application/octet-stream"}
                response = self._client.request(method, path, content=content, params=query, headers=headers)
            told = response.json() if response.content else None
        except httpx2.TransportError as error:
            raise self._nobody(error) from None
        except ValueError:
            raise ServerUnreachable(f"{self._server} does not answer as Toolcrib does. Is the address right?") from None
        if response.is_success:
            return told
        raise _error(response.status_code, told)

    def all(self, path: str, *, page_by: str) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        query: dict[str, Any] = {"limit": _PAGE}
        while True:
            page = self.send("GET", path, query=query)
            yield from page["items"]
            if page.get("next") is None:
                return
            query[page_by] = page["next"]

    def stream(self, path: str, *, query: Mapping[str, Any]) -> "JsonStream":
        """The messages of a stream of server-sent events, until it ends."""
        wire = _StreamHandle()
        stream = JsonStream(wire, self._messages(path, query, wire))
        self._streams.add(stream)
        return stream

    def _messages(self, path: str, query: Mapping[str, Any], wire: "_StreamHandle") -> Iterator[dict[str, Any]]:
        try:
            with self._client.stream("GET", path, params=query, timeout=_STREAM) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response.status_code, response.json())
                wire.line = response.extensions["network_stream"].get_extra_info("socket")
                for line in response.iter_lines():
                    if wire.is_cut:
                        return
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
        except httpx2.TransportError as error:
            if not wire.is_cut:
                raise self._nobody(error) from None
        finally:
            wire.line = None

    def _nobody(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(
            f"Nobody answers at {self._server} ({error}). Start `toolcrib serve`, or name another."
        )


@dataclass(slots=True)
class _StreamHandle:
    """What a stream is read from, so that it can be cut from outside."""

    line: socket.socket | None = None
    is_cut: bool = False


class JsonStream(Iterator[dict[str, Any]]):
    """Messages as they come. ``close`` ends it for a thread that waits for the next."""

    def __init__(self, wire: _StreamHandle, messages: Iterator[dict[str, Any]]) -> None:
        self._wire = wire
        self._messages = messages

    def __next__(self) -> dict[str, Any]:
        return next(self._messages)

    def close(self) -> None:
        self._wire.is_cut = True
        if self._wire.line is not None:
            with suppress(OSError):
                self._wire.line.shutdown(socket.SHUT_RDWR)


class _Bearer(httpx2.Auth):
    def __init__(self, token: str | Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


_ERRORS: Mapping[int, type[ToolcribError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    503: ServerUnavailable,
}


def _error(status: int, told: Any) -> ToolcribError:
    """The error that the server told, as it was on its side."""
    if not isinstance(told, Mapping):
        return ToolcribError(f"The server answered {status}.")
    message, fields = str(told.get("error") or f"The server answered {status}."), told.get("fields") or {}
    if status == 400 and fields:
        return BadArguments(fields, message)
    if told.get("code") in ("FORBIDDEN", None) or status != 403:
        return _ERRORS.get(status, ToolFailed)(message)
    return CallDenied(message)
