"""The outermost ASGI layer: checks hosts, body sizes and load, adds headers, and answers uncaught errors.

One plain ASGI wrapper instead of a stack of middlewares, because every call pays for it.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from toolcrib.api.api_services import services_of
from toolcrib.api.auth.principal import ACCESS_COOKIE, Principal, authenticate, tenant_for, workspace_id_of
from toolcrib.api.http_errors import answer_to
from toolcrib.core.errors import BadArguments, Overloaded, TooLarge
from toolcrib.core.strict_json import SMALL_BYTES, check_json, strict_json
from toolcrib.runtime.worker_pool import in_worker


async def read_body(request: Request, principal: Principal) -> Any:
    """Parse the JSON body of an authenticated request. A large one is read only if the sender is a member."""
    if may_be_large(request):
        await admit_large(request, principal)
    return await read_json(await request.body())


async def read_json(body: bytes) -> Any:
    """Parse a JSON body with ``strict_json``. Large bodies are parsed in a worker process."""
    return strict_json(body) if len(body) <= SMALL_BYTES else await in_worker(strict_json, body)


async def reject_bad_json(body: bytes) -> None:
    """Check a body that a library will parse."""
    if len(body) > SMALL_BYTES:
        await in_worker(check_json, body)


def may_be_large(request: Request) -> bool:
    """Return whether the request may have a body that takes long to parse."""
    length = request.headers.get("content-length")
    if length is None or "transfer-encoding" in request.headers:
        return "transfer-encoding" in request.headers
    return not length.isdigit() or int(length) > SMALL_BYTES


async def admit_large(request: Request, principal: Principal | None = None) -> None:
    """Authenticate the sender and check their membership before a large body is read."""
    services = services_of(request)
    principal = principal or await authenticate(request, services)
    workspace_id = request.path_params.get("workspace_id")
    if workspace_id is not None:
        await services.workspaces.get(tenant_for(principal, workspace_id_of(workspace_id)))


class StrictRoute(APIRoute):
    """A route that parses its body with ``strict_json``, and accepts large bodies only from members."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            if may_be_large(request):
                await admit_large(request)
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


def limited(receive: Receive, max_bytes: int) -> Receive:
    """Return a ``receive`` that stops a body at ``max_bytes``, whatever its headers say."""
    total = 0

    async def receive_within() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > max_bytes:
            raise too_large(max_bytes)
        return message

    return receive_within


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that replays a body that was read already, then continues with the real one."""
    is_answered = False

    async def receive_again() -> Message:
        nonlocal is_answered
        if is_answered:
            return await receive()
        is_answered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def too_large(max_bytes: int) -> TooLarge:
    """Return the error for a body that is too large."""
    return TooLarge(f"The request body has more than {max_bytes:,} bytes, the limit.")


class _StrictRequest(Request):
    async def json(self) -> Any:
        return await read_json(await self.body())


_ANY_HOST: Final = "*"


class AllowedHosts:
    """The host names of this server. A request for another name comes from DNS that someone pointed at this address."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._names = frozenset(name.lower() for name in allowed)
        self._suffixes = tuple(name[1:].lower() for name in allowed if name.startswith("*."))

    def know(self, host: str) -> bool:
        """Return whether a Host header names this server. The port does not matter."""
        if _ANY_HOST in self._names:
            return True
        name = _without_port(host.lower())
        return name in self._names or (bool(self._suffixes) and name.endswith(self._suffixes))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


# Default response headers. The pages of the web UI have their own policy.
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)

_BEGINNINGS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


# Beyond this limit a request is rejected at once with a Retry-After, because waiting would not help.
_MAX_IN_FLIGHT: Final = 1_000
# Of one token or key, so that its owner does not use up the limit of all. Before authentication, which takes a query:
# who invents tokens is stopped by the limit of all, and by their connections' limits.
_MAX_OF_ONE: Final = 256
_COOKIE: Final = f"{ACCESS_COOKIE}=".encode()
_ALWAYS_ANSWERED: Final = frozenset({"/health", "/livez", "/readyz"})


class RequestGuard:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: AllowedHosts,
        max_request_bytes: int,
        max_in_flight: int = _MAX_IN_FLIGHT,
        max_of_one: int = _MAX_OF_ONE,
    ) -> None:
        self._app = app
        self._max_in_flight = max_in_flight
        self._max_of_one = max_of_one
        self._in_flight = 0
        self._by_credential: Counter[bytes] = Counter()
        self._hosts = hosts
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started = False
        # WebSockets are counted when they are accepted, and streams once they have started.
        counts = scope["type"] == "http" and scope["path"] not in _ALWAYS_ANSWERED
        credential = credential_of(scope) if counts else b""

        async def send_with_headers(message: Message) -> None:
            nonlocal started, counts
            if message["type"] in _BEGINNINGS:
                started = True
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                message["headers"] = [*message["headers"], *(one for one in _HEADERS if one[0] not in headers)]
                if counts and headers.get(b"content-type", b"").startswith(b"text/event-stream"):
                    counts = False
                    self._leave(credential)
            await send(message)

        if counts:
            self._enter(credential)
        try:
            if counts:
                self._require_room(credential)
            await self._app(scope, self._admit(scope, receive), send_with_headers)
        except Exception as error:
            if started:
                # The response has started already: the web server closes the connection.
                raise
            await _refuse(error, scope, receive, send_with_headers)
        finally:
            if counts:
                self._leave(credential)

    def _enter(self, credential: bytes) -> None:
        self._in_flight += 1
        self._by_credential[credential] += 1

    def _leave(self, credential: bytes) -> None:
        self._in_flight -= 1
        self._by_credential[credential] -= 1
        if not self._by_credential[credential]:
            del self._by_credential[credential]

    def _require_room(self, credential: bytes) -> None:
        if self._in_flight > self._max_in_flight:
            raise Overloaded("The server is at its limit of concurrent requests. Try again in a moment.")
        if credential and self._by_credential[credential] > self._max_of_one:
            raise Overloaded(
                f"{self._max_of_one} of your requests are being answered, the limit. Try again in a moment."
            )

    def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check the headers. A body of unknown length is measured while it is received."""
        host, length, is_chunked = "", None, False
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                is_chunked = True
        if not self._hosts.know(host):
            raise _strange_host(host)
        if length is None or is_chunked:
            return limited(receive, self._max_request_bytes)
        if not length.isdigit() or int(length) > self._max_request_bytes:
            raise too_large(self._max_request_bytes)
        return receive


def credential_of(scope: Scope) -> bytes:
    """Return the token or key of a request, however its header is spelled. It is not checked yet."""
    found = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value.partition(b" ")[2].strip())
        if name == b"cookie":
            found = next((one.strip() for one in value.split(b";") if one.strip().startswith(_COOKIE)), b"")
    return found


async def _refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await answer_to(error, where=f"{scope['method']} {scope['path']}")(scope, receive, send)
        return
    await WebSocket(scope, receive, send).send_denial_response(answer_to(error, where=f"WebSocket {scope['path']}"))


def _strange_host(host: str) -> BadArguments:
    return BadArguments(
        {"host": "Expected a host name from TOOLCRIB_ALLOWED_HOSTS"},
        f"{host!r} is not a host name of this server",
    )
