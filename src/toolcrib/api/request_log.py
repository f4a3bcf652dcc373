"""Gives every request an id and a span, logs how it ended, counts it, and serves the metrics."""

import hmac
import re
import secrets
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import structlog
from pydantic import SecretStr
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import EventDict

from toolcrib.api.http_errors import answer_to
from toolcrib.core.errors import Unauthenticated
from toolcrib.runtime.traces import is_tracing, request_span

if TYPE_CHECKING:
    from toolcrib.api.server_metrics import ServerMetrics

log = structlog.get_logger(__name__)

METRICS_PATH: Final = "/metrics"
REQUEST_ID: Final = "X-Request-ID"
UNMATCHED: Final = "unmatched"
# In the scope of a request: the template of its path, if no route of the framework matched it.
ROUTE_KEY: Final = "toolcrib.route"
_ID_HEADER: Final = REQUEST_ID.lower().encode()
# Short and plain, so that a client cannot write what it likes into logs.
_ACCEPTED_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LONGEST_PATH: Final = 500
# Requested all the time by machines. Only failures are worth a line.
_PROBES: Final = frozenset({"/health", "/livez", "/readyz", METRICS_PATH})
_BEGINNINGS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_SWITCHING_PROTOCOLS: Final = 101
# As the web server answers a WebSocket that is closed before it is accepted.
_REFUSED_WEBSOCKET: Final = 403
_NO_RESPONSE: Final = 499


# Not structlog's own context, which takes ten times as long: every call pays for it.
_current_id: ContextVar[bytes | None] = ContextVar("request_id", default=None)


def add_request_id(_: object, __: str, event: EventDict) -> EventDict:
    """Add the id of the request that is being answered to a line of the log."""
    if (request_id := _current_id.get()) is not None:
        event["request_id"] = request_id.decode()
    return event


class RequestLog:
    """The ASGI layer around all others.

    Args:
        writes: Whether it writes the access log: a line for each request, without its query string and its headers.
        metrics: Counts requests. Without it, there is no ``/metrics``.
        metrics_token: Whoever sends it may read the metrics.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: Sequence[BaseRoute],
        writes: bool,
        metrics: "ServerMetrics | None" = None,
        metrics_token: SecretStr | None = None,
    ) -> None:
        self._app = app
        self._log = log.bind() if writes else None
        self._metrics = metrics
        self._authorization = f"Bearer {metrics_token.get_secret_value()}".encode() if metrics_token else b""
        # Starlette notes the endpoint of a request, and FastAPI also its route.
        self._templates: dict[Any, str] = {
            route.endpoint: route.path for route in routes if hasattr(route, "endpoint") and hasattr(route, "path")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began, request_id = time.perf_counter(), _request_id(scope)
        response = _Begun(began)

        async def send_with_id(message: Message) -> None:
            if message["type"] in _BEGINNINGS:
                response.note(message)
                message["headers"] = [*message.get("headers", ()), (_ID_HEADER, request_id)]
            elif message["type"] == "websocket.close" and response.status == _NO_RESPONSE:
                response.status = _REFUSED_WEBSOCKET
            await send(message)

        is_probe = scope["path"] in _PROBES
        token = _current_id.set(request_id)
        try:
            if self._metrics is not None and scope["type"] == "http" and scope["path"] == METRICS_PATH:
                await (await self._metrics_response(scope, self._metrics))(scope, receive, send_with_id)
            elif is_tracing() and scope["type"] == "http" and not is_probe:
                await self._traced(scope, receive, send_with_id, response)
            else:
                await self._app(scope, receive, send_with_id)
        finally:
            self._note(scope, response)
            _current_id.reset(token)

    async def _traced(self, scope: Scope, receive: Receive, send: Send, response: "_Begun") -> None:
        method = _method(scope)
        with request_span(method, scope["path"], scope["headers"]) as notes:
            await self._app(scope, receive, send)
            route = self._route(scope)
            notes.rename(f"{method} {route}")
            notes.note(http__route=route, http__response__status_code=response.status)
            if response.status >= 500:
                notes.fail(str(response.status))

    async def _metrics_response(self, scope: Scope, metrics: "ServerMetrics") -> Response:
        headers = dict(scope["headers"])
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
            return answer_to(
                Unauthenticated("Send TOOLCRIB_METRICS_TOKEN as a bearer token."), where=f"GET {METRICS_PATH}"
            )
        body, content_type = await metrics.render(headers.get(b"accept", b"").decode("latin-1"))
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    def _note(self, scope: Scope, response: "_Begun") -> None:
        path, route = scope["path"], self._route(scope)
        method = _method(scope)
        if self._metrics is not None:
            # The time until the response began, or until the client gave up.
            ended = response.at if response.status != _NO_RESPONSE else time.perf_counter()
            self._metrics.request_ended(route, method, response.status, ended - response.began)
        if self._log is None or (path in _PROBES and response.status < 400):
            return
        client = scope.get("client")
        self._log.info(
            "request",
            method=method,
            path=path[:_LONGEST_PATH],
            route=route,
            status=response.status,
            seconds=round(time.perf_counter() - response.began, 6),
            client=client[0] if client else None,
        )

    def _route(self, scope: Scope) -> str:
        """Return the template of the path, such as ``/api/v1/workspaces/{workspace_id}``."""
        if self._metrics is not None and scope["path"] == METRICS_PATH:
            return METRICS_PATH
        template = getattr(scope.get("route"), "path", None) or self._templates.get(scope.get("endpoint"))
        return template or scope.get(ROUTE_KEY, UNMATCHED)


class _Begun:
    """When a response began, and with which status; 499 if there was none, mostly because the client had gone."""

    __slots__ = ("at", "began", "status")

    def __init__(self, began: float) -> None:
        self.began = self.at = began
        self.status = _NO_RESPONSE

    def note(self, message: Message) -> None:
        self.at = time.perf_counter()
        self.status = message.get("status", _SWITCHING_PROTOCOLS)


def _method(scope: Scope) -> str:
    return str(scope["method"]) if scope["type"] == "http" else "WEBSOCKET"


def _request_id(scope: Scope) -> bytes:
    """Return the client's id of the request if it is plain, or a new one."""
    for name, value in scope["headers"]:
        if name == _ID_HEADER and _ACCEPTED_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
