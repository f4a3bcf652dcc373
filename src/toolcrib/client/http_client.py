"""HTTP requests to a Toolcrib server; converts error responses to the server's errors. Independent of the routes."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import httpx2
from pydantic import BaseModel

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
# How long one request may wait for a server that is overloaded.
_LONGEST_SECONDS = 30.0
# Error codes of requests that the server has not begun.
_NOT_BEGUN = frozenset({"OVERLOADED", "QUARANTINED"})
# A stream has a heartbeat every 15 s.
_STREAM = httpx2.Timeout(45.0, connect=5)

Token = str | Callable[[], str] | None
ModelT = TypeVar("ModelT", bound=BaseModel)


class ServerUnreachable(ToolcribError):
    """The URL does not answer, or it is not a Toolcrib server."""

    code = "NO_ANSWER"


class ServerUnavailable(ToolcribError):
    """The server answers but cannot serve at the moment, for example because its database is unavailable."""

    code = "UNAVAILABLE"


class HttpClient:
    """One server and its credentials. ``token`` may be a function, which is called for every request."""

    def __init__(self, server: str, token: Token, *, seconds: float = 30) -> None:
        self._server = server.rstrip("/")
        self._client = httpx2.Client(
            base_url=f"{self._server}/api/v1",
            auth=_Bearer(token) if token else None,
            timeout=httpx2.Timeout(seconds, connect=5),
            trust_env=False,
            # Loading the certificates takes a while, and a URL without TLS needs none.
            verify=not self._server.startswith("http://"),
        )
        self._streams: WeakSet[MessageStream[Any]] = WeakSet()
        self._closed = threading.Event()

    def close(self) -> None:
        """Close the client. Open streams end, in whichever thread they are read."""
        self._closed.set()
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
        """Send a request and return the response's JSON.

        Args:
            query: Parameters of the URL. None leaves one out.
            content: Raw bytes to send instead of a JSON body.

        Raises:
            ServerUnreachable: There is no answer, or it does not come from a Toolcrib server.
            ToolcribError: The server reported an error.
        """
        params = {name: value for name, value in (query or {}).items() if value is not None}
        given: dict[str, Any] = {"params": params, "json": body}
        if content is not None:
            given = {"params": params, "content": content, "headers": {"Content-Type": "application/octet-stream"}}
        patience = _Patience(self._closed)
        while True:
            try:
                response = self._client.request(method, path, **given)
                data = response.json() if response.content else None
            except httpx2.TransportError as error:
                raise self._nobody(error) from None
            except ValueError:
                raise ServerUnreachable(f"{self._server} is not a Toolcrib server. Check the address.") from None
            if response.is_success:
                return data
            if not patience.waited(method, response.status_code, response.headers, data):
                raise _error(response.status_code, data)

    def send_streamed(
        self, path: str, body: Any, on_output: Callable[[str], None], handle: "StreamHandle | None" = None
    ) -> Any:
        """Post a request that may take long. Passes on what the server shows meanwhile, and returns the response.

        The server sends a sign of life every few seconds, so that no work is too long. Closing the ``handle`` ends the
        request, which then raises ``ServerUnreachable``, and the work.
        """
        wire = handle or StreamHandle()
        patience = _Patience(wire.cut)
        while True:
            ended = self._streamed(path, body, on_output, wire)
            if ended["status"] < 400:
                return ended["body"]
            if not patience.waited("POST", ended["status"], ended.get("headers", {}), ended["body"]):
                raise _error(ended["status"], ended["body"])

    def _streamed(self, path: str, body: Any, on_output: Callable[[str], None], wire: "StreamHandle") -> dict[str, Any]:
        """Return status and body of the response, and its headers unless it was a stream."""
        headers, ended = {"Accept": "text/event-stream"}, None
        try:
            with self._client.stream("POST", path, json=body, headers=headers, timeout=_STREAM) as response:
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    response.read()
                    ended = {"status": response.status_code, "body": response.json(), "headers": response.headers}
                wire.open(response.extensions["network_stream"].get_extra_info("socket"))
                for line in _lines(response) if ended is None else ():
                    message = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
                    if message.get("type") == "output":
                        on_output(message["payload"]["text"])
                    elif message.get("type") == "end":
                        ended = message["payload"]
        except httpx2.TransportError as error:
            raise self._nobody(error) from None
        finally:
            wire.line = None
        if ended is None:
            raise ServerUnreachable(f"{self._server} closed the connection before it answered.")
        return ended

    def fetch(self, kind: type[ModelT], method: str, path: str, body: Any = None, **options: Any) -> ModelT:
        """Send a request like ``send`` and return the response as a wire type."""
        return _parse(kind, self.send(method, path, body, **options))

    def page(self, kind: type[ModelT], path: str, **query: Any) -> list[ModelT]:
        """Return the first items of a list."""
        return [_parse(kind, item) for item in self.send("GET", path, query=query)["items"]]

    def all(self, path: str, *, page_by: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield every item of a list, page by page."""
        query = {"limit": _PAGE, **query}
        while True:
            page = self.send("GET", path, query=query)
            yield from page["items"]
            if page.get("next") is None:
                return
            query[page_by] = page["next"]

    def stream(self, kind: type[ModelT], path: str, **query: Any) -> "MessageStream[ModelT]":
        """Return the messages of a stream of server-sent events."""
        wire = StreamHandle()
        stream = MessageStream(wire, (_parse(kind, message) for message in self._messages(path, query, wire)))
        self._streams.add(stream)
        return stream

    def _messages(self, path: str, query: Mapping[str, Any], wire: "StreamHandle") -> Iterator[dict[str, Any]]:
        try:
            with self._client.stream("GET", path, params=query, timeout=_STREAM) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response.status_code, response.json())
                wire.open(response.extensions["network_stream"].get_extra_info("socket"))
                for line in _lines(response):
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
            f"Cannot connect to {self._server} ({error}). Start `toolcrib serve`, or use another server."
        )


