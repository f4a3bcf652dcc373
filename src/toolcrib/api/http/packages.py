"""Agent packages of a workspace: installed from an archive, listed, removed."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Request
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import OutModel, Page
from toolcrib.core.packages import Package

router = APIRouter(prefix="/workspaces/{workspace_id}/packages", tags=["packages"], route_class=StrictRoute)

_ARCHIVE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A zip, tar or tar.gz file. Detected from its first bytes; the content type is ignored.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class PackageAnswer(OutModel):
    """A package, visible under `@pkg`. Its agents belong to the workspace and have the limits of package agents."""

    name: str = Field(examples=["demo"])
    version: str = Field(examples=["1.0.0"])
    sha256: str = Field(description="SHA-256 of the archive.")
    files: int
    bytes: int = Field(description="Total size of the unpacked files.")
    agents: list[str] = Field(description="The names of the agents in the workspace.", examples=[["demo.planner"]])
    has_workflow: bool = Field(description="True if sessions can run the package's workflow.")
    installed_by: UUID
    installed_at: datetime


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT", "TOO_LARGE"),
    openapi_extra=_ARCHIVE,
    name="install_package",
)
async def install(workspace_id: UUID, request: Request, principal: APerson, services: Injected) -> PackageAnswer:
    """Install a zip, tar or tar.gz, or another version of the installed package. Owners only."""
    tenant = tenant_for(principal, workspace_id)
    await services.packages.require_installer(tenant)
    return _shown(await services.packages.install(tenant, await request.body()))


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_packages")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[PackageAnswer]:
    """List the workspace's package, if it has one."""
    found = await services.packages.rows.list(tenant_for(principal, workspace_id))
    return Page(items=[_shown(package) for package in found])


@router.delete(
    "/{package_name}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="remove_package",
)
async def remove(
    workspace_id: UUID,
    package_name: Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$", examples=["demo"])],
    principal: APerson,
    services: Injected,
) -> None:
    """Remove a package and its agents. Owners only. Sessions that run its workflow continue."""
    await services.packages.remove(tenant_for(principal, workspace_id), package_name)


def _shown(package: Package) -> PackageAnswer:
    return PackageAnswer(
        name=package.name,
        version=package.version,
        sha256=package.sha256.hex(),
        files=package.files,
        bytes=package.size,
        agents=list(package.agents),
        has_workflow=package.has_workflow,
        installed_by=package.installed_by,
        installed_at=package.installed_at,
    )
