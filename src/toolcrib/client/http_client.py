"""HTTP requests to a Toolcrib server; converts error responses to the server's errors. Independent of the routes."""

import json
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
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

    def close(self) -> None:
        """Close the client. Open streams end, in whichever thread they are read."""
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
        try:
            if content is None:
                response = self._client.request(method, path, json=body, params=params)
            else:
                headers = {"Content-Type": "application/octet-stream"}
                response = self._client.request(method, path, content=content, params=params, headers=headers)
            data = response.json() if response.content else None
        except httpx2.TransportError as error:
            raise self._nobody(error) from None
        except ValueError:
            raise ServerUnreachable(f"{self._server} is not a Toolcrib server. Check the address.") from None
        if response.is_success:
            return data
        raise _error(response.status_code, data)

    def send_streamed(
        self, path: str, body: Any, on_output: Callable[[str], None], handle: "StreamHandle | None" = None
    ) -> Any:
        """Post a request that may take long. Passes on what the server shows meanwhile, and returns the response.

        The server sends a sign of life every few seconds, so that no work is too long. Closing the ``handle`` ends the
        request, which then raises ``ServerUnreachable``, and the work.
        """
        wire = handle or StreamHandle()
        headers, ended = {"Accept": "text/event-stream"}, None
        try:
            with self._client.stream("POST", path, json=body, headers=headers, timeout=_STREAM) as response:
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    response.read()
                    ended = {"status": response.status_code, "body": response.json()}
                wire.open(response.extensions["network_stream"].get_extra_info("socket"))
                for line in response.iter_lines() if ended is None else ():
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
        if ended["status"] >= 400:
            raise _error(ended["status"], ended["body"])
        return ended["body"]

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
            f"Cannot connect to {self._server} ({error}). Start `toolcrib serve`, or use another server."
        )


@dataclass(slots=True)
class StreamHandle:
    """The socket of a stream, so that it can be closed from another thread."""

    line: socket.socket | None = None
    is_cut: bool = False

    def open(self, line: socket.socket) -> None:
        """Keep the socket; one that was closed before it was opened ends at once."""
        self.line = line
        if self.is_cut:
            self.close()

    def close(self) -> None:
        """End the stream, in whichever thread it is read."""
        self.is_cut = True
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
