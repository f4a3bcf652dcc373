"""Workspaces and their members. What lies in a workspace is in ``files``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from psycopg.errors import UniqueViolation

from toolcrib.domain.callers import Role
from toolcrib.domain.errors import Conflict, NotFound
from toolcrib.domain.ids import UserId, WorkspaceId, new_id
from toolcrib.storage.accounts import Person, acting
from toolcrib.storage.database import Connection, Database, Tenant, require


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace, and the role in it of whoever asked."""

    id: WorkspaceId
    name: str
    role: Role
    home_node: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Member:
    user_id: UserId
    email: str
    full_name: str | None
    role: Role
    joined_at: datetime


class Workspaces:
    """Queries on workspaces and members."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, person: Person, *, name: str, node: str, tree: str | None = None) -> Workspace:
        """Founds a workspace whose files lie on ``node``; whoever founds it is its first owner."""
        workspace_id = WorkspaceId(new_id())
        async with acting(self._database, person) as connection:
            await connection.execute(
                """
                insert into toolcrib.workspaces (id, name, tree, home_node, created_by)
                values (%s, %s, %s, %s, %s)
                """,
                (workspace_id, name, tree, node, person.user_id),
            )
            await connection.execute(
                "insert into toolcrib.members (workspace_id, user_id, role) values (%s, %s, %s)",
                (workspace_id, person.user_id, Role.OWNER),
            )
            return await _workspace(connection, workspace_id, person.user_id)

    async def list_own(self, person: Person, *, before: WorkspaceId | None, limit: int) -> list[Workspace]:
        """The workspaces that a person belongs to, the newest first."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                """
                select w.id, w.name, m.role, w.home_node, w.created_at
                from toolcrib.members m join toolcrib.workspaces w on w.id = m.workspace_id
                where m.user_id = %(user)s and (%(before)s::uuid is null or w.id < %(before)s)
                order by w.id desc limit %(limit)s
                """,
                {"user": person.user_id, "before": before, "limit": limit},
            )
            return [_as_workspace(*row) for row in await cursor.fetchall()]

    async def find_by_tree(self, person: Person, *, tree: str, node: str) -> Workspace | None:
        """The person's workspace that is this directory on this node."""
        async with acting(self._database, person) as connection:
            cursor = await connection.execute(
                """
                select w.id, w.name, m.role, w.home_node, w.created_at
                from toolcrib.members m join toolcrib.workspaces w on w.id = m.workspace_id
                where m.user_id = %s and w.tree = %s and w.home_node = %s
                order by w.id limit 1
                """,
                (person.user_id, tree, node),
            )
            row = await cursor.fetchone()
        return _as_workspace(*row) if row else None

    async def get(self, tenant: Tenant) -> Workspace:
        async with self._database.transaction(tenant) as connection:
            return await _workspace(connection, tenant.workspace_id, _user(tenant))

    async def rename(self, tenant: Tenant, name: str) -> Workspace:
        async with self._database.transaction(tenant, needs=Role.OWNER) as connection:
            await connection.execute(
                "update toolcrib.workspaces set name = %s where id = %s", (name, tenant.workspace_id)
            )
            return await _workspace(connection, tenant.workspace_id, _user(tenant))

    async def delete(self, tenant: Tenant) -> None:
        """Removes a workspace with its members, agents, files and history; the book keeps its records."""
        async with self._database.transaction(tenant, needs=Role.OWNER) as connection:
            await connection.execute("delete from toolcrib.workspaces where id = %s", (tenant.workspace_id,))

    # Members

    async def members(self, tenant: Tenant) -> list[Member]:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                _MEMBERS + "where m.workspace_id = %s order by m.joined_at, m.user_id", (tenant.workspace_id,)
            )
            return [_as_member(*row) for row in await cursor.fetchall()]

    async def add_member(self, tenant: Tenant, *, email: str, role: Role) -> Member:
        async with self._governing(tenant) as connection:
            cursor = await connection.execute("select toolcrib.find_user(%s)", (email,))
            row = await cursor.fetchone()
            if row is None or row[0] is None:
                raise NotFound(f"Nobody has registered as {email}. They need an account first.")
            user_id = UserId(row[0])
            try:
                await connection.execute(
                    "insert into toolcrib.members (workspace_id, user_id, role) values (%s, %s, %s)",
                    (tenant.workspace_id, user_id, role),
                )
            except UniqueViolation:
                raise Conflict(f"{email} is a member already. Change their role instead.") from None
            return await _member(connection, tenant, user_id)

    async def change_role(self, tenant: Tenant, user_id: UserId, role: Role) -> Member:
        async with self._governing(tenant) as connection:
            if role is not Role.OWNER:
                await _refuse_last_owner(connection, tenant, user_id)
            await connection.execute(
                "update toolcrib.members set role = %s where workspace_id = %s and user_id = %s",
                (role, tenant.workspace_id, user_id),
            )
            return await _member(connection, tenant, user_id)

    async def remove_member(self, tenant: Tenant, user_id: UserId) -> None:
        """Owners remove anyone; everyone may leave."""
        leaving = user_id == tenant.user_id
        async with self._governing(tenant, needs=Role.VIEWER if leaving else Role.OWNER) as connection:
            await _refuse_last_owner(connection, tenant, user_id)
            cursor = await connection.execute(
                "delete from toolcrib.members where workspace_id = %s and user_id = %s",
                (tenant.workspace_id, user_id),
            )
            if cursor.rowcount == 0:
                raise _no_member(user_id)

    @asynccontextmanager
    async def _governing(self, tenant: Tenant, needs: Role = Role.OWNER) -> AsyncIterator[Connection]:
        """A transaction that alone changes this workspace's members."""
        async with self._database.transaction(tenant, needs=needs) as connection:
            # Not "for update": that would also stop every write that refers to the workspace.
            await connection.execute(
                "select from toolcrib.workspaces where id = %s for no key update", (tenant.workspace_id,)
            )
            # Asked again under the lock: another owner may have just demoted this one.
            cursor = await connection.execute(
                "select role from toolcrib.members where workspace_id = %s and user_id = %s",
                (tenant.workspace_id, tenant.user_id),
            )
            row = await cursor.fetchone()
            require(row[0] if row else None, needs)
            yield connection


