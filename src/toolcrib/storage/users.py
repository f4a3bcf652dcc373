"""Users, their passwords, and their logins: families of refresh tokens. Administration is in ``user_admin``."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

from psycopg.errors import UniqueViolation

from toolcrib.core.errors import Conflict, Forbidden, NotFound, Unauthenticated
from toolcrib.core.ids import LoginId, UserId, new_id
from toolcrib.storage.database import Connection, Database, marked_transaction

# Prefixes of the secrets that the server issues. Each is shown once and stored as a hash.

REFRESH_PREFIX = "tcr_"
KEY_PREFIX = "tck_"
TICKET_PREFIX = "tct_"
INVITATION_PREFIX = "tci_"
RESET_PREFIX = "tcp_"


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
    is_administrator: bool


@dataclass(frozen=True, slots=True)
class LoginClient:
    """Who logs in: the address of the request, and how its program calls itself."""

    address: str = ""
    name: str = ""


UNKNOWN_CLIENT = LoginClient()


@dataclass(frozen=True, slots=True)
class Login:
    """A login that can be continued, as its user sees it."""

    id: LoginId
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    address: str
    client: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class RefreshedLogin:
    """A continued login: its user, and the new refresh token."""

    user_id: UserId
    token_version: int
    secret: str


@dataclass(frozen=True, slots=True)
class RefreshedUser:
    """A user whose old tokens have ended, and the version of new ones."""

    user_id: UserId
    token_version: int


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
        """Create the very first account, an administrator.

        Raises:
            Forbidden: There is one already.
        """
        user_id = UserId(new_id())
        async with self._database.as_user(user_id) as connection:
            # Of two concurrent requests the second waits here, and then finds the first.
            await connection.execute("select pg_advisory_xact_lock(hashtext('toolcrib.first_user'))")
            if await _anyone(connection):
                raise Forbidden("This setup link was already used: the first account exists. Log in instead.")
            profile = await insert_user(connection, user_id, email, full_name, password_hash)
            await connection.execute("select toolcrib.make_first_administrator(%s)", (user_id,))
            return replace(profile, is_administrator=True)

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
            await end_logins(connection, person.user_id)

    # Passwords

    async def stored_login(self, person: ActingUser) -> StoredLogin:
        """Return the user's own login, to check their password."""
        async with acting(self._database, person) as connection:
            [login] = await connection.fetch_all(StoredLogin, _STORED_LOGIN, (person.user_id,))
        return login

    async def change_password(self, person: ActingUser, *, checked: StoredLogin, password_hash: str) -> int:
        """Set a new password, and end all logins. API keys stay valid. Returns the new version of tokens.

        Args:
            checked: The login whose password the person knew.

        Raises:
            Conflict: The password was changed meanwhile.
        """
        async with acting(self._database, person) as connection:
            row = await connection.fetch_row(
                """
                update toolcrib.users set password_hash = %s, reset_hash = null, reset_expires_at = null
                where id = %s and password_hash = %s returning id
                """,
                (password_hash, person.user_id, checked.password_hash),
            )
            if row is None:
                raise Conflict("Your password was changed by another request just now. Log in again.")
            return await end_logins(connection, person.user_id)

    async def reset_password(self, secret: str, password_hash: str) -> RefreshedUser:
        """Set a new password with the secret of a reset link, which works once. Ends all logins and API keys.

        Raises:
            Forbidden: The link is unknown, expired or used, or the account is disabled.
        """
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.returned_row("select toolcrib.find_password_reset(%s)", (hashed(secret),))
            if row[0] is None:
                raise Forbidden("This link was already used or has expired. Ask an administrator for a new one.")
            user_id = UserId(row[0])
            await connection.execute("select toolcrib.set_current_user(%s)", (user_id,))
            await connection.execute(
                """
                update toolcrib.users set password_hash = %s, reset_hash = null, reset_expires_at = null
                where id = %s
                """,
                (password_hash, user_id),
            )
            return RefreshedUser(user_id, await end_everything(connection, user_id))

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

    # Logins

    async def logins(self, person: ActingUser, *, current: str | None = None) -> list[Login]:
        """Return the user's logins that can be continued, the one that was used last first.

        Args:
            current: The refresh token of the login that asks.
        """
        async with acting(self._database, person) as connection:
            return await connection.fetch_all(
                Login,
                """
                select t.family_id as id, first.issued_at as created_at, t.issued_at as last_used_at, t.expires_at,
                       t.address, t.client, coalesce(t.secret_hash = %(current)s, false) as is_current
                from toolcrib.refresh_tokens t
                cross join lateral (
                    select min(f.issued_at) as issued_at from toolcrib.refresh_tokens f
                    where f.family_id = t.family_id) first
                where t.user_id = %(user)s and t.used_at is null and t.revoked_at is null and t.expires_at > now()
                order by t.issued_at desc, t.id desc
                """,
                {"user": person.user_id, "current": self._hashed(current) if current else None},
            )

    async def end_login(self, person: ActingUser, login_id: LoginId) -> None:
        """End one login at once. The user's other logins continue with their refresh tokens.

        Raises:
            NotFound: The user has no such login.
        """
        async with acting(self._database, person) as connection:
            row = await connection.fetch_row(
                """
                with ended as (
                    update toolcrib.refresh_tokens set revoked_at = now()
                    where user_id = %s and family_id = %s and revoked_at is null returning used_at, expires_at)
                select bool_or(used_at is null and expires_at > now()) from ended
                """,
                (person.user_id, login_id),
            )
            if row is None or not row[0]:
                raise NotFound("You have no such login. It may have ended already.")
            await end_access_tokens(connection, person.user_id)

    async def end_other_logins(self, person: ActingUser, *, current: str | None) -> None:
        """End all logins of the user except that of a refresh token."""
        async with acting(self._database, person) as connection:
            await connection.execute(
                """
                update toolcrib.refresh_tokens set revoked_at = now()
                where user_id = %(user)s and revoked_at is null and family_id is distinct from (
                    select family_id from toolcrib.refresh_tokens
                    where user_id = %(user)s and secret_hash = %(current)s)
                """,
                {"user": person.user_id, "current": self._hashed(current) if current else None},
            )
            await end_access_tokens(connection, person.user_id)

    async def store_refresh_token(
        self, user_id: UserId, *, lifetime: timedelta, client: LoginClient = UNKNOWN_CLIENT
    ) -> str:
        """Start a family of refresh tokens, one per login, and return the first."""
        async with self._database.as_user(user_id) as connection:
            return await self._insert_refresh_token(
                connection, user_id, family_id=new_id(), lifetime=lifetime, client=client
            )

    async def rotate_refresh_token(
        self,
        secret: str,
        *,
        lifetime: timedelta,
        overlap: timedelta = _NO_TIME,
        client: LoginClient = UNKNOWN_CLIENT,
    ) -> RefreshedLogin:
        """Exchange a token for its successor. A token that is used twice was stolen, and ends its family.

        Within ``overlap`` of the first use, the second only gets a Conflict: the client that shares the token has its
        successor already, or will have it in a moment.

        Raises:
            Unauthenticated: The token is unknown, expired or used.
            Conflict: The token was used a moment ago.
        """
        async with self._database.connection() as connection, connection.transaction():
            refreshed = await self._rotate(connection, secret, lifetime, overlap, client)
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
        self, connection: Connection, secret: str, lifetime: timedelta, overlap: timedelta, client: LoginClient
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
        successor = await self._insert_refresh_token(
            connection, user_id, family_id=family_id, lifetime=lifetime, client=client
        )
        return RefreshedLogin(user_id, token_version, successor)

    async def _insert_refresh_token(
        self, connection: Connection, user_id: UserId, *, family_id: UUID, lifetime: timedelta, client: LoginClient
    ) -> str:
        secret = new_secret(REFRESH_PREFIX)
        await connection.execute(
            """
            insert into toolcrib.refresh_tokens
                (id, user_id, family_id, secret_hash, expires_at, address, client)
            values (%s, %s, %s, %s, %s, %s, %s)
            """,
            (
                *(new_id(), user_id, family_id, self._hashed(secret), datetime.now(UTC) + lifetime),
                *(client.address, client.name),
            ),
        )
        return secret

    def _hashed(self, secret: str) -> bytes:
        return hashed(f"{secret}{self._bound_to}")


_PROFILE = "id as user_id, email, full_name, created_at, is_administrator"
_STORED_LOGIN = """
select id as user_id, email, full_name, password_hash, token_version from toolcrib.users where id = %s
"""


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


async def end_everything(connection: Connection, user_id: UserId) -> int:
    """End all logins, API keys and tickets of a user. Returns the new version of tokens."""
    version = await end_logins(connection, user_id)
    await connection.execute(
        "update toolcrib.api_keys set revoked_at = now() where user_id = %s and revoked_at is null", (user_id,)
    )
    return version


async def end_logins(connection: Connection, user_id: UserId) -> int:
    """End all logins and tickets of a user. Returns the new version of tokens."""
    await connection.execute(
        "update toolcrib.refresh_tokens set revoked_at = now() where user_id = %s and revoked_at is null", (user_id,)
    )
    return await end_access_tokens(connection, user_id)


async def end_access_tokens(connection: Connection, user_id: UserId) -> int:
    """End access tokens, tickets and connections of a user. Those who have a refresh token get new ones."""
    row = await connection.returned_row(
        """
        update toolcrib.users set token_version = token_version + 1, logins_ended_at = now() where id = %s
        returning token_version
        """,
        (user_id,),
    )
    return int(row[0])
