"""The outermost layer: refuses strange hosts and endless bodies, adds headers, tells what nobody caught.

One plain ASGI wrapper rather than a stack of middlewares: every call pays for it.
"""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.domain.errors import BadArguments
from toolcrib.server.bodies import limited, too_large
from toolcrib.server.errors import answer_to
from toolcrib.server.hosts import Hosts

# For answers that do not say otherwise: the pages of a user interface have a policy of their own.
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts, max_request_bytes: int) -> None:
        self._app = app
        self._hosts = hosts
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message)
            await send(message)

        try:
            await self._app(scope, self._admit(scope, receive), send_with_headers)
        except Exception as error:
            if started or scope["type"] != "http":
                # Too late for an answer, or no place for one: the web server ends the connection.
                raise
            await answer_to(error, where=f"{scope['method']} {scope['path']}")(scope, receive, send_with_headers)

    def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Refuses by what the headers say; a body whose length they do not say is measured as it comes."""
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


def _add_headers(message: Message) -> None:
    headers = message["headers"]
    said = {name for name, _ in headers}
    message["headers"] = [*headers, *(header for header in _HEADERS if header[0] not in said)]


def _strange_host(host: str) -> BadArguments:
    return BadArguments(
        {"host": "Expected a name that the operator lists in TOOLCRIB_ALLOWED_HOSTS"},
        f"{host!r} is not a name of this server",
    )
