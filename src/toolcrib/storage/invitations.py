"""Invitations for people without an account: a secret with which one person creates an account and becomes a member."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, Forbidden, NotFound
from toolcrib.core.ids import InvitationId, UserId, new_id
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.quotas import INVITATIONS, has_all
from toolcrib.storage.users import INVITATION_PREFIX, UserProfile, hashed, insert_user, new_secret

LIFETIME: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation that can still be accepted. Its secret is shown once, to its creator."""

    id: InvitationId
    email: str
    role: WorkspaceRole
    invited_by: UserId
    created_at: datetime
    expires_at: datetime


class InvitationStore:
    """Queries on invitations."""

    def __init__(self, database: Database, *, lifetime: timedelta = LIFETIME, most: int = INVITATIONS) -> None:
        self._database = database
        self._lifetime = lifetime
        self._most = most

    async def create(self, tenant: Tenant, *, email: str, role: WorkspaceRole) -> tuple[Invitation, str]:
        """Invite an email address.

        Returns the invitation and its secret; replaces an earlier invitation of the address.

        Raises:
            Conflict: The address has an account; such a person is added as a member directly.
        """
        secret = new_secret(INVITATION_PREFIX)
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            row = await connection.fetch_row("select toolcrib.find_user(%s)", (email,))
            if row is not None and row[0] is not None:
                raise Conflict(f"{email} already has an account on this server. Add them as a member instead.")
            await connection.execute(
                """
                update toolcrib.invitations set revoked_at = now()
                where workspace_id = %s and email = lower(%s) and accepted_at is null and revoked_at is null
                """,
                (tenant.workspace_id, email),
            )
            rows = f"select from toolcrib.invitations where {_OPEN}"
            if await has_all(connection, rows, (tenant.workspace_id,), most=self._most):
                raise Conflict(f"This workspace has {self._most} open invitations, the limit. Revoke one first.")
            [invitation] = await connection.fetch_all(
                Invitation,
                f"""
                insert into toolcrib.invitations (workspace_id, id, email, role, secret_hash, invited_by, expires_at)
                values (%s, %s, lower(%s), %s, %s, %s, %s) returning {_COLUMNS}
                """,  # noqa: S608 - the columns are a constant of this module
                (
                    tenant.workspace_id,
                    new_id(),
                    email,
                    role,
                    hashed(secret),
                    tenant.user_id,
                    datetime.now(UTC) + self._lifetime,
                ),
            )
        return invitation, secret

    async def list(self, tenant: Tenant) -> list[Invitation]:
        """Return the invitations that can still be accepted, oldest first. Owners only."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            return await connection.fetch_all(
                Invitation,
                f"select {_COLUMNS} from toolcrib.invitations where {_OPEN} order by created_at, id",  # noqa: S608
                (tenant.workspace_id,),
            )

    async def revoke(self, tenant: Tenant, invitation_id: InvitationId) -> None:
        """Revoke a pending invitation."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            cursor = await connection.execute(
                f"update toolcrib.invitations set revoked_at = now() where {_OPEN} and id = %s",  # noqa: S608
                (tenant.workspace_id, invitation_id),
            )
            if cursor.rowcount == 0:
                raise NotFound(f"There is no open invitation {invitation_id} in this workspace.")

    async def accept(self, secret: str, *, full_name: str | None, password_hash: str) -> UserProfile:
        """Create the account and the membership in one transaction.

        Raises:
            Forbidden: The secret is not valid any more.
        """
        user_id = UserId(new_id())
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetch_row(
                "select workspace_id, email, role from toolcrib.accept_invitation(%s, %s)",
                (hashed(secret), user_id),
            )
            if row is None:
                raise Forbidden("This invitation was used, revoked or has expired. Ask for a new one.")
            workspace_id, email, role = row
            profile = await insert_user(connection, user_id, email, full_name, password_hash)
            await connection.execute(
                "insert into toolcrib.members (workspace_id, user_id, role) values (%s, %s, %s)",
                (workspace_id, user_id, role),
            )
        return profile


_COLUMNS = "id, email, role, invited_by, created_at, expires_at"
_OPEN = "workspace_id = %s and accepted_at is null and revoked_at is null and expires_at > now()"
