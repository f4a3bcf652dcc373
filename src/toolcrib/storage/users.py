"""Users, their logins and refresh tokens, and tickets. API keys are in ``api_keys``."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

from psycopg.errors import UniqueViolation

from toolcrib.core.errors import Conflict, Forbidden, Unauthenticated
from toolcrib.core.ids import UserId, WorkspaceId, new_id
from toolcrib.storage.database import Connection, Database, Tenant

# Prefixes of the secrets that the server issues. Each is shown once and stored as a hash.

REFRESH_PREFIX = "tcr_"
KEY_PREFIX = "tck_"
TICKET_PREFIX = "tct_"
INVITATION_PREFIX = "tci_"


def new_secret(prefix: str) -> str:
    """Create a random secret."""
    return prefix + secrets.token_urlsafe(32)


def hashed(secret: str) -> bytes:
    """Hash a secret. A fast hash is enough: 32 random bytes cannot be guessed, unlike a password."""
    return sha256(secret.encode()).digest()


_NO_TIME = timedelta()


@dataclass(frozen=True, slots=True)
class ActingUser:
    """A person acting for themselves, outside any workspace, with a token of this version."""

    user_id: UserId
    token_version: int | None = None


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """The stored login of an email address, before its password is checked."""

    user_id: UserId
    email: str
    full_name: str | None
    password_hash: str
    token_version: int


@dataclass(frozen=True, slots=True)
class UserProfile:
    """A user's own account."""

    user_id: UserId
    email: str
    full_name: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RefreshedLogin:
    """A continued login: its user, and the new refresh token."""

    user_id: UserId
    token_version: int
    secret: str