_MEMBERS = """
    select m.user_id, u.email, u.full_name, m.role, m.joined_at
    from toolcrib.members m join toolcrib.users u on u.id = m.user_id
"""


async def _workspace(connection: Connection, workspace_id: WorkspaceId, user_id: UserId) -> Workspace:
    cursor = await connection.execute(
        """
        select w.id, w.name, m.role, w.home_node, w.created_at
        from toolcrib.workspaces w join toolcrib.members m on m.workspace_id = w.id
        where w.id = %s and m.user_id = %s
        """,
        (workspace_id, user_id),
    )
    row = await cursor.fetchone()
    assert row is not None, "whoever got in is a member"
    return _as_workspace(*row)


async def _member(connection: Connection, tenant: Tenant, user_id: UserId) -> Member:
    cursor = await connection.execute(
        _MEMBERS + "where m.workspace_id = %s and m.user_id = %s", (tenant.workspace_id, user_id)
    )
    row = await cursor.fetchone()
    if row is None:
        raise _no_member(user_id)
    return _as_member(*row)


async def _refuse_last_owner(connection: Connection, tenant: Tenant, user_id: UserId) -> None:
    cursor = await connection.execute(
        "select user_id from toolcrib.members where workspace_id = %s and role = %s",
        (tenant.workspace_id, Role.OWNER),
    )
    if [owner for (owner,) in await cursor.fetchall()] == [user_id]:
        raise Conflict("This is the workspace's last owner. Make another member owner first.")


def _user(tenant: Tenant) -> UserId:
    assert tenant.user_id is not None, "the system has no role in a workspace"
    return tenant.user_id


def _as_workspace(
    workspace_id: WorkspaceId, name: str, role: str, home_node: str | None, created_at: datetime
) -> Workspace:
    return Workspace(workspace_id, name, Role(role), home_node, created_at)


def _as_member(user_id: UserId, email: str, full_name: str | None, role: str, joined_at: datetime) -> Member:
    return Member(user_id, email, full_name, Role(role), joined_at)


def _no_member(user_id: UserId) -> NotFound:
    return NotFound(f"User {user_id} is not a member of this workspace.")
