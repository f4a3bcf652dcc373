"""Limits the requests of one login, API key or address by time, and says in headers how many are left."""

import math
import time
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from limits import parse
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.principal import ACCESS_COOKIE, bearer, principal_by_token
from toolcrib.api.http_errors import answer_to
from toolcrib.api.openai.openai_routes import error_response
from toolcrib.api.rate_limits import SharedRateLimiter, too_many
from toolcrib.core.errors import Unauthenticated
from toolcrib.storage.database import OperationalError
from toolcrib.storage.users import KEY_PREFIX, hashed

_NAME: Final = "requests"
_UNLIMITED: Final = frozenset({"/health", "/livez", "/readyz", "/metrics"})
_OPENAI: Final = "/v1/"
# An API key is looked up again after this.
_KNOWN_SECONDS: Final = 60.0
_MOST_KNOWN: Final = 4_096


class RateLimitedRequests:
    """Wraps the application: counts each request, and says in headers how many are left.

    A valid login counts for its user, a valid API key for itself, and everything else for its address.

    The headers are those of the IETF's draft "RateLimit header fields for HTTP", which has replaced the several
    `X-RateLimit-*` that mean different things: `RateLimit-Policy: "requests";q=600;w=60` is the limit and its seconds,
    `RateLimit: "requests";r=599;t=60` what is left and after how many seconds there is more.
    """

    def __init__(self, app: ASGIApp, services: ApiServices, limiter: SharedRateLimiter, *, per_minute: int) -> None:
        self._app = app
        self._callers = _Callers(services)
        self._limiter = limiter
        self._item = parse(f"{per_minute}/minute")
        self._policy = f'"{_NAME}";q={per_minute};w=60'.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNLIMITED:
            await self._app(scope, receive, send)
            return
        is_within, left, seconds = await self._count(scope)
        headers = [
            (b"ratelimit-policy", self._policy),
            (b"ratelimit", f'"{_NAME}";r={left};t={math.ceil(seconds)}'.encode()),
        ]

        is_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        if is_within:
            try:
                await self._app(scope, receive, send_with_headers)
            except Exception as error:
                if is_started:
                    raise
                await self._answer(error, scope, receive, send_with_headers)
            return
        refusal = too_many(f"Too many requests: {self._item.amount} a minute are allowed.", seconds)
        await self._answer(refusal, scope, receive, send_with_headers)

    async def _answer(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        respond = error_response if scope["path"].startswith(_OPENAI) else answer_to
        await respond(error, where=f"{scope['method']} {scope['path']}")(scope, receive, send)

    async def _count(self, scope: Scope) -> tuple[bool, int, float]:
        connection = HTTPConnection(scope)
        token = bearer(connection) or connection.cookies.get(ACCESS_COOKIE)
        caller = self._callers.known(token) if token else None
        if caller is None:
            # First by address: it costs a query to look an API key up.
            counted = await self._limiter.hit(self._item, _NAME, _address(scope))
            caller = await self._callers.find(token) if token and counted[0] else None
            if caller is None:
                return counted
        return await self._limiter.hit(self._item, _NAME, caller)


class _Callers:
    """Tells who sends a request. Only a credential that is valid counts: others can be invented without end."""

    def __init__(self, services: ApiServices, clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._clock = clock
        # By the hash of an API key: whose it is, and until when that is believed.
        self._known: dict[bytes, tuple[str, float]] = {}

    def known(self, token: str) -> str | None:
        """Return who has this token, as far as it can be told without a query."""
        if token.startswith(KEY_PREFIX):
            caller, until = self._known.get(hashed(token), ("", 0.0))
            return caller if self._clock() < until else None
        try:
            return f"user {self._services.tokens.verify(token).user_id}"
        except Unauthenticated:
            return None

    async def find(self, token: str) -> str | None:
        """Return who has this token. An API key is looked up."""
        if not token.startswith(KEY_PREFIX):
            return None
        try:
            principal = await principal_by_token(self._services, token)
        except (Unauthenticated, OperationalError):
            return None
        caller, key = f"key {principal.key_id}", hashed(token)
        self._known.pop(key, None)
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key] = (caller, self._clock() + _KNOWN_SECONDS)
        return caller


def _address(scope: Scope) -> str:
    """Return the address of a request. Of IPv6 it is the network, in which one machine has many addresses."""
    client = scope.get("client")
    if not client:
        return "ip"
    try:
        address = ip_address(client[0])
    except ValueError:
        return f"ip {client[0]}"
    if isinstance(address, IPv6Address):
        return f"ip {address.ipv4_mapped or IPv6Network((int(address), 64), strict=False)}"
    return f"ip {address}"
