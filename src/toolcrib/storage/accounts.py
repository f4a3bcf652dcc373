"""People and their logins. Their API keys are in ``keys``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg.errors import UniqueViolation

from toolcrib.domain.errors import Conflict, Unauthenticated
from toolcrib.domain.ids import UserId, new_id
from toolcrib.storage.database import Connection, Database
from toolcrib.storage.secrets import REFRESH_PREFIX, hashed, new_secret


@dataclass(frozen=True, slots=True)
class Person:
    """Someone acting for themselves, outside any workspace, by a token of this version."""

    user_id: UserId
    token_version: int | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """What is known of an address before its password was checked."""

    user_id: UserId
    email: str
    full_name: str | None
    password_hash: str
    token_version: int


@dataclass(frozen=True, slots=True)
class Profile:
    user_id: UserId
    email: str
    full_name: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A login that goes on: whose it is, and the token that continues it."""

    user_id: UserId
    token_version: int
    secret: str


@asynccontextmanager
async def acting(database: Database, person: Person) -> AsyncIterator[Connection]:
    """A transaction for what is a person's own; Unauthenticated if this token was ended."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute("select toolcrib.enter(%s, %s, null, null)", (person.user_id, person.token_version))
        yield connection


class Accounts:
    """Queries on users and refresh tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # People

    async def create_user(self, *, email: str, full_name: str | None, password_hash: str) -> Profile:
        user_id = UserId(new_id())
        try:
            async with self._database.personal(user_id) as connection:
                cursor = await connection.execute(
                    """
                    insert into toolcrib.users (id, email, full_name, password_hash) values (%s, %s, %s, %s)
                    returning id, email, full_name, created_at
                    """,
                    (user_id, email, full_name, password_hash),
                )
                row = await cursor.fetchone()
        except UniqueViolation:
            raise Conflict(f"An account for {email} exists already. Log in instead.") from None
        assert row is not None
        return Profile(*row)

    async def find_login(self, email: str) -> Login | None:
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                "select id, email, full_name, password_hash, token_version from toolcrib.find_login(%s)",
                (email,),
            )
            row = await cursor.fetchone()
        return Login(*row) if row else None

    async def profile(self, person: Person) -> Profile:
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                "select id, email, full_name, created_at from toolcrib.users where id = %s", (person.user_id,)
            )
            row = await cursor.fetchone()
        assert row is not None, "acting() lets in only those who exist"
        return Profile(*row)

    async def end_all_tokens(self, person: Person) -> None:
        """Ends every login of a person, on every device, at once. Their API keys live on."""
        async with acting(self._database, person) as connection:
            await connection.execute(
                "update toolcrib.users set token_version = token_version + 1 where id = %s", (person.user_id,)
            )
            await connection.execute(
                """
                update toolcrib.refresh_tokens set revoked_at = now()
                where user_id = %s and revoked_at is null
                """,
                (person.user_id,),
            )

    # Refresh tokens

    async def store_refresh_token(self, user_id: UserId, *, lifetime: timedelta) -> str:
        """Begins a family of refresh tokens, one for each login, and returns its first."""
        async with self._database.personal(user_id) as connection:
            return await _insert_refresh_token(connection, user_id, family_id=new_id(), lifetime=lifetime)

    async def rotate_refresh_token(self, secret: str, *, lifetime: timedelta) -> Refreshed:
        """Spends a token for its successor. One that comes a second time was stolen, and ends its family."""
        async with self._database.connection() as connection, connection.transaction():
            refreshed = await _rotate(connection, secret, lifetime)
        # Raised only now: within the transaction it would undo the revoking.
        if refreshed is None:
            raise Unauthenticated("This refresh token is not valid, or no longer. Log in again.")
        return refreshed

    async def revoke_family(self, secret: str) -> None:
        """Ends the login that a token came of. An unknown token is no error: there is nothing to end."""
        async with self._database.connection() as connection, connection.transaction():
            cursor = await connection.execute(
                "select family_id from toolcrib.find_refresh_token(%s)", (hashed(secret),)
            )
            row = await cursor.fetchone()
            if row is not None:
                await connection.execute("select toolcrib.revoke_family(%s)", row)


async def _rotate(connection: Connection, secret: str, lifetime: timedelta) -> Refreshed | None:
    # The row stays locked until we commit: of two that come with one token, the second finds it used.
    cursor = await connection.execute(
        """
        select id, user_id, family_id, token_version,
               used_at is not null or revoked_at is not null, expires_at <= now()
        from toolcrib.find_refresh_token(%s)
        """,
        (hashed(secret),),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    token_id, user_id, family_id, token_version, is_spent, is_expired = row
    if is_spent:
        await connection.execute("select toolcrib.revoke_family(%s)", (family_id,))
        return None
    if is_expired:
        return None
    await connection.execute("select toolcrib.act_as(%s)", (user_id,))
    await connection.execute("update toolcrib.refresh_tokens set used_at = now() where id = %s", (token_id,))
    successor = await _insert_refresh_token(connection, user_id, family_id=family_id, lifetime=lifetime)
    return Refreshed(user_id, token_version, successor)


async def _insert_refresh_token(
    connection: Connection, user_id: UserId, *, family_id: UUID, lifetime: timedelta
) -> str:
    secret = new_secret(REFRESH_PREFIX)
    await connection.execute(
        """
        insert into toolcrib.refresh_tokens (id, user_id, family_id, secret_hash, expires_at)
        values (%s, %s, %s, %s, %s)
        """,
        (new_id(), user_id, family_id, hashed(secret), datetime.now(UTC) + lifetime),
    )
    return secret
