"""Operator actions on accounts: list, disable, enable, set a password. With the system role, by email address."""

from dataclasses import dataclass
from datetime import datetime

from toolcrib.core.errors import NotFound
from toolcrib.core.ids import UserId
from toolcrib.storage.database import Connection, Database


@dataclass(frozen=True, slots=True)
class Account:
    """A user account, as an operator sees it."""

    user_id: UserId
    email: str
    full_name: str | None
    created_at: datetime
    disabled_at: datetime | None


class UserAdmin:
    """Queries on all accounts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> list[Account]:
        """Return all accounts in the order of their creation."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select id, email, full_name, created_at, disabled_at from toolcrib.users order by created_at, id"
            )
            return [Account(*row) for row in await cursor.fetchall()]

    async def disable(self, email: str) -> None:
        """End all logins, keys and tickets of a user at once, and block new logins until the account is enabled."""
        async with self._database.as_system() as connection, connection.transaction():
            user_id = await _user_id(connection, email)
            await connection.execute(
                "update toolcrib.users set disabled_at = coalesce(disabled_at, now()) where id = %s", (user_id,)
            )
            await _end_everything(connection, user_id)

    async def enable(self, email: str) -> None:
        """Allow a user to log in again. Ended logins and keys stay ended."""
        async with self._database.as_system() as connection, connection.transaction():
            user_id = await _user_id(connection, email)
            await connection.execute("update toolcrib.users set disabled_at = null where id = %s", (user_id,))

    async def set_password(self, email: str, password_hash: str) -> None:
        """Set a new password. Ends all logins made with the old one."""
        async with self._database.as_system() as connection, connection.transaction():
            user_id = await _user_id(connection, email)
            await connection.execute(
                "update toolcrib.users set password_hash = %s where id = %s", (password_hash, user_id)
            )
            await _end_everything(connection, user_id)


async def _user_id(connection: Connection, email: str) -> UserId:
    cursor = await connection.execute(
        "select id from toolcrib.users where email = lower(%s) for no key update", (email,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"There is no account {email}. `toolcrib user list` lists all accounts.")
    return UserId(row[0])


async def _end_everything(connection: Connection, user_id: UserId) -> None:
    await connection.execute(
        "update toolcrib.users set token_version = token_version + 1, logins_ended_at = now() where id = %s", (user_id,)
    )
    await connection.execute(
        "update toolcrib.refresh_tokens set revoked_at = now() where user_id = %s and revoked_at is null", (user_id,)
    )
    await connection.execute(
        "update toolcrib.api_keys set revoked_at = now() where user_id = %s and revoked_at is null", (user_id,)
    )
    await connection.execute("delete from toolcrib.connection_tickets where user_id = %s", (user_id,))
