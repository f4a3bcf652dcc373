"""Requests to a Toolcrib server, and its refusals as the errors that they were on its side. Knows no route."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import httpx2

from toolcrib.domain.errors import (
    BadArguments,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
    ToolcribError,
    ToolFailed,
    Unauthenticated,
)

_ERRORS: Mapping[int, type[ToolcribError]] = {401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict}
_PAGE = 100
# A stream says every 15 s that it lives.
_STREAM_SECONDS = 45.0

Token = str | Callable[[], str] | None


class NoAnswer(ToolcribError):
    """Nobody answers at the address, or it is no Toolcrib."""

    code = "NO_ANSWER"


class Http:
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

    def close(self) -> None:
        self._client.close()

    def send(self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None) -> Any:
        """What the server answers; raises what it refuses."""
        try:
            response = self._client.request(method, path, json=body, params=query)
            told = response.json() if response.content else None
        except httpx2.TransportError as error:
            raise self._nobody(error) from None
        except ValueError:
            raise NoAnswer(f"{self._server} does not answer as Toolcrib does. Is the address right?") from None
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

    def stream(self, path: str, *, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The messages of a stream of server-sent events, until it ends."""
        timeout = httpx2.Timeout(_STREAM_SECONDS, connect=5)
        try:
            with self._client.stream("GET", path, params=query, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response.status_code, response.json())
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
        except httpx2.TransportError as error:
            raise self._nobody(error) from None

    def _nobody(self, error: Exception) -> NoAnswer:
        return NoAnswer(f"Nobody answers at {self._server} ({error}). Start `toolcrib serve`, or name another.")


class _Bearer(httpx2.Auth):
    def __init__(self, token: str | Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def _error(status: int, told: Any) -> ToolcribError:
    """The error that the server told, as it was on its side."""
    if not isinstance(told, Mapping):
        return ToolcribError(f"The server answered {status}.")
    message, fields = str(told.get("error") or f"The server answered {status}."), told.get("fields") or {}
    if status == 400 and fields:
        return BadArguments(fields, message)
    if told.get("code") in ("FORBIDDEN", None) or status != 403:
        return _ERRORS.get(status, ToolFailed)(message)
    return Refused(message)
