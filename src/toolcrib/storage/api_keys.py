"""API keys of people and of agents in a workspace, and tickets, which open one connection."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import Agent, WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound, Unauthenticated
from toolcrib.core.ids import AgentId, KeyId, UserId, WorkspaceId, new_id
from toolcrib.policy.trust import bound_agent
from toolcrib.storage.agents import grants_from, require_agent
from toolcrib.storage.database import Connection, Database, Store, Tenant
from toolcrib.storage.quotas import API_KEYS, has_all, one_at_a_time
from toolcrib.storage.users import KEY_PREFIX, TICKET_PREFIX, ActingUser, acting, hashed, new_secret

# Enough of a key to recognize it in a list, too little to guess the rest.
_HINT_LENGTH = len(KEY_PREFIX) + 6
TICKET_LIFETIME: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. An agent's key names its workspace and agent."""

    id: KeyId
    name: str
    hint: str
    workspace_id: WorkspaceId | None
    agent_id: AgentId | None
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ApiKeyHolder:
    """The owner of a key: a person, or an agent of one workspace that acts for that person."""

    key_id: KeyId
    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId | None
    agent: Agent | None


class ApiKeyStore:
    """Queries on API keys."""

    def __init__(self, database: Database, *, most: int = API_KEYS) -> None:
        self._database = database
        self._most = most

    async def create(self, person: ActingUser, *, name: str, expires_at: datetime | None) -> tuple[ApiKey, str]:
        """Create a person's own key. Returns the key and its secret, which cannot be shown again."""
        async with acting(self._database, person) as connection:
            return await self._insert(connection, person.user_id, None, None, name, expires_at)

    async def create_for_agent(
        self, tenant: Tenant, agent_id: AgentId, *, name: str, expires_at: datetime | None
    ) -> tuple[ApiKey, str]:
        """Create a key for an agent in its workspace. The agent acts for the owner who creates it."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            await require_agent(connection, tenant, agent_id)
            return await self._insert(connection, tenant.user_id, tenant.workspace_id, agent_id, name, expires_at)

    async def list(self, person: ActingUser) -> list[ApiKey]:
        """Return the keys that a person created, for themselves and for agents, newest first."""
        async with acting(self._database, person) as connection:
            return await connection.fetch_all(
                ApiKey,
                f"select {_COLUMNS} from toolcrib.api_keys where user_id = %s order by id desc",  # noqa: S608
                (person.user_id,),
            )

    async def revoke(self, person: ActingUser, key_id: KeyId) -> None:
        """Revoke a key."""
        async with acting(self._database, person) as connection:
            # Deleted, not marked: the person may have left the workspace of an agent's key.
            cursor = await connection.execute(
                "delete from toolcrib.api_keys where user_id = %s and id = %s", (person.user_id, key_id)
            )
            if cursor.rowcount == 0:
                raise NotFound(f"You have no key {key_id}.")

    async def find(self, secret: str) -> ApiKeyHolder | None:
        """Return the holder of this key; None if it is unknown, expired or revoked, or its agent was deleted."""
        async with self._database.connection() as connection:
            row = await connection.fetch_row(
                """
                select id, user_id, token_version, workspace_id, agent_id, agent_name, rules, grants, max_trust
                from toolcrib.find_api_key(%s)
                """,
                (hashed(secret),),
                prepare=True,
            )
        if row is None:
            return None
        key_id, user_id, token_version, workspace_id, agent_id, agent_name, rules, grants, max_trust = row
        if agent_id is None:
            return ApiKeyHolder(key_id, user_id, token_version, None, None)
        agent = bound_agent(
            agent_id,
            agent_name,
            AgentRules.model_validate(rules),
            grants_from(grants),
            workspace_ceiling=None if max_trust is None else TrustLevel(max_trust),
        )
        return ApiKeyHolder(key_id, user_id, token_version, workspace_id, agent)

    async def _insert(
        self,
        connection: Connection,
        user_id: UserId | None,
        workspace_id: WorkspaceId | None,
        agent_id: AgentId | None,
        name: str,
        expires_at: datetime | None,
    ) -> tuple[ApiKey, str]:
        await one_at_a_time(connection, user_id)
        rows = "select from toolcrib.api_keys where user_id = %s and revoked_at is null"
        if await has_all(connection, rows, (user_id,), most=self._most):
            raise Conflict(f"You have {self._most} API keys, the limit. Revoke one first.")
        secret = new_secret(KEY_PREFIX)
        [key] = await connection.fetch_all(
            ApiKey,
            f"""
            insert into toolcrib.api_keys (id, user_id, workspace_id, agent_id, name, hint, secret_hash, expires_at)
            values (%s, %s, %s, %s, %s, %s, %s, %s) returning {_COLUMNS}
            """,  # noqa: S608 - the columns are a constant of this module
            (new_id(), user_id, workspace_id, agent_id, name, secret[:_HINT_LENGTH], hashed(secret), expires_at),
        )
        return key, secret


_COLUMNS = "id, name, hint, workspace_id, agent_id, created_at, expires_at"


@dataclass(frozen=True, slots=True)
class RedeemedTicket:
    """The user and workspace of a used ticket, and how long the connection may last."""

    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId
    connection_expires_at: datetime


class TicketStore(Store):
    """Queries on tickets: single-use secrets that open a connection which cannot send a header."""

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
                    datetime.now(UTC) + TICKET_LIFETIME,
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
            row = await connection.fetch_row(
                "select user_id, token_version, workspace_id, connection_expires_at from toolcrib.redeem_ticket(%s)",
                (hashed(secret),),
            )
        if row is None or row[3] is None:
            raise Unauthenticated("This ticket is invalid, used or expired. Fetch a new one; it opens one connection.")
        return RedeemedTicket(*row)
