"""Authorization of long-lived connections: a token or key may expire or be revoked while they are open."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog
from starlette.requests import HTTPConnection
from starlette.types import Receive

from toolcrib.api.access_tokens import EXPIRED
from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.principal import (
    ACCESS_COOKIE,
    Principal,
    authenticate,
    bearer,
    principal_by_token,
    require_person,
    tenant_for,
)
from toolcrib.api.connection_limits import ConnectionLimits
from toolcrib.core.errors import Forbidden, Unauthenticated
from toolcrib.storage.database import NOT_A_MEMBER, OperationalError
from toolcrib.storage.users import UserStore

_POLL_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


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

    @property
    def is_closing(self) -> bool:
        """Whether the server closes its connections."""
        return self._services.connection_limits.is_closed

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


async def authenticate_connection(
    services: ApiServices, workspace_id: UUID, *, token: str | None = None, ticket: str | None = None
) -> ConnectionAuth:
    """Return the authorization of a member's access token, API key or ticket. The ticket is used up."""
    if ticket is None:
        return await require_member(services, await auth_by_secret(services, token or ""), workspace_id)
    redeemed = await services.tickets.redeem(ticket)
    if redeemed.workspace_id != workspace_id:
        raise Forbidden(NOT_A_MEMBER)
    principal = Principal(redeemed.user_id, redeemed.token_version, "ticket")
    authority = ConnectionAuth(principal, redeemed.connection_expires_at.timestamp(), services)
    return await require_member(services, authority, workspace_id)


async def require_member(services: ApiServices, authority: ConnectionAuth, workspace_id: UUID) -> ConnectionAuth:
    """Return the authorization if it belongs to a person who is a member of the workspace."""
    await require_person(authority.principal)
    await services.workspaces.get(tenant_for(authority.principal, workspace_id))
    return authority


async def auth_by_headers(services: ApiServices, connection: HTTPConnection) -> ConnectionAuth:
    """Return the authorization of the Authorization header, otherwise of the cookie.

    Raises:
        Unauthenticated: The request has neither.
    """
    principal = await authenticate(connection, services)
    return _authority(services, principal, bearer(connection) or connection.cookies.get(ACCESS_COOKIE, ""))


async def auth_by_secret(services: ApiServices, token: str) -> ConnectionAuth:
    """Return the authorization of an access token or an API key."""
    return _authority(services, await principal_by_token(services, token), token)


def _authority(services: ApiServices, principal: Principal, token: str) -> ConnectionAuth:
    if principal.via != "key":
        return ConnectionAuth(principal, services.tokens.verify(token).expires_at, services)

    async def still_holds() -> bool:
        return await services.keys.find(token) is not None

    return ConnectionAuth(principal, float("inf"), services, still_holds)


T = TypeVar("T")


async def run_while_connected(
    work: Coroutine[Any, Any, T], receive: Receive, *, authority: ConnectionAuth, check_seconds: float
) -> T | None:
    """Run ``work`` while the client stays connected and authorized.

    Returns:
        The result; None if the client disconnected, its token or key ended, or the server closes its connections
        first, which cancels the work.
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
        while not authority.is_closing:
            await authority.wait(check_seconds)
            await authority.check()


class EndedLogins:
    """Notifies open connections when a user's logins end: on logout, or when an operator disables the account.

    Polls the database once for all connections of this node. A notified connection then checks its own authorization.
    """

    def __init__(self, accounts: UserStore, connection_limits: ConnectionLimits) -> None:
        self._accounts = accounts
        self._connection_limits = connection_limits
        self._since: datetime | None = None

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self.poll()
            except OperationalError as error:
                _log.warning("ended_logins.poll_failed", error=repr(error))
            except Exception as error:  # noqa: BLE001 - no other task here notices ended logins, so this loop must not end
                _log.error("ended_logins.poll_failed", exc_info=error)

    async def poll(self) -> None:
        """Poll once."""
        if self._connection_limits.is_anyone_waiting:
            self._since, gone = await self._accounts.ended_since(self._since)
            self._connection_limits.wake(gone)
