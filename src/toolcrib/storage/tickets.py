"""Tickets: single-use secrets by which a client opens a connection that cannot carry a header."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from toolcrib.domain.errors import Unauthenticated
from toolcrib.domain.ids import UserId, WorkspaceId
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.secrets import TICKET_PREFIX, hashed, new_secret

LIFETIME: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Redeemed:
    """Whose ticket it was, where it leads, and how long the connection may last."""

    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId
    valid_until: datetime


class Tickets:
    """Queries on tickets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, tenant: Tenant, *, valid_until: datetime) -> str:
        """A ticket into this workspace, for who asks and nobody else. It can be shown once and used once."""
        secret = new_secret(TICKET_PREFIX)
        async with self._database.transaction(tenant) as connection:
            # Whoever makes one sweeps up their own that nobody used.
            await connection.execute(
                "delete from toolcrib.tickets where workspace_id = %s and user_id = %s and expires_at <= now()",
                (tenant.workspace_id, tenant.user_id),
            )
            await connection.execute(
                """
                insert into toolcrib.tickets
                    (secret_hash, workspace_id, user_id, token_version, expires_at, valid_until)
                select %s, %s, u.id, u.token_version, %s, %s from toolcrib.users u where u.id = %s
                """,
                (hashed(secret), tenant.workspace_id, datetime.now(UTC) + LIFETIME, valid_until, tenant.user_id),
            )
        return secret

    async def redeem(self, secret: str) -> Redeemed:
        """Spends a ticket; Unauthenticated if it is unknown, spent or too old."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                "select user_id, token_version, workspace_id, valid_until from toolcrib.redeem_ticket(%s)",
                (hashed(secret),),
            )
            row = await cursor.fetchone()
        if row is None or row[3] is None:
            raise Unauthenticated("This ticket is not valid, or no longer. Fetch a new one; it opens one connection.")
        return Redeemed(*row)
