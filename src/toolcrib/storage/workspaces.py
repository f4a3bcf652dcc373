"""Workspaces, their members and their deletion. Files are in ``files``, usage in ``quotas``."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg.errors import UniqueViolation

from toolcrib.core.agents import TrustLevel
from toolcrib.core.budgets import Budgets
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.core.idempotency import EffectKind, effect_id
from toolcrib.core.ids import AgentId, ProcessId, UserId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.storage.database import Connection, Database, Store, Tenant, require
from toolcrib.storage.quotas import WORKSPACES, has_all, one_at_a_time
from toolcrib.storage.users import ActingUser, acting


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace, and the requesting user's role in it."""

    id: WorkspaceId
    name: str
    role: WorkspaceRole
    home_node: str | None
    created_at: datetime
    # The highest trust of a session here; only owners set it.
    max_trust: TrustLevel | None = None
    default_agent_id: AgentId | None = None
    # What models may use here; only owners set it.
    budgets: Budgets | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a workspace."""

    user_id: UserId
    email: str
    full_name: str | None
    role: WorkspaceRole
    joined_at: datetime


@dataclass(frozen=True, slots=True)
class HomedWorkspace:
    """A workspace of a node. ``root_path`` is the person's own directory, if it has one."""

    id: WorkspaceId
    name: str
    root_path: str | None