@asynccontextmanager
async def acting(database: Database, person: ActingUser) -> AsyncIterator[Connection]:
    """Open a transaction for a person's own rows.

    Raises:
        Unauthenticated: The token was revoked.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(
            "select toolcrib.enter_workspace(%s, %s, null, null)", (person.user_id, person.token_version)
        )
        yield connection


class UserStore:
    """Queries on users and refresh tokens."""

    def __init__(self, database: Database, *, bound_to: str = "") -> None:
        """Create the store. Logins with a ``bound_to`` value can be continued only with the same value."""
        self._database = database
        self._bound_to = bound_to

    # Users

    async def create_user(self, *, email: str, full_name: str | None, password_hash: str) -> UserProfile:
        """Create an account."""
        user_id = UserId(new_id())
        async with self._database.as_user(user_id) as connection:
            return await insert_user(connection, user_id, email, full_name, password_hash)

    async def create_first_user(self, *, email: str, full_name: str | None, password_hash: str) -> UserProfile:
        """Create the very first account.

        Raises:
            Forbidden: There is one already.
        """
        user_id = UserId(new_id())
        async with self._database.as_user(user_id) as connection:
            # Of two concurrent requests the second waits here, and then finds the first.
            await connection.execute("select pg_advisory_xact_lock(hashtext('toolcrib.first_user'))")
            if await _anyone(connection):
                raise Forbidden("This setup link was already used: the first account exists. Log in instead.")
            return await insert_user(connection, user_id, email, full_name, password_hash)

    async def anyone(self) -> bool:
        """Return whether there is any account."""
        async with self._database.connection() as connection:
            return await _anyone(connection)

    async def find_login(self, email: str) -> StoredLogin | None:
        """Return the login of an email address."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                "select id, email, full_name, password_hash, token_version from toolcrib.find_login(%s)",
                (email,),
            )
            row = await cursor.fetchone()
        return StoredLogin(*row) if row else None

    async def profile(self, person: ActingUser) -> UserProfile:
        """Return the user's profile."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                "select id, email, full_name, created_at from toolcrib.users where id = %s", (person.user_id,)
            )
            row = await cursor.fetchone()
        assert row is not None, "acting() lets in only those who exist"
        return UserProfile(*row)

    async def end_all_tokens(self, person: ActingUser) -> None:
        """End every login of a user on every device. API keys stay valid."""
        async with acting(self._database, person) as connection:
            await connection.execute(
                """
                update toolcrib.users set token_version = token_version + 1, logins_ended_at = now() where id = %s
                """,
                (person.user_id,),
            )
            await connection.execute(
                """
                update toolcrib.refresh_tokens set revoked_at = now()
                where user_id = %s and revoked_at is null
                """,
                (person.user_id,),
            )

    async def require(self, person: ActingUser) -> None:
        """Check a token's version.

        Raises:
            Unauthenticated: The user is disabled, or the token was revoked.
        """
        async with acting(self._database, person):
            pass

    async def ended_since(self, moment: datetime | None) -> tuple[datetime, frozenset[UserId]]:
        """Return the users whose logins ended since, and the time for the next query. With the system role.

        The intervals overlap, because a transaction has the time of its start but is visible at its end.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select now() - interval '30 seconds', array(
                    select id from toolcrib.users
                    where logins_ended_at >= coalesce(%s, now() - interval '30 seconds'))
                """,
                (moment,),
            )
            row = await cursor.fetchone()
        assert row is not None
        return row[0], frozenset(map(UserId, row[1]))

    # Refresh tokens

    async def store_refresh_token(self, user_id: UserId, *, lifetime: timedelta) -> str:
        """Start a family of refresh tokens, one per login, and return the first."""
        async with self._database.as_user(user_id) as connection:
            return await self._insert_refresh_token(connection, user_id, family_id=new_id(), lifetime=lifetime)

    async def rotate_refresh_token(
        self, secret: str, *, lifetime: timedelta, overlap: timedelta = _NO_TIME
    ) -> RefreshedLogin:
        """Exchange a token for its successor. A token that is used twice was stolen, and ends its family.

        Within ``overlap`` of the first use, the second only gets a Conflict: the client that shares the token has its
        successor already, or will have it in a moment.

        Raises:
            Unauthenticated: The token is unknown, expired or used.
            Conflict: The token was used a moment ago.
        """
        async with self._database.connection() as connection, connection.transaction():
            refreshed = await self._rotate(connection, secret, lifetime, overlap)
        # Raised after the transaction: inside it would roll back the revocation.
        if refreshed is None:
            raise Unauthenticated("This refresh token is invalid or expired. Log in again.")
        return refreshed

    async def revoke_family(self, secret: str) -> None:
        """End the login of a token. An unknown token is not an error."""
        async with self._database.connection() as connection, connection.transaction():
            cursor = await connection.execute(
                "select family_id from toolcrib.find_refresh_token(%s)", (self._hashed(secret),)
            )
            row = await cursor.fetchone()
            if row is not None:
                await connection.execute("select toolcrib.revoke_token_family(%s)", row)

    async def _rotate(
        self, connection: Connection, secret: str, lifetime: timedelta, overlap: timedelta
    ) -> RefreshedLogin | None:
        # The row stays locked until the commit: of two requests with one token, the second finds it used.
        cursor = await connection.execute(
            """
            select id, user_id, family_id, token_version,
                   used_at is not null or revoked_at is not null, expires_at <= now(),
                   revoked_at is null and used_at > clock_timestamp() - %s
            from toolcrib.find_refresh_token(%s)
            """,
            (overlap, self._hashed(secret)),
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        token_id, user_id, family_id, token_version, is_spent, is_expired, was_spent_just_now = row
        if was_spent_just_now:
            raise Conflict("This login was refreshed a moment ago, perhaps by another tab. Try again.")
        if is_spent:
            await connection.execute("select toolcrib.revoke_token_family(%s)", (family_id,))
            return None
        if is_expired:
            return None
        await connection.execute("select toolcrib.set_current_user(%s)", (user_id,))
        await connection.execute("update toolcrib.refresh_tokens set used_at = now() where id = %s", (token_id,))
        successor = await self._insert_refresh_token(connection, user_id, family_id=family_id, lifetime=lifetime)
        return RefreshedLogin(user_id, token_version, successor)

    async def _insert_refresh_token(
        self, connection: Connection, user_id: UserId, *, family_id: UUID, lifetime: timedelta
    ) -> str:
        secret = new_secret(REFRESH_PREFIX)
        await connection.execute(
            """
            insert into toolcrib.refresh_tokens (id, user_id, family_id, secret_hash, expires_at)
            values (%s, %s, %s, %s, %s)
            """,
            (new_id(), user_id, family_id, self._hashed(secret), datetime.now(UTC) + lifetime),
        )
        return secret

    def _hashed(self, secret: str) -> bytes:
        return hashed(f"{secret}{self._bound_to}")


async def _anyone(connection: Connection) -> bool:
    row = await (await connection.execute("select toolcrib.has_users()")).fetchone()
    return bool(row and row[0])


async def insert_user(
    connection: Connection, user_id: UserId, email: str, full_name: str | None, password_hash: str
) -> UserProfile:
    """Create an account in a transaction whose acting user has this id.

    Raises:
        Conflict: The address has an account.
    """
    try:
        cursor = await connection.execute(
            """
            insert into toolcrib.users (id, email, full_name, password_hash) values (%s, %s, %s, %s)
            returning id, email, full_name, created_at
            """,
            (user_id, email, full_name, password_hash),
        )
    except UniqueViolation:
        raise Conflict(f"An account for {email} already exists. Log in instead.") from None
    row = await cursor.fetchone()
    assert row is not None
    return UserProfile(*row)


LIFETIME: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class RedeemedTicket:
    """The user and workspace of a used ticket, and how long the connection may last."""

    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId
    connection_expires_at: datetime


class TicketStore:
    """Queries on tickets: single-use secrets that open a connection which cannot send a header."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, tenant: Tenant, *, connection_expires_at: datetime) -> str:
        """Create a ticket for this workspace and user. It is shown once and works once."""
        secret = new_secret(TICKET_PREFIX)
        async with self._database.transaction(tenant) as connection:
            # Each creation deletes the user's expired tickets.
            await connection.execute(
                """
                delete from toolcrib.connection_tickets
                where workspace_id = %s and user_id = %s and expires_at <= now()
                """,
                (tenant.workspace_id, tenant.user_id),
            )
            await connection.execute(
                """
                insert into toolcrib.connection_tickets
                    (secret_hash, workspace_id, user_id, token_version, expires_at, connection_expires_at)
                select %s, %s, u.id, u.token_version, %s, %s from toolcrib.users u where u.id = %s
                """,
                (
                    hashed(secret),
                    tenant.workspace_id,
                    datetime.now(UTC) + LIFETIME,
                    connection_expires_at,
                    tenant.user_id,
                ),
            )
        return secret

    async def redeem(self, secret: str) -> RedeemedTicket:
        """Use up a ticket.

        Raises:
            Unauthenticated: It is unknown, used or expired.
        """
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                "select user_id, token_version, workspace_id, connection_expires_at from toolcrib.redeem_ticket(%s)",
                (hashed(secret),),
            )
            row = await cursor.fetchone()
        if row is None or row[3] is None:
            raise Unauthenticated("This ticket is invalid, used or expired. Fetch a new one; it opens one connection.")
        return RedeemedTicket(*row)
