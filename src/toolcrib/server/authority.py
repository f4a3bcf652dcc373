"""By what a long connection stays open, and for how long. A request is over before that can matter."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from toolcrib.domain.errors import Unauthenticated
from toolcrib.server import cookies
from toolcrib.server.auth import Principal, authenticate, bearer, by_token
from toolcrib.server.services import Services
from toolcrib.server.tokens import EXPIRED
from toolcrib.storage.secrets import KEY_PREFIX


@dataclass(frozen=True, slots=True)
class Authority:
    """Who it is, until when, and how to find out whether that still holds. Membership is asked elsewhere."""

    principal: Principal
    until: float
    _still_holds: Callable[[], Awaitable[bool]] | None = field(default=None, repr=False)

    @property
    def seconds_left(self) -> float:
        return self.until - time.time()

    async def check(self) -> None:
        """Unauthenticated once it has ended: a token by its time, a key by being revoked."""
        if self.seconds_left <= 0:
            raise Unauthenticated(EXPIRED)
        if self._still_holds is not None and not await self._still_holds():
            raise Unauthenticated("This API key is not valid any more.")


async def by_secret(services: Services, token: str) -> Authority:
    """The authority of an access token or an API key."""
    principal = await by_token(services, token)
    if not token.startswith(KEY_PREFIX):
        return Authority(principal, services.tokens.verify(token).expires_at)

    async def still_holds() -> bool:
        return await services.keys.find(token) is not None

    return Authority(principal, float("inf"), still_holds)


async def by_headers(services: Services, connection: HTTPConnection) -> Authority:
    """The authority of the Authorization header, or else of the cookie; Unauthenticated if there is neither."""
    principal = await authenticate(connection)
    token = bearer(connection) or connection.cookies.get(cookies.ACCESS, "")
    if principal.via == "key":
        return await by_secret(services, token)
    return Authority(principal, services.tokens.verify(token).expires_at)


async def by_ticket(services: Services, secret: str) -> tuple[Authority, object]:
    """The authority of a ticket, which is spent by this, and the workspace that it leads to."""
    ticket = await services.tickets.redeem(secret)
    principal = Principal(ticket.user_id, ticket.token_version, "ticket")
    return Authority(principal, ticket.valid_until.timestamp()), ticket.workspace_id