class _Patience:
    """The waits of one request to a server that is overloaded: as long as it asks for, within a limit."""

    def __init__(self, ended: threading.Event) -> None:
        """``ended`` ends a wait early: nobody wants the response any more."""
        self._until = time.monotonic() + _LONGEST_SECONDS
        self._ended = ended

    def waited(self, method: str, status: int, headers: Mapping[str, str], data: Any) -> bool:
        """Wait if the request can be repeated as it is, and return whether it can.

        A request that may have had an effect is not repeated: the database may have been lost after it.
        """
        code = data.get("code") if isinstance(data, Mapping) else None
        if not (code in _NOT_BEGUN or (method == "GET" and status in (429, 503))):
            return False
        asked = headers.get("retry-after", "1")
        seconds = float(asked) if asked.isdigit() else 1.0
        # Not all clients at the same moment.
        seconds *= 1 + random.random() / 2  # noqa: S311 - no secret
        if time.monotonic() + seconds > self._until:
            return False
        return not self._ended.wait(seconds)


@dataclass(slots=True)
class StreamHandle:
    """The socket of a stream, so that it can be closed from another thread."""

    line: socket.socket | None = None
    cut: threading.Event = field(default_factory=threading.Event)

    @property
    def is_cut(self) -> bool:
        """Whether it was closed."""
        return self.cut.is_set()

    def open(self, line: socket.socket) -> None:
        """Keep the socket; one that was closed before it was opened ends at once."""
        self.line = line
        if self.is_cut:
            self.close()

    def close(self) -> None:
        """End the stream, in whichever thread it is read."""
        self.cut.set()
        if self.line is not None:
            with suppress(OSError):
                self.line.shutdown(socket.SHUT_RDWR)


class MessageStream(Iterator[ModelT], Generic[ModelT]):
    """The messages of a stream. ``close`` ends it for a thread that waits for the next message."""

    def __init__(self, wire: StreamHandle, messages: Iterator[ModelT]) -> None:
        self._wire = wire
        self._messages = messages

    def __next__(self) -> ModelT:
        return next(self._messages)

    def close(self) -> None:
        """End the stream."""
        self._wire.close()


class _Bearer(httpx2.Auth):
    def __init__(self, token: str | Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def _lines(response: httpx2.Response) -> Iterator[str]:
    r"""Yield the lines of a stream of server-sent events.

    Not ``iter_lines``: it also breaks lines at characters that stand unescaped in JSON, such as U+2028 and U+0085, so
    that a message with one of them could not be read.
    """
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode()


def _parse(kind: type[ModelT], data: Any) -> ModelT:
    # A newer server may add fields, also to types that must have no others in requests.
    return kind.model_validate(data, extra="ignore")


_ERRORS: Mapping[int, type[ToolcribError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    503: ServerUnavailable,
}


def _error(status: int, data: Any) -> ToolcribError:
    """Convert an error response to the error that the server raised."""
    if not isinstance(data, Mapping):
        return ToolcribError(f"The server responded with status {status}.")
    message, fields = str(data.get("error") or f"The server responded with status {status}."), data.get("fields") or {}
    if status == 400 and fields:
        return BadArguments(fields, message)
    if data.get("code") in ("FORBIDDEN", None) or status != 403:
        return _ERRORS.get(status, ToolFailed)(message)
    return CallDenied(message)
