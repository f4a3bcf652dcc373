"""The tenant of a request: its principal in the workspace that the URL names. As parameters of routes."""

from typing import Annotated

from fastapi import Depends

from toolcrib.api.auth.principal import APerson, Authenticated, tenant_for
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant


async def _of_anyone(workspace_id: WorkspaceId, principal: Authenticated) -> Tenant:
    return tenant_for(principal, workspace_id)


async def _of_person(workspace_id: WorkspaceId, principal: APerson) -> Tenant:
    return tenant_for(principal, workspace_id)


# A person or an agent.
AnyTenant = Annotated[Tenant, Depends(_of_anyone)]
PersonTenant = Annotated[Tenant, Depends(_of_person)]
