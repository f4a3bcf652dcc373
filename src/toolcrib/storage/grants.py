"""Grants: the rules that people's decisions left behind. They are seen, and can be revoked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from toolcrib.domain.approvals import Grant, GrantRule
from toolcrib.domain.callers import Role
from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import AgentId, ApprovalId, GrantId, SessionId, UserId
from toolcrib.storage.approvals import rule_of
from toolcrib.storage.database import Database, Tenant


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant with where it came from."""

    id: GrantId
    agent_id: AgentId
    session_id: SessionId | None
    rule: GrantRule
    approval_id: ApprovalId
    created_by: UserId
    created_at: datetime


class Grants:
    """Queries on grants. They are written with the decision that they come of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, tenant: Tenant) -> list[StoredGrant]:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select id, agent_id, session_id, tool, paths, commands, approval_id, created_by, created_at
                from toolcrib.grants where workspace_id = %s and revoked_at is null order by id
                """,
                (tenant.workspace_id,),
            )
            return [
                StoredGrant(id_, agent, session, _rule(tool, paths, commands), approval, by, at)
                for id_, agent, session, tool, paths, commands, approval, by, at in await cursor.fetchall()
            ]

    async def revoke(self, tenant: Tenant, grant_id: GrantId) -> None:
        """The agent is asked about again, from its next call on."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.grants set revoked_at = now(), revoked_by = %s
                where workspace_id = %s and id = %s and revoked_at is null
                """,
                (tenant.user_id, tenant.workspace_id, grant_id),
            )
            if cursor.rowcount == 0:
                raise NotFound(f"Grant {grant_id} not found in this workspace, or it was revoked already.")


def grants_from(rows: Iterable[Mapping[str, Any]] | None) -> tuple[Grant, ...]:
    """What ``toolcrib.grants_of`` gives."""
    return tuple(
        Grant(
            GrantId(UUID(row["id"])),
            rule_of(row),
            SessionId(UUID(row["session_id"])) if row["session_id"] else None,
        )
        for row in rows or ()
    )


def _rule(tool: str, paths: Any, commands: Any) -> GrantRule:
    return rule_of({"tool": tool, "paths": paths, "commands": commands})
