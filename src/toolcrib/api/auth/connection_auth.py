"""Authorization of long-lived connections: a token or key may expire or be revoked while they are open."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import HTTPConnection
from starlette.types import Receive

from toolcrib.api.access_tokens import EXPIRED
from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.principal import ACCESS_COOKIE, Principal, authenticate, bearer, principal_by_token
from toolcrib.core.errors import Unauthenticated
from toolcrib.storage.users import KEY_PREFIX


@dataclass(frozen=True, slots=True)
class ConnectionAuth:
    """A principal, the expiry of its token, and a way to check it again. Membership is checked elsewhere."""

    principal: Principal
    until: float
    _services: ApiServices = field(repr=False)
    _still_holds: Callable[[], Awaitable[bool]] | None = field(default=None, repr=False)

    @property
    def seconds_left(self) -> float:
        """Seconds until the token expires."""
        return self.until - time.time()

    async def wait(self, seconds: float) -> None:
        """Wait until the next check is due: after ``seconds``, at the expiry, or at once when the user's logins end."""
        await self._services.connection_limits.wait(self.principal.user_id, min(seconds, self.seconds_left))

    async def check(self) -> None:
        """Check that the credentials are still valid.

        Raises:
            Unauthenticated: The key was revoked, the token expired, or the user's logins were ended.
        """
        if self.seconds_left <= 0:
            raise Unauthenticated(EXPIRED)
        if self._still_holds is None:
            await self._services.accounts.require(self.principal.person)
        elif not await self._still_holds():
            raise Unauthenticated("This API key was revoked or has expired.")


async def auth_by_secret(services: ApiServices, token: str) -> ConnectionAuth:
    """Return the authorization of an access token or an API key."""
    principal = await principal_by_token(services, token)
    if not token.startswith(KEY_PREFIX):
        return ConnectionAuth(principal, services.tokens.verify(token).expires_at, services)

    async def still_holds() -> bool:
        return await services.keys.find(token) is not None

    return ConnectionAuth(principal, float("inf"), services, still_holds)


async def auth_by_headers(services: ApiServices, connection: HTTPConnection) -> ConnectionAuth:
    """Return the authorization of the Authorization header, otherwise of the cookie.

    Raises:
        Unauthenticated: The request has neither.
    """
    principal = await authenticate(connection)
    token = bearer(connection) or connection.cookies.get(ACCESS_COOKIE, "")
    if principal.via == "key":
        return await auth_by_secret(services, token)
    return ConnectionAuth(principal, services.tokens.verify(token).expires_at, services)


async def auth_by_ticket(services: ApiServices, secret: str) -> tuple[ConnectionAuth, object]:
    """Return the authorization of a ticket, which is used up, and the ticket's workspace."""
    ticket = await services.tickets.redeem(secret)
    principal = Principal(ticket.user_id, ticket.token_version, "ticket")
    return ConnectionAuth(principal, ticket.connection_expires_at.timestamp(), services), ticket.workspace_id


T = TypeVar("T")


async def run_while_connected(
    work: Coroutine[Any, Any, T], receive: Receive, *, authority: ConnectionAuth, check_seconds: float
) -> T | None:
    """Run ``work`` while the client stays connected and authorized.

    Returns:
        The result; None if the client disconnected or its token or key ended first, which cancels the work.
    """
    working = asyncio.create_task(work)
    watching = {asyncio.create_task(_gone(receive)), asyncio.create_task(_outlived(authority, check_seconds))}
    try:
        await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, *watching):
            task.cancel()
        await asyncio.gather(working, *watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _outlived(authority: ConnectionAuth, check_seconds: float) -> None:
    with suppress(Unauthenticated):
        while True:
            await authority.wait(check_seconds)
            await authority.check()
