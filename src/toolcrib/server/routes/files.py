"""Files and their versions: the past of a workspace, over HTTP. Each route is a tool call through the gate."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from toolcrib.domain.outcomes import Outcome
from toolcrib.server.auth import Authenticated, Principal, caller_for
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.results import Comparison, DeletedFiles, FileInfo, FileVersions, Restored, VersionWithContent
from toolcrib.server.routes.tools import WAITS, Called, answer
from toolcrib.server.services import Injected, Services
from toolcrib.server.shapes import Given
from toolcrib.tools.call import ToolCall

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["files"], route_class=StrictRoute)

_REFUSALS = examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND")
Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/files", response_model=Called[FileInfo], responses=_REFUSALS)
async def find_file(workspace_id: UUID, path: str, principal: Authenticated, services: Injected) -> Response:
    """What stands at a path, on disk or in the history."""
    return answer(await _call(services, principal, workspace_id, "file_info", path=path))


@router.get("/deleted-files", response_model=Called[DeletedFiles], responses=_REFUSALS)
async def list_deleted_files(
    workspace_id: UUID, principal: Authenticated, services: Injected, limit: Limit = 50
) -> Response:
    """Deleted files, the latest first."""
    return answer(await _call(services, principal, workspace_id, "deleted_files", limit=limit))


@router.get("/files/{file_id}/versions", response_model=Called[FileVersions], responses=_REFUSALS)
async def list_versions(
    workspace_id: UUID,
    file_id: UUID,
    principal: Authenticated,
    services: Injected,
    before: int | None = None,
    limit: Limit = 50,
) -> Response:
    """A file's versions, the newest first, with their authors."""
    return answer(
        await _call(services, principal, workspace_id, "file_versions", file_id=file_id, before=before, limit=limit)
    )


@router.get("/versions/{version_id}", response_model=Called[VersionWithContent], responses=_REFUSALS)
async def read_version(workspace_id: UUID, version_id: UUID, principal: Authenticated, services: Injected) -> Response:
    """A version with its content."""
    return answer(await _call(services, principal, workspace_id, "file_version", version_id=version_id))


@router.get("/versions/{from_version}/compare/{to_version}", response_model=Called[Comparison], responses=_REFUSALS)
async def compare_versions(
    workspace_id: UUID, from_version: UUID, to_version: UUID, principal: Authenticated, services: Injected
) -> Response:
    """What changed from one version to another, as a unified diff."""
    return answer(
        await _call(
            services,
            principal,
            workspace_id,
            "file_compare",
            from_version=from_version,
            to_version=to_version,
        )
    )


class Restoring(Given):
    """Which version to bring back; of a deleted file, by default its last one."""

    version_id: UUID | None = None


@router.post(
    "/files/{file_id}/restore", response_model=Called[Restored], responses=WAITS | _REFUSALS | examples("CONFLICT")
)
async def restore_file(
    workspace_id: UUID, file_id: UUID, wanted: Restoring, principal: Authenticated, services: Injected
) -> Response:
    """Brings a version back as a new one; nothing is lost."""
    return answer(
        await _call(services, principal, workspace_id, "file_restore", file_id=file_id, version_id=wanted.version_id)
    )


async def _call(services: Services, principal: Principal, workspace_id: UUID, tool: str, **arguments: Any) -> Outcome:
    given = {name: str(value) if isinstance(value, UUID) else value for name, value in arguments.items()}
    return await services.executor.execute(ToolCall(tool, given), caller_for(principal, workspace_id))
