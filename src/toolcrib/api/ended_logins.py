"""Notifies open connections when a user's logins end: on logout, or when an operator disables the account."""

import asyncio
from datetime import datetime
from typing import Final

import structlog

from toolcrib.api.connection_limits import ConnectionLimits
from toolcrib.storage.database import OperationalError
from toolcrib.storage.users import UserStore

_POLL_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class EndedLogins:
    """Polls the database once for all connections of this node.

    A notified connection then checks its own authorization.
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
                log.warning("ended_logins.poll_failed", error=repr(error))

    async def poll(self) -> None:
        """Poll once."""
        if self._connection_limits.is_anyone_waiting:
            self._since, gone = await self._accounts.ended_since(self._since)
            self._connection_limits.wake(gone)
