"""API keys: a person's own, and those of agents in a workspace."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import Agent, WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.core.ids import AgentId, KeyId, UserId, WorkspaceId, new_id
from toolcrib.policy.trust import bound_agent
from toolcrib.storage.agents import grants_from
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.quotas import API_KEYS, has_all, one_at_a_time
from toolcrib.storage.users import KEY_PREFIX, ActingUser, acting, hashed, new_secret

# Enough of a key to recognize it in a list, too little to guess the rest.
_HINT_LENGTH = len(KEY_PREFIX) + 6


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
        secret = new_secret(KEY_PREFIX)
        async with acting(self._database, person) as connection:
            await self._reject_more(connection, person.user_id)
            cursor = await connection.execute(
                f"""
                insert into toolcrib.api_keys (id, user_id, name, hint, secret_hash, expires_at)
                values (%s, %s, %s, %s, %s, %s) returning {_COLUMNS}
                """,  # noqa: S608 - the columns are a constant of this module
                (new_id(), person.user_id, name, secret[:_HINT_LENGTH], hashed(secret), expires_at),
            )
            row = await cursor.fetchone()
        assert row is not None
        return ApiKey(*row), secret

    async def create_for_agent(
        self, tenant: Tenant, agent_id: AgentId, *, name: str, expires_at: datetime | None
    ) -> tuple[ApiKey, str]:
        """Create a key for an agent in its workspace. The agent acts for the owner who creates it."""
        secret = new_secret(KEY_PREFIX)
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            await self._reject_more(connection, tenant.user_id)
            cursor = await connection.execute(
                f"""
                insert into toolcrib.api_keys
                    (id, user_id, workspace_id, agent_id, name, hint, secret_hash, expires_at)
                select %(key)s, %(user)s, a.workspace_id, a.id, %(name)s, %(hint)s, %(hash)s, %(expires_at)s
                from toolcrib.agents a
                where a.workspace_id = %(workspace)s and a.id = %(agent)s and a.deleted_at is null
                returning {_COLUMNS}
                """,  # noqa: S608 - the columns are a constant of this module
                {
                    "key": new_id(),
                    "user": tenant.user_id,
                    "name": name,
                    "hint": secret[:_HINT_LENGTH],
                    "hash": hashed(secret),
                    "expires_at": expires_at,
                    "workspace": tenant.workspace_id,
                    "agent": agent_id,
                },
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"Agent {agent_id} not found in this workspace.")
        return ApiKey(*row), secret

    async def list(self, person: ActingUser) -> list[ApiKey]:
        """Return the keys that a person created, for themselves and for agents, newest first."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                f"select {_COLUMNS} from toolcrib.api_keys where user_id = %s order by id desc",  # noqa: S608
                (person.user_id,),
            )
            return [ApiKey(*row) for row in await cursor.fetchall()]

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
            cursor = await connection.execute(
                """
                select user_id, token_version, workspace_id, agent_id, agent_name, rules, grants, max_trust
                from toolcrib.find_api_key(%s)
                """,
                (hashed(secret),),
                prepare=True,
            )
            row = await cursor.fetchone()
        return _holder(*row) if row else None

    async def _reject_more(self, connection: Connection, user_id: UserId | None) -> None:
        await one_at_a_time(connection, user_id)
        rows = "select from toolcrib.api_keys where user_id = %s and revoked_at is null"
        if await has_all(connection, rows, (user_id,), most=self._most):
            raise Conflict(f"You have {self._most} API keys, the limit. Revoke one first.")


_COLUMNS = "id, name, hint, workspace_id, agent_id, created_at, expires_at"


def _holder(
    user_id: UserId,
    token_version: int,
    workspace_id: WorkspaceId | None,
    agent_id: AgentId | None,
    agent_name: str | None,
    rules: Any,
    grants: Any,
    max_trust: str | None,
) -> ApiKeyHolder:
    if agent_id is None or agent_name is None:
        return ApiKeyHolder(user_id, token_version, None, None)
    agent = bound_agent(
        agent_id,
        agent_name,
        AgentRules.model_validate(rules),
        grants_from(grants),
        workspace_ceiling=None if max_trust is None else TrustLevel(max_trust),
    )
    return ApiKeyHolder(user_id, token_version, workspace_id, agent)
