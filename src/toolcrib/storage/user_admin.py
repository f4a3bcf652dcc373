"""Administration of accounts: by an operator at the command line, or by an administrator over the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from toolcrib.core.errors import Conflict, Forbidden, NotFound, Unauthenticated
from toolcrib.core.ids import UserId
from toolcrib.storage.database import Connection, Store, marked_transaction
from toolcrib.storage.users import RESET_PREFIX, ActingUser, end_everything, hashed, new_secret

RESET_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Account:
    """A user account, as an administrator sees it."""

    user_id: UserId
    email: str
    full_name: str | None
    created_at: datetime
    disabled_at: datetime | None
    is_administrator: bool

    @property
    def is_disabled(self) -> bool:
        """Whether the person cannot log in."""
        return self.disabled_at is not None


@dataclass(frozen=True, slots=True)
class PasswordReset:
    """The secret of a link with which a person sets a new password. It works once."""

    account: Account
    secret: str
    expires_at: datetime


class UserAdmin(Store):
    """Queries on all accounts, with the system role.

    ``by`` is the administrator who acts. Without one it is the operator, who may do everything. Each change is in the
    audit log, with the administrator as its user.
    """

    async def list(self, by: ActingUser | None = None) -> list[Account]:
        """Return all accounts in the order of their creation."""
        async with self._administration(by) as connection:
            return await connection.fetch_all(Account, f"{_SELECT} order by created_at, id")

    async def find(self, email: str) -> Account:
        """Return the account of an email address.

        Raises:
            NotFound: There is none.
        """
        async with self._administration(None) as connection:
            found = await connection.fetch_one(Account, f"{_SELECT} where email = lower(%s)", (email,))
        if found is None:
            raise NotFound(f"There is no account {email}. `toolcrib user list` lists all accounts.")
        return found

    async def change(
        self,
        user_id: UserId,
        *,
        disabled: bool | None = None,
        administrator: bool | None = None,
        by: ActingUser | None = None,
    ) -> Account:
        """Change what is given, and return the account.

        Disabling ends all logins, keys and tickets of the user at once and for good, their runs before the next step,
        and blocks logins until the account is enabled.

        Raises:
            Conflict: An administrator disables themselves, or gives up their own administration.
        """
        async with self._administration(by, user_id) as connection:
            if by is not None and by.user_id == user_id and (disabled or administrator is False):
                raise Conflict(
                    "You cannot disable your own account or end your own administration. Ask another administrator, "
                    "so that there is always one."
                )
            await connection.execute(
                """
                update toolcrib.users set
                    is_administrator = coalesce(%(administrator)s, is_administrator),
                    disabled_at = case when %(disabled)s then coalesce(disabled_at, now())
                                       when not %(disabled)s then null else disabled_at end,
                    reset_hash = case when %(disabled)s then null else reset_hash end,
                    reset_expires_at = case when %(disabled)s then null else reset_expires_at end
                where id = %(user)s
                """,
                {"administrator": administrator, "disabled": disabled, "user": user_id},
            )
            if disabled:
                await end_everything(connection, user_id)
            return await _account(connection, user_id)

    async def start_password_reset(self, user_id: UserId, by: ActingUser | None = None) -> PasswordReset:
        """Create the secret of a reset link, and end the one before it. The old password works until it is used.

        Raises:
            Conflict: The account is disabled.
        """
        secret = new_secret(RESET_PREFIX)
        async with self._administration(by, user_id) as connection:
            row = await connection.fetch_row(
                """
                update toolcrib.users set reset_hash = %s, reset_expires_at = now() + %s
                where id = %s and disabled_at is null returning reset_expires_at
                """,
                (hashed(secret), RESET_LIFETIME, user_id),
            )
            account = await _account(connection, user_id)
        if row is None:
            raise Conflict(f"The account {account.email} is disabled. Enable it first.")
        return PasswordReset(account, secret, row[0])

    async def set_password(self, user_id: UserId, password_hash: str) -> None:
        """Set a new password. Ends all logins and keys made with the old one."""
        async with self._administration(None, user_id) as connection:
            await connection.execute(
                """
                update toolcrib.users set password_hash = %s, reset_hash = null, reset_expires_at = null
                where id = %s
                """,
                (password_hash, user_id),
            )
            await end_everything(connection, user_id)

    @asynccontextmanager
    async def _administration(self, by: ActingUser | None, target: UserId | None = None) -> AsyncIterator[Connection]:
        """Open a transaction as the administrator, with both accounts locked.

        Of two administrators who disable each other, the second finds that they are none any more.
        """
        async with self._database.as_system() as connection, marked_transaction(connection):
            if target is not None:
                ids = [one for one in (by.user_id if by else None, target) if one is not None]
                await connection.execute(
                    "select from toolcrib.users where id = any(%s) order by id for no key update", (ids,)
                )
            if by is not None:
                await _require_administrator(connection, by)
                await connection.execute("select toolcrib.set_current_user(%s)", (by.user_id,))
            yield connection


_SELECT = "select id as user_id, email, full_name, created_at, disabled_at, is_administrator from toolcrib.users"


async def _account(connection: Connection, user_id: UserId) -> Account:
    found = await connection.fetch_one(Account, f"{_SELECT} where id = %s", (user_id,))
    if found is None:
        raise NotFound("There is no such account.")
    return found


async def _require_administrator(connection: Connection, by: ActingUser) -> None:
    row = await connection.fetch_row(
        """
        select is_administrator from toolcrib.users
        where id = %s and disabled_at is null and token_version = coalesce(%s, token_version)
        """,
        (by.user_id, by.token_version),
    )
    if row is None:
        raise Unauthenticated("This token was revoked. Log in again.")
    if not row[0]:
        raise Forbidden("Only administrators of this server can do this. Ask one of them.")
