"""Workspaces and members in the database: roles apply, also in concurrent changes."""

import asyncio

import pytest

from tests.integration.storage.accounts import as_tenant, founded, joined, someone, user_of
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, Forbidden, NotFound, Unauthenticated
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.storage.workspaces import Member, WorkspaceStore
from toolcrib.wiring.tool_runtime import Stores


@pytest.fixture
def workspaces(stores: Stores) -> WorkspaceStore:
    return stores.workspaces


async def owners(workspaces: WorkspaceStore, tenant: Tenant) -> list[Member]:
    return [member for member in await workspaces.members(tenant) if member.role is WorkspaceRole.OWNER]


async def test_workspace_stores_its_home_node(workspaces: WorkspaceStore, stores: Stores) -> None:
    tenant = await founded(stores, await someone(stores))

    workspace = await workspaces.get(tenant)

    assert (workspace.name, workspace.role, workspace.home_node) == ("website", WorkspaceRole.OWNER, "test-node")


async def test_of_two_owners_who_demote_each_other_at_once_one_remains(
    workspaces: WorkspaceStore, stores: Stores
) -> None:
    for _ in range(5):
        ada = await founded(stores, await someone(stores))
        bob = await joined(stores, ada, WorkspaceRole.OWNER)

        outcomes = await asyncio.gather(
            workspaces.change_role(ada, user_of(bob), WorkspaceRole.MEMBER),
            workspaces.change_role(bob, user_of(ada), WorkspaceRole.MEMBER),
            return_exceptions=True,
        )

        assert sum(isinstance(outcome, Member) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Forbidden) for outcome in outcomes) == 1
        assert len(await owners(workspaces, ada)) == 1


async def test_of_two_owners_who_step_down_at_once_one_remains(
    workspaces: WorkspaceStore, database: Database, stores: Stores
) -> None:
    for _ in range(5):
        ada = await founded(stores, await someone(stores))
        bob = await joined(stores, ada, WorkspaceRole.OWNER)

        outcomes = await asyncio.gather(
            workspaces.change_role(ada, user_of(ada), WorkspaceRole.MEMBER),
            workspaces.remove_member(bob, user_of(bob)),
            return_exceptions=True,
        )

        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 1
        async with database.as_system() as connection:
            cursor = await connection.execute(
                "select count(*) from toolcrib.members where workspace_id = %s and role = 'owner'",
                (ada.workspace_id,),
            )
            assert await cursor.fetchone() == (1,)


@pytest.mark.parametrize("role", [WorkspaceRole.VIEWER, WorkspaceRole.MEMBER])
async def test_lesser_roles_manage_nothing(workspaces: WorkspaceStore, stores: Stores, role: WorkspaceRole) -> None:
    ada = await founded(stores, await someone(stores))
    bob = await joined(stores, ada, role)

    for attempt in (
        workspaces.rename(bob, "bob's"),
        workspaces.delete(bob),
        workspaces.add_member(bob, email="x@example.com", role=WorkspaceRole.OWNER),
        workspaces.change_role(bob, user_of(bob), WorkspaceRole.OWNER),
        workspaces.remove_member(bob, user_of(ada)),
    ):
        with pytest.raises(Forbidden):
            await attempt

    assert [member.role for member in await workspaces.members(ada)] == [WorkspaceRole.OWNER, role]


async def test_strangers_get_the_same_error_for_foreign_and_unknown_workspaces(
    workspaces: WorkspaceStore, stores: Stores
) -> None:
    ada = await founded(stores, await someone(stores))
    stranger = await someone(stores)

    with pytest.raises(Forbidden) as foreign:
        await workspaces.get(as_tenant(ada.workspace_id, stranger))
    await workspaces.delete(ada)
    with pytest.raises(Forbidden) as unknown:
        await workspaces.get(as_tenant(ada.workspace_id, stranger))

    assert foreign.value.message == unknown.value.message


async def test_revoked_token_creates_and_lists_nothing(workspaces: WorkspaceStore, stores: Stores) -> None:
    ada = await someone(stores)
    old = ActingUser(ada.user_id, 7)

    with pytest.raises(Unauthenticated):
        await workspaces.create(old, name="website", node="test-node")
    with pytest.raises(Unauthenticated):
        await workspaces.list_own(old, before=None, limit=10)


async def test_list_has_only_ones_own_workspaces(workspaces: WorkspaceStore, stores: Stores) -> None:
    ada, bob = await someone(stores), await someone(stores)
    adas = await founded(stores, ada)
    await founded(stores, bob)

    listed = await workspaces.list_own(ada, before=None, limit=10)

    assert [workspace.id for workspace in listed] == [adas.workspace_id]


async def test_unknown_member_cannot_be_changed(workspaces: WorkspaceStore, stores: Stores) -> None:
    ada = await founded(stores, await someone(stores))
    stranger = (await someone(stores)).user_id

    with pytest.raises(NotFound):
        await workspaces.change_role(ada, stranger, WorkspaceRole.OWNER)
    with pytest.raises(NotFound):
        await workspaces.remove_member(ada, stranger)
