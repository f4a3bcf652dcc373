"""Agents of a workspace: their YAML definitions, the rules parsed from them, and their grants."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg.errors import UniqueViolation

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import Agent, WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.core.idempotency import EffectKind, effect_id
from toolcrib.core.ids import AgentId, GrantId, PauseId, SessionId, UserId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.packages import PackageAgent
from toolcrib.core.paused_calls import Grant, GrantRule
from toolcrib.policy.agent_definition import KnownNames, parse_definition, plain_rules_from_yaml, reject_unknown_names
from toolcrib.policy.trust import bound_agent, ceiling_of, packaged_rules
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.storage.database import Connection, Store, Tenant, parse_row


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant with its origin."""

    id: GrantId
    agent_id: AgentId
    session_id: SessionId | None
    rule: GrantRule
    pause_id: PauseId
    created_by: UserId
    created_at: datetime


class GrantStore(Store):
    """Queries on grants. A grant is written together with its decision."""

    async def list(self, tenant: Tenant) -> list[StoredGrant]:
        """Return the workspace's active grants."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                StoredGrant,
                """
                select id, agent_id, session_id, pause_id, created_by, created_at,
                       jsonb_build_object('tools', tools, 'paths', paths, 'commands', commands, 'hosts', hosts,
                                          'arguments', arguments, 'access', access) as rule
                from toolcrib.grants where workspace_id = %s and revoked_at is null order by id
                """,
                (tenant.workspace_id,),
            )

    async def revoke(self, tenant: Tenant, grant_id: GrantId) -> None:
        """Revoke a grant. From the agent's next call on, a person is asked again."""
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.grants set revoked_at = now(), revoked_by = %s
                where workspace_id = %s and id = %s and revoked_at is null
                """,
                (tenant.user_id, tenant.workspace_id, grant_id),
            )
            if cursor.rowcount == 0:
                raise NotFound(f"Grant {grant_id} not found in this workspace, or already revoked.")


def grants_from(rows: Iterable[Mapping[str, Any]] | None) -> tuple[Grant, ...]:
    """Parse the grants of an agent from their rows."""
    return tuple(parse_row(Grant, {**row, "rule": row}) for row in rows or ())


# Longer definitions are parsed in a worker.
_LITTLE_YAML = 256


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """An agent as it is stored. ``definition`` is the YAML text as written, including comments."""

    id: AgentId
    name: str
    definition: str
    rules: AgentRules
    created_by: UserId
    created_at: datetime
    updated_at: datetime
    grants: tuple[Grant, ...] = ()
    workspace_ceiling: TrustLevel | None = None
    # The package that installed it; None if an owner wrote it.
    package: str | None = None

    @property
    def max_trust(self) -> TrustLevel | None:
        """The highest trust that a session may have, by the agent's rules and the workspace's."""
        return ceiling_of(self.rules, self.workspace_ceiling)

    @property
    def as_caller(self) -> Agent:
        """The agent as a caller."""
        return bound_agent(self.id, self.name, self.rules, self.grants, workspace_ceiling=self.workspace_ceiling)


class AgentStore(Store):
    """Queries on agents. Only this class writes definition and rules, so that the two always agree."""

    async def create(
        self, tenant: Tenant, *, name: str, definition: str, known: KnownNames | None = None
    ) -> StoredAgent:
        """Create an agent.

        Args:
            known: Reject a definition that uses other names of tools and toolsets.

        Raises:
            BadArguments: The definition is invalid.
        """
        rules = await _rules(definition)
        if known is not None:
            reject_unknown_names(rules, known)
        try:
            async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
                [row] = await connection.fetch_all(
                    dict,
                    f"""
                    insert into toolcrib.agents (workspace_id, id, name, definition, rules, created_by)
                    values (%s, %s, %s, %s, %s, %s) returning {_COLUMNS}
                    """,  # noqa: S608 - the columns are a constant of this module
                    (
                        tenant.workspace_id,
                        effect_id(EffectKind.AGENT),
                        name,
                        definition,
                        json_text(rules),
                        tenant.user_id,
                    ),
                )
        except UniqueViolation:
            raise _name_taken(name) from None
        return _agent(row)

    async def list(self, tenant: Tenant) -> list[StoredAgent]:
        """Return every agent of the workspace, by name."""
        async with self._database.transaction(tenant) as connection:
            rows = await connection.fetch_all(
                dict,
                f"select {_COLUMNS} from toolcrib.agents where workspace_id = %s and deleted_at is null order by name",  # noqa: S608 - as above
                (tenant.workspace_id,),
            )
        return [_agent(row) for row in rows]

    async def get(self, tenant: Tenant, agent_id: AgentId) -> StoredAgent:
        """Return one agent."""
        async with self._database.transaction(tenant) as connection:
            row = await connection.fetch_one(
                dict,
                f"select {_COLUMNS} from toolcrib.agents where workspace_id = %s and id = %s and deleted_at is null",  # noqa: S608 - as above
                (tenant.workspace_id, agent_id),
            )
        return _found(row, agent_id)

    async def draft(
        self, tenant: Tenant, *, definition: str, agent_id: AgentId | None, known: KnownNames | None = None
    ) -> Agent:
        """Return the caller that an agent would be with this definition. Stores nothing.

        Args:
            agent_id: The agent whose definition it would replace, and whose grants it has; None for a new one.
            known: Reject a definition that uses other names of tools and toolsets.

        Raises:
            BadArguments: The definition is invalid.
        """
        rules = await _rules(definition)
        if known is not None:
            reject_unknown_names(rules, known)
        if agent_id is not None:
            return replace(await self.get(tenant, agent_id), rules=rules).as_caller
        async with self._database.transaction(tenant) as connection:
            [ceiling] = await connection.fetch_row(
                "select max_trust from toolcrib.workspaces where id = %s", (tenant.workspace_id,)
            ) or [None]
        return bound_agent(
            AgentId(new_id()), "new", rules, (), workspace_ceiling=None if ceiling is None else TrustLevel(ceiling)
        )

    async def default(self, tenant: Tenant) -> AgentId | None:
        """Return the default agent: the workspace's choice, otherwise its oldest agent that names a model."""
        async with self._database.transaction(tenant) as connection:
            row = await connection.fetch_row(
                """
                select a.id from toolcrib.agents a join toolcrib.workspaces w on w.id = a.workspace_id
                where a.workspace_id = %s and a.deleted_at is null
                  and (a.id = w.default_agent_id or a.rules ->> 'model' is not null)
                order by a.id = w.default_agent_id desc nulls last, a.id limit 1
                """,
                (tenant.workspace_id,),
            )
        return AgentId(row[0]) if row else None

    async def update(
        self,
        tenant: Tenant,
        agent_id: AgentId,
        *,
        name: str | None = None,
        definition: str | None = None,
        known: KnownNames | None = None,
    ) -> StoredAgent:
        """Change what is given. The agent's next call follows the new rules.

        Args:
            known: Reject a definition that adds other names of tools and toolsets.
        """
        given = None if definition is None else await _rules(definition)
        if given is not None and known is not None:
            reject_unknown_names(given, known, kept=(await self.get(tenant, agent_id)).rules)
        rules = None if given is None else json_text(given)
        try:
            async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
                row = await connection.fetch_one(
                    dict,
                    f"""
                    update toolcrib.agents
                    set name = coalesce(%s, name), definition = coalesce(%s, definition),
                        rules = coalesce(%s::jsonb, rules), updated_at = now()
                    where workspace_id = %s and id = %s and deleted_at is null returning {_COLUMNS}
                    """,  # noqa: S608 - as above
                    (name, definition, rules, tenant.workspace_id, agent_id),
                )
        except UniqueViolation:
            raise _name_taken(name) from None
        return _found(row, agent_id)

    async def delete(self, tenant: Tenant, agent_id: AgentId) -> None:
        """Delete an agent and its keys. The row stays, because the history shows its name."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.agents set deleted_at = now()
                where workspace_id = %s and id = %s and deleted_at is null
                """,
                (tenant.workspace_id, agent_id),
            )
            if cursor.rowcount == 0:
                raise _no_agent(agent_id)


