"""API keys: a person's own, and those by which an agent acts in its workspace."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.callers import Agent, Role
from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import AgentId, KeyId, UserId, WorkspaceId, new_id
from toolcrib.storage.accounts import Person, acting
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.grants import grants_from
from toolcrib.storage.secrets import KEY_PREFIX, hashed, new_secret

# Enough of a key to tell it from others in a list, too little to guess the rest.
_HINT_LENGTH = len(KEY_PREFIX) + 6


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it may be shown. An agent's key names its workspace and agent."""

    id: KeyId
    name: str
    hint: str
    workspace_id: WorkspaceId | None
    agent_id: AgentId | None
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who a key stands for: a person, or an agent of one workspace for whom that person answers."""

    user_id: UserId
    token_version: int
    workspace_id: WorkspaceId | None
    agent: Agent | None


class Keys:
    """Queries on API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, person: Person, *, name: str, expires_at: datetime | None) -> tuple[ApiKey, str]:
        """A person's own key, and its secret, which nobody can show again."""
        secret = new_secret(KEY_PREFIX)
        async with acting(self._database, person) as connection:
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
        """A key by which an agent acts in its workspace; the owner who makes it answers for it."""
        secret = new_secret(KEY_PREFIX)
        async with self._database.transaction(tenant, needs=Role.OWNER) as connection:
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

    async def list(self, person: Person) -> list[ApiKey]:
        """The keys that a person has made, for themselves and for agents, the newest first."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                f"select {_COLUMNS} from toolcrib.api_keys where user_id = %s order by id desc",  # noqa: S608
                (person.user_id,),
            )
            return [ApiKey(*row) for row in await cursor.fetchall()]

    async def revoke(self, person: Person, key_id: KeyId) -> None:
        async with acting(self._database, person) as connection:
            # Removed, not marked: they may have left the workspace that an agent's key belongs to.
            cursor = await connection.execute(
                "delete from toolcrib.api_keys where user_id = %s and id = %s", (person.user_id, key_id)
            )
            if cursor.rowcount == 0:
                raise NotFound(f"You have no key {key_id}.")

    async def find(self, secret: str) -> KeyHolder | None:
        """Who holds this key; none if it is unknown, expired or revoked, or its agent is gone."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                """
                select user_id, token_version, workspace_id, agent_id, agent_name, rules, grants
                from toolcrib.find_api_key(%s)
                """,
                (hashed(secret),),
                prepare=True,
            )
            row = await cursor.fetchone()
        return _holder(*row) if row else None


_COLUMNS = "id, name, hint, workspace_id, agent_id, created_at, expires_at"


def _holder(
    user_id: UserId,
    token_version: int,
    workspace_id: WorkspaceId | None,
    agent_id: AgentId | None,
    agent_name: str | None,
    rules: Any,
    grants: Any,
) -> KeyHolder:
    if agent_id is None or agent_name is None:
        return KeyHolder(user_id, token_version, None, None)
    agent = Agent(agent_id, agent_name, AgentRules.model_validate(rules), grants_from(grants))
    return KeyHolder(user_id, token_version, workspace_id, agent)