class WorkspaceStore:
    """Queries on workspaces and members."""

    def __init__(
        self, database: Database, *, most: int = WORKSPACES, on_deleted: Callable[[], None] | None = None
    ) -> None:
        """Create the store. ``on_deleted`` is called after a deletion, to start removing the files and rows."""
        self._database = database
        self._most = most
        self._on_deleted = on_deleted

    async def create(self, person: ActingUser, *, name: str, node: str, root_path: str | None = None) -> Workspace:
        """Create a workspace with its files on ``node``; the creator becomes its first owner."""
        workspace_id = WorkspaceId(effect_id(EffectKind.WORKSPACE))
        async with acting(self._database, person) as connection:
            await one_at_a_time(connection, person.user_id)
            rows = "select from toolcrib.workspaces where created_by = %s"
            if await has_all(connection, rows, (person.user_id,), most=self._most):
                raise Conflict(f"You have created {self._most} workspaces, the limit. Delete one first.")
            await connection.execute(
                """
                insert into toolcrib.workspaces (id, name, root_path, home_node, created_by)
                values (%s, %s, %s, %s, %s)
                """,
                (workspace_id, name, root_path, node, person.user_id),
            )
            await connection.execute(
                "insert into toolcrib.members (workspace_id, user_id, role) values (%s, %s, %s)",
                (workspace_id, person.user_id, WorkspaceRole.OWNER),
            )
            return await _workspace(connection, workspace_id, person.user_id)

    async def list_own(self, person: ActingUser, *, before: WorkspaceId | None, limit: int) -> list[Workspace]:
        """Return the workspaces of a person, newest first."""
        async with acting(self._database, person) as connection:
            return await connection.fetch_all(
                Workspace,
                _WORKSPACES
                + """
                where m.user_id = %(user)s and (%(before)s::uuid is null or w.id < %(before)s)
                order by w.id desc limit %(limit)s
                """,
                {"user": person.user_id, "before": before, "limit": limit},
            )

    async def find_by_root_path(self, person: ActingUser, *, root_path: str, node: str) -> Workspace | None:
        """Return the person's workspace for this directory on this node."""
        async with acting(self._database, person) as connection:
            return await connection.fetch_one(
                Workspace,
                _WORKSPACES + "where m.user_id = %s and w.root_path = %s and w.home_node = %s order by w.id limit 1",
                (person.user_id, root_path, node),
            )

    async def homed_on(self, node: str) -> list[HomedWorkspace]:
        """Return the workspaces of everyone whose files are on this node, by name."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                HomedWorkspace,
                """
                select w.id, w.name, w.root_path from toolcrib.workspaces w
                where w.home_node = %s or w.home_node is null order by w.name, w.id
                """,
                (node,),
            )

    async def get(self, tenant: Tenant) -> Workspace:
        """Return the workspace."""
        async with self._database.transaction(tenant) as connection:
            return await _workspace(connection, tenant.workspace_id, _user(tenant))

    async def rename(self, tenant: Tenant, name: str) -> Workspace:
        """Change the name."""
        return await self._update(tenant, "update toolcrib.workspaces set name = %s where id = %s", name)

    async def limit_trust(self, tenant: Tenant, max_trust: TrustLevel | None) -> Workspace:
        """Set the maximum trust of all agents and sessions here; None removes it.

        It applies to running calls at once.
        """
        return await self._update(tenant, "update toolcrib.workspaces set max_trust = %s where id = %s", max_trust)

    async def set_budgets(self, tenant: Tenant, budgets: Budgets | None) -> Workspace:
        """Set what models may use here, for the given periods; None removes all. Holds from the next turn on."""
        if budgets is None:
            return await self._update(tenant, "update toolcrib.workspaces set budgets = %s where id = %s", None)
        given = {
            period: None if one is None or one.is_empty else one.model_dump(exclude_none=True)
            for period, one in ((period, getattr(budgets, period)) for period in budgets.model_fields_set)
        }
        return await self._update(
            tenant,
            """
            update toolcrib.workspaces
            set budgets = nullif(jsonb_strip_nulls(coalesce(budgets, '{}') || %s::jsonb), '{}') where id = %s
            """,
            json_text(given),
        )

    async def set_default_agent(self, tenant: Tenant, agent_id: AgentId | None) -> Workspace:
        """Set the agent of sessions that name none.

        Raises:
            NotFound: The workspace has no such agent.
        """
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.workspaces w set default_agent_id = %(agent)s where w.id = %(workspace)s
                and (%(agent)s::uuid is null
                     or exists (select from toolcrib.agents a where a.workspace_id = w.id and a.id = %(agent)s
                                and a.deleted_at is null))
                """,
                {"workspace": tenant.workspace_id, "agent": agent_id},
            )
            if cursor.rowcount == 0:
                raise NotFound(f"Agent {agent_id} not found in this workspace.")
            return await _workspace(connection, tenant.workspace_id, _user(tenant))

    async def delete(self, tenant: Tenant) -> None:
        """Close a workspace at once. Everything except its audit records is then removed."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            await connection.execute("select toolcrib.delete_workspace(%s, %s)", (tenant.workspace_id, _user(tenant)))
        if self._on_deleted is not None:
            self._on_deleted()

    async def _update(self, tenant: Tenant, statement: LiteralString, value: str | None) -> Workspace:
        async with self._database.transaction(tenant, needs=WorkspaceRole.OWNER) as connection:
            await connection.execute(statement, (value, tenant.workspace_id))
            return await _workspace(connection, tenant.workspace_id, _user(tenant))

    # Members

    async def members(self, tenant: Tenant) -> list[Member]:
        """Return the members."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                Member, _MEMBERS + "where m.workspace_id = %s order by m.joined_at, m.user_id", (tenant.workspace_id,)
            )

    async def add_member(self, tenant: Tenant, *, email: str, role: WorkspaceRole) -> Member:
        """Add a registered user."""
        async with self._governing(tenant) as connection:
            row = await connection.fetch_row("select toolcrib.find_user(%s)", (email,))
            if row is None or row[0] is None:
                raise NotFound(f"There is no account {email}. Create one first.")
            user_id = UserId(row[0])
            try:
                await connection.execute(
                    "insert into toolcrib.members (workspace_id, user_id, role) values (%s, %s, %s)",
                    (tenant.workspace_id, user_id, role),
                )
            except UniqueViolation:
                raise Conflict(f"{email} is already a member. Change their role instead.") from None
            return await _member(connection, tenant, user_id)

    async def change_role(self, tenant: Tenant, user_id: UserId, role: WorkspaceRole) -> Member:
        """Change a member's role."""
        async with self._governing(tenant) as connection:
            if role is not WorkspaceRole.OWNER:
                await _reject_last_owner(connection, tenant, user_id)
            await connection.execute(
                "update toolcrib.members set role = %s where workspace_id = %s and user_id = %s",
                (role, tenant.workspace_id, user_id),
            )
            return await _member(connection, tenant, user_id)

    async def remove_member(self, tenant: Tenant, user_id: UserId) -> None:
        """Remove a member. Owners remove anyone; members may leave."""
        leaving = user_id == tenant.user_id
        async with self._governing(
            tenant, needs=WorkspaceRole.VIEWER if leaving else WorkspaceRole.OWNER
        ) as connection:
            await _reject_last_owner(connection, tenant, user_id)
            cursor = await connection.execute(
                "delete from toolcrib.members where workspace_id = %s and user_id = %s",
                (tenant.workspace_id, user_id),
            )
            if cursor.rowcount == 0:
                raise _no_member(user_id)

    @asynccontextmanager
    async def _governing(self, tenant: Tenant, needs: WorkspaceRole = WorkspaceRole.OWNER) -> AsyncIterator[Connection]:
        """Open a transaction that has the exclusive right to change this workspace's members."""
        async with self._database.transaction(tenant, needs=needs) as connection:
            # Not "for update": that would also block every write that references the workspace.
            await connection.execute(
                "select from toolcrib.workspaces where id = %s for no key update", (tenant.workspace_id,)
            )
            # Checked again under the lock: another owner may have just demoted this one.
            row = await connection.fetch_row(
                "select role from toolcrib.members where workspace_id = %s and user_id = %s",
                (tenant.workspace_id, tenant.user_id),
            )
            require(row[0] if row else None, needs)
            yield connection


