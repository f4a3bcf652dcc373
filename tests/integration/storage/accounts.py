"""People and workspaces for tests below HTTP."""

import secrets

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import Stores


def new_email() -> str:
    """Return an address that no other test uses: tests share a database."""
    return f"{secrets.token_hex(8)}@example.com"


async def someone(stores: Stores, email: str | None = None) -> ActingUser:
    profile = await stores.accounts.create_user(
        email=email or new_email(), full_name="Ada", password_hash="no hash of any password"
    )
    return ActingUser(profile.user_id, 0)


async def founded(stores: Stores, owner: ActingUser) -> Tenant:
    """A new workspace, with its owner as the tenant."""
    workspace = await stores.workspaces.create(owner, name="website", node="test-node")
    return as_tenant(workspace.id, owner)


async def joined(stores: Stores, tenant: Tenant, role: WorkspaceRole) -> Tenant:
    """The same workspace, with a new member of that role as the tenant."""
    email = new_email()
    newcomer = await someone(stores, email)
    await stores.workspaces.add_member(tenant, email=email, role=role)
    return as_tenant(tenant.workspace_id, newcomer)


def as_tenant(workspace_id: WorkspaceId, person: ActingUser) -> Tenant:
    return Tenant(workspace_id, person.user_id, person.token_version)


def user_of(tenant: Tenant) -> UserId:
    assert tenant.user_id is not None
    return tenant.user_id