async def put_packaged(
    connection: Connection, tenant: Tenant, package: str, agents: Sequence[PackageAgent]
) -> tuple[str, ...]:
    """Replace the workspace's agents of a package by these, and return their names there.

    A known agent of this package keeps its id.

    Raises:
        Conflict: Another agent has one of the names.
    """
    names = [f"{package}.{agent.name}" for agent in agents]
    await connection.execute(
        """
        update toolcrib.agents set deleted_at = now()
        where workspace_id = %s and package = %s and deleted_at is null and not name = any (%s)
        """,
        (tenant.workspace_id, package, names),
    )
    for name, agent in zip(names, agents, strict=True):
        rules = json_text(packaged_rules(agent.rules))
        cursor = await connection.execute(
            """
            insert into toolcrib.agents as a (workspace_id, id, name, definition, rules, created_by, package)
            values (%s, %s, %s, %s, %s, %s, %s)
            on conflict (workspace_id, name) where deleted_at is null
            do update set definition = excluded.definition, rules = excluded.rules, updated_at = now()
            where a.package = excluded.package
            """,
            (tenant.workspace_id, new_id(), name, agent.definition, rules, tenant.user_id, package),
        )
        if cursor.rowcount == 0:
            raise _name_taken(name)
    return tuple(names)


_COLUMNS = """
    id, name, definition, rules, created_by, created_at, updated_at, package,
    toolcrib.agent_grants(workspace_id, id) as grants,
    (select w.max_trust from toolcrib.workspaces w where w.id = workspace_id) as workspace_ceiling
"""


def _found(row: Mapping[str, Any] | None, agent_id: AgentId) -> StoredAgent:
    if row is None:
        raise _no_agent(agent_id)
    return _agent(row)


def _agent(row: Mapping[str, Any]) -> StoredAgent:
    return parse_row(StoredAgent, {**row, "grants": grants_from(row["grants"])})


async def require_agent(connection: Connection, tenant: Tenant, agent_id: AgentId) -> None:
    """Raise NotFound unless the workspace has this agent."""
    statement = "select from toolcrib.agents where workspace_id = %s and id = %s and deleted_at is null"
    if await connection.fetch_row(statement, (tenant.workspace_id, agent_id)) is None:
        raise _no_agent(agent_id)


def _no_agent(agent_id: AgentId) -> NotFound:
    return NotFound(f"Agent {agent_id} not found in this workspace.")


def _name_taken(name: str | None) -> Conflict:
    return Conflict(f"An agent named {name!r} already exists. Choose another name.")


async def _rules(definition: str) -> AgentRules:
    """Parse the rules of a definition. A long one is parsed in a worker, because YAML is slow."""
    if len(definition) <= _LITTLE_YAML:
        return parse_definition(definition)
    return AgentRules.model_validate(await in_worker(plain_rules_from_yaml, definition))