_WORKSPACES = """
    select w.id, w.name, m.role, w.home_node, w.created_at, w.max_trust, w.default_agent_id, w.budgets
    from toolcrib.members m join toolcrib.workspaces w on w.id = m.workspace_id
"""
_MEMBERS = """
    select m.user_id, u.email, u.full_name, m.role, m.joined_at
    from toolcrib.members m join toolcrib.users u on u.id = m.user_id
"""


async def _workspace(connection: Connection, workspace_id: WorkspaceId, user_id: UserId) -> Workspace:
    # The tenant was checked: its user is a member.
    [workspace] = await connection.fetch_all(
        Workspace, _WORKSPACES + "where w.id = %s and m.user_id = %s", (workspace_id, user_id)
    )
    return workspace


async def _member(connection: Connection, tenant: Tenant, user_id: UserId) -> Member:
    member = await connection.fetch_one(
        Member, _MEMBERS + "where m.workspace_id = %s and m.user_id = %s", (tenant.workspace_id, user_id)
    )
    if member is None:
        raise _no_member(user_id)
    return member


async def _reject_last_owner(connection: Connection, tenant: Tenant, user_id: UserId) -> None:
    cursor = await connection.execute(
        "select user_id from toolcrib.members where workspace_id = %s and role = %s",
        (tenant.workspace_id, WorkspaceRole.OWNER),
    )
    if [owner for (owner,) in await cursor.fetchall()] == [user_id]:
        raise Conflict("This is the workspace's last owner. Make another member an owner first.")


def _user(tenant: Tenant) -> UserId:
    assert tenant.user_id is not None, "the system has no role in a workspace"
    return tenant.user_id


def _no_member(user_id: UserId) -> NotFound:
    return NotFound(f"User {user_id} is not a member of this workspace.")


@dataclass(frozen=True, slots=True)
class DeletedWorkspace:
    """What remains to be removed: the rows, or the files on one node."""

    workspace_id: WorkspaceId
    node: str

    @property
    def is_rows(self) -> bool:
        """Whether it is about the rows."""
        return not self.node


class DeletedWorkspaceStore(Store):
    """Queries of the workspace deletion."""

    async def claim(
        self, process_id: ProcessId, *, node: str, lease: float, again_after: timedelta
    ) -> list[DeletedWorkspace]:
        """Claim deletions that no live process works on: unfinished ones, and finished ones due for a second pass."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                DeletedWorkspace,
                """
                with due as (
                    select d.workspace_id, d.node from toolcrib.deleted_workspaces d
                    where d.node in ('', %(node)s)
                      and (d.finished_at is null or d.finished_at < now() - %(again)s)
                      and (d.claimed_by is null or d.claimed_by = %(process)s
                           or not toolcrib.process_is_alive(d.claimed_by, %(lease)s))
                    order by d.deleted_at limit 10 for update skip locked
                )
                update toolcrib.deleted_workspaces d set claimed_by = %(process)s
                from due where d.workspace_id = due.workspace_id and d.node = due.node
                returning d.workspace_id, d.node
                """,
                {"node": node, "process": process_id, "lease": lease, "again": again_after},
            )

    async def remove_rows(self, workspace_id: WorkspaceId, *, limit: int) -> int:
        """Delete up to ``limit`` rows of each table except the audit log. Returns how many; 0 if none are left."""
        async with self._database.as_system() as connection:
            [removed] = await connection.returned_row("select toolcrib.remove_rows(%s, %s)", (workspace_id, limit))
        return int(removed)

    async def finish(self, deleted: DeletedWorkspace) -> None:
        """Mark as finished. The second time, delete the row as well."""
        async with self._database.as_system() as connection, connection.transaction():
            cursor = await connection.execute(
                """
                delete from toolcrib.deleted_workspaces
                where workspace_id = %s and node = %s and finished_at is not null
                """,
                (deleted.workspace_id, deleted.node),
            )
            if cursor.rowcount == 0:
                await connection.execute(
                    """
                    update toolcrib.deleted_workspaces set finished_at = now(), claimed_by = null
                    where workspace_id = %s and node = %s
                    """,
                    (deleted.workspace_id, deleted.node),
                )
