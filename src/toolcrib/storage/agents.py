"""Agents of a workspace: what their owner wrote, and the rules that it says."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.errors import UniqueViolation

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.approvals import Grant
from toolcrib.domain.callers import Agent, Role
from toolcrib.domain.errors import Conflict, NotFound
from toolcrib.domain.ids import AgentId, UserId, new_id
from toolcrib.policy.rules import rules_from_yaml
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.grants import grants_from
from toolcrib.storage.json_text import json_text


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """An agent as it is kept. ``definition`` is the YAML text as it was written, comments included."""

    id: AgentId
    name: str
    definition: str
    rules: AgentRules
    created_by: UserId
    created_at: datetime
    updated_at: datetime
    grants: tuple[Grant, ...] = ()

    @property
    def as_caller(self) -> Agent:
        return Agent(self.id, self.name, self.rules, self.grants)


class Agents:
    """Queries on agents. Only here are definition and rules written, so that the two always agree."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, tenant: Tenant, *, name: str, definition: str) -> StoredAgent:
        """Adds an agent; BadArguments if its definition is not valid."""
        rules = rules_from_yaml(definition)
        try:
            async with self._database.transaction(tenant, needs=Role.OWNER) as connection:
                cursor = await connection.execute(
                    f"""
                    insert into toolcrib.agents (workspace_id, id, name, definition, rules, created_by)
                    values (%s, %s, %s, %s, %s, %s) returning {_COLUMNS}
                    """,  # noqa: S608 - the columns are a constant of this module
                    (tenant.workspace_id, new_id(), name, definition, json_text(rules), tenant.user_id),
                )
                row = await cursor.fetchone()
        except UniqueViolation:
            raise _name_taken(name) from None
        assert row is not None
        return _agent(row)

    async def list(self, tenant: Tenant) -> list[StoredAgent]:
        """Every agent of the workspace, by name."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                f"""
                select {_COLUMNS} from toolcrib.agents
                where workspace_id = %s and deleted_at is null order by name
                """,  # noqa: S608 - as above
                (tenant.workspace_id,),
            )
            return [_agent(row) for row in await cursor.fetchall()]

    async def get(self, tenant: Tenant, agent_id: AgentId) -> StoredAgent:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                f"""
                select {_COLUMNS} from toolcrib.agents
                where workspace_id = %s and id = %s and deleted_at is null
                """,  # noqa: S608 - as above
                (tenant.workspace_id, agent_id),
            )
            return _found(await cursor.fetchone(), agent_id)

    async def update(
        self, tenant: Tenant, agent_id: AgentId, *, name: str | None = None, definition: str | None = None
    ) -> StoredAgent:
        """Changes what is given. The agent's next call is bound by the new rules."""
        rules = None if definition is None else json_text(rules_from_yaml(definition))
        try:
            async with self._database.transaction(tenant, needs=Role.OWNER) as connection:
                cursor = await connection.execute(
                    f"""
                    update toolcrib.agents
                    set name = coalesce(%s, name), definition = coalesce(%s, definition),
                        rules = coalesce(%s::jsonb, rules), updated_at = now()
                    where workspace_id = %s and id = %s and deleted_at is null returning {_COLUMNS}
                    """,  # noqa: S608 - as above
                    (name, definition, rules, tenant.workspace_id, agent_id),
                )
                return _found(await cursor.fetchone(), agent_id)
        except UniqueViolation:
            raise _name_taken(name) from None

    async def delete(self, tenant: Tenant, agent_id: AgentId) -> None:
        """Ends an agent and with it its keys. Its name stands in the history, so its row stays."""
        async with self._database.transaction(tenant, needs=Role.OWNER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.agents set deleted_at = now()
                where workspace_id = %s and id = %s and deleted_at is null
                """,
                (tenant.workspace_id, agent_id),
            )
            if cursor.rowcount == 0:
                raise _no_agent(agent_id)


_COLUMNS = """
    id, name, definition, rules, created_by, created_at, updated_at, toolcrib.grants_of(workspace_id, id)
"""


def _found(row: tuple[Any, ...] | None, agent_id: AgentId) -> StoredAgent:
    if row is None:
        raise _no_agent(agent_id)
    return _agent(row)


def _agent(row: tuple[Any, ...]) -> StoredAgent:
    agent_id, name, definition, rules, created_by, created_at, updated_at, grants = row
    return StoredAgent(
        agent_id,
        name,
        definition,
        AgentRules.model_validate(rules),
        created_by,
        created_at,
        updated_at,
        grants_from(grants),
    )


def _no_agent(agent_id: AgentId) -> NotFound:
    return NotFound(f"Agent {agent_id} not found in this workspace.")


def _name_taken(name: str | None) -> Conflict:
    return Conflict(f"An agent named {name!r} is in this workspace already. Choose another name.")
