"""Users, their logins and refresh tokens, and an operator's actions on accounts. API keys are in ``api_keys``."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

from psycopg.errors import UniqueViolation

from toolcrib.core.errors import Conflict, Forbidden, NotFound, Unauthenticated
from toolcrib.core.ids import UserId, new_id
from toolcrib.storage.database import Connection, Database, Store, marked_transaction

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
    async with database.connection() as connection, marked_transaction(connection):
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
            return await connection.fetch_one(
                StoredLogin,
                "select id as user_id, email, full_name, password_hash, token_version from toolcrib.find_login(%s)",
                (email,),
            )

    async def profile(self, person: ActingUser) -> UserProfile:
        """Return the user's profile."""
        async with acting(self._database, person) as connection:
            [profile] = await connection.fetch_all(
                UserProfile,
                f"select {_PROFILE} from toolcrib.users where id = %s",  # noqa: S608 - constant columns
                (person.user_id,),
            )
        return profile

    async def end_all_tokens(self, person: ActingUser) -> None:
        """End every login of a user on every device. API keys stay valid."""
        async with acting(self._database, person) as connection:
            await _end_logins(connection, person.user_id)

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
            row = await connection.returned_row(
                """
                select now() - interval '30 seconds', array(
                    select id from toolcrib.users
                    where logins_ended_at >= coalesce(%s, now() - interval '30 seconds'))
                """,
                (moment,),
            )
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
            row = await connection.fetch_row(
                "select family_id from toolcrib.find_refresh_token(%s)", (self._hashed(secret),)
            )
            if row is not None:
                await connection.execute("select toolcrib.revoke_token_family(%s)", row)

    async def _rotate(
        self, connection: Connection, secret: str, lifetime: timedelta, overlap: timedelta
    ) -> RefreshedLogin | None:
        # The row stays locked until the commit: of two requests with one token, the second finds it used.
        row = await connection.fetch_row(
            """
            select id, user_id, family_id, token_version,
                   used_at is not null or revoked_at is not null, expires_at <= now(),
                   revoked_at is null and used_at > clock_timestamp() - %s
            from toolcrib.find_refresh_token(%s)
            """,
            (overlap, self._hashed(secret)),
        )
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


_PROFILE = "id as user_id, email, full_name, created_at"


async def _anyone(connection: Connection) -> bool:
    return bool((await connection.returned_row("select toolcrib.has_users()"))[0])


async def insert_user(
    connection: Connection, user_id: UserId, email: str, full_name: str | None, password_hash: str
) -> UserProfile:
    """Create an account in a transaction whose acting user has this id.

    Raises:
        Conflict: The address has an account.
    """
    try:
        [profile] = await connection.fetch_all(
            UserProfile,
            f"""
            insert into toolcrib.users (id, email, full_name, password_hash) values (%s, %s, %s, %s)
            returning {_PROFILE}
            """,  # noqa: S608 - the columns are a constant of this module
            (user_id, email, full_name, password_hash),
        )
    except UniqueViolation:
        raise Conflict(f"An account for {email} already exists. Log in instead.") from None
    return profile


@dataclass(frozen=True, slots=True)
class Account:
    """A user account, as an operator sees it."""

    user_id: UserId
    email: str
    full_name: str | None
    created_at: datetime
    disabled_at: datetime | None


class UserAdmin(Store):
    """An operator's queries on all accounts, with the system role, by email address."""

    async def list(self) -> list[Account]:
        """Return all accounts in the order of their creation."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                Account,
                f"select {_PROFILE}, disabled_at from toolcrib.users order by created_at, id",  # noqa: S608 - as above
            )

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
    row = await connection.fetch_row(
        "select id from toolcrib.users where email = lower(%s) for no key update", (email,)
    )
    if row is None:
        raise NotFound(f"There is no account {email}. `toolcrib user list` lists all accounts.")
    return UserId(row[0])


async def _end_everything(connection: Connection, user_id: UserId) -> None:
    await _end_logins(connection, user_id)
    await connection.execute(
        "update toolcrib.api_keys set revoked_at = now() where user_id = %s and revoked_at is null", (user_id,)
    )
    await connection.execute("delete from toolcrib.connection_tickets where user_id = %s", (user_id,))


async def _end_logins(connection: Connection, user_id: UserId) -> None:
    await connection.execute(
        "update toolcrib.users set token_version = token_version + 1, logins_ended_at = now() where id = %s", (user_id,)
    )
    await connection.execute(
        "update toolcrib.refresh_tokens set revoked_at = now() where user_id = %s and revoked_at is null", (user_id,)
    )
