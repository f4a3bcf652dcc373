"""Files and their versions over HTTP. Each route is a tool call through the gate."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import Authenticated, Principal, caller_for
from toolcrib.api.http.tool_calls import WAITS, ToolCallOut, outcome_response
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel
from toolcrib.api.tool_results import (
    DeletedFilesResult,
    FileCompareResult,
    FileInfoResult,
    FileRestoreResult,
    FileVersionResult,
    FileVersionsResult,
)
from toolcrib.core.tool_calls import Outcome, ToolCall

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["files"], route_class=StrictRoute)

_REFUSALS = examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND")
Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/files", response_model=ToolCallOut[FileInfoResult], responses=_REFUSALS)
async def find_file(workspace_id: UUID, path: str, principal: Authenticated, services: Injected) -> Response:
    """Return the file at a path, on disk or in the history."""
    return outcome_response(await _call(services, principal, workspace_id, "file_info", path=path))


@router.get("/deleted-files", response_model=ToolCallOut[DeletedFilesResult], responses=_REFUSALS)
async def list_deleted_files(
    workspace_id: UUID, principal: Authenticated, services: Injected, limit: Limit = 50
) -> Response:
    """List deleted files, most recently deleted first."""
    return outcome_response(await _call(services, principal, workspace_id, "deleted_files", limit=limit))


@router.get("/files/{file_id}/versions", response_model=ToolCallOut[FileVersionsResult], responses=_REFUSALS)
async def list_versions(
    workspace_id: UUID,
    file_id: UUID,
    principal: Authenticated,
    services: Injected,
    before: int | None = None,
    limit: Limit = 50,
) -> Response:
    """List a file's versions with their authors, newest first."""
    return outcome_response(
        await _call(services, principal, workspace_id, "file_versions", file_id=file_id, before=before, limit=limit)
    )


@router.get("/versions/{version_id}", response_model=ToolCallOut[FileVersionResult], responses=_REFUSALS)
async def read_version(workspace_id: UUID, version_id: UUID, principal: Authenticated, services: Injected) -> Response:
    """Return a version with its content."""
    return outcome_response(await _call(services, principal, workspace_id, "file_version", version_id=version_id))


@router.get(
    "/versions/{from_version}/compare/{to_version}", response_model=ToolCallOut[FileCompareResult], responses=_REFUSALS
)
async def compare_versions(
    workspace_id: UUID, from_version: UUID, to_version: UUID, principal: Authenticated, services: Injected
) -> Response:
    """Compare two versions as a unified diff."""
    return outcome_response(
        await _call(
            services,
            principal,
            workspace_id,
            "file_compare",
            from_version=from_version,
            to_version=to_version,
        )
    )


class RestoreIn(InModel):
    """The version to restore; by default the last one of a deleted file."""

    version_id: UUID | None = None


@router.post(
    "/files/{file_id}/restore",
    response_model=ToolCallOut[FileRestoreResult],
    responses=WAITS | _REFUSALS | examples("CONFLICT"),
)
async def restore_file(
    workspace_id: UUID, file_id: UUID, wanted: RestoreIn, principal: Authenticated, services: Injected
) -> Response:
    """Restore a version as a new one. Nothing is lost."""
    return outcome_response(
        await _call(services, principal, workspace_id, "file_restore", file_id=file_id, version_id=wanted.version_id)
    )


async def _call(
    services: ApiServices, principal: Principal, workspace_id: UUID, tool: str, **arguments: Any
) -> Outcome:
    given = {name: str(value) if isinstance(value, UUID) else value for name, value in arguments.items()}
    return await services.executor.execute(ToolCall(tool, given), caller_for(principal, workspace_id))
