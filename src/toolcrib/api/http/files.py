"""Files and their versions over HTTP. Each route is a tool call through the gate."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Response

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import Authenticated, caller_for
from toolcrib.api.call_retries import execute_once
from toolcrib.api.http.tool_calls import WAITS, outcome_response
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.tool_calls import ToolCall
from toolcrib.schemas.schema_base import InModel
from toolcrib.schemas.tool_calls import ToolCallOut
from toolcrib.tools.files.ls import FileInfoResult
from toolcrib.tools.history.file_versions import (
    DeletedFilesResult,
    FileCompareResult,
    FileRestoreResult,
    FileVersionResult,
    FileVersionsResult,
)

router = api_router("/workspaces/{workspace_id}", tag="files", errors=("NOT_FOUND",))


async def _call(workspace_id: UUID, principal: Authenticated, services: Injected) -> Callable[..., Awaitable[Response]]:
    async def call(tool: str, **arguments: Any) -> Response:
        given = {name: str(value) if isinstance(value, UUID) else value for name, value in arguments.items()}
        caller = caller_for(principal, workspace_id)
        return outcome_response(await execute_once(services, ToolCall(tool, given), caller))

    return call


# Calls a tool as the request's principal: ``await call("file_info", path=path)``.
CallTool = Annotated[Callable[..., Awaitable[Response]], Depends(_call)]
Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/files", response_model=ToolCallOut[FileInfoResult])
async def find_file(path: str, call: CallTool) -> Response:
    """Return the file at a path, on disk or in the history."""
    return await call("file_info", path=path)


@router.get("/deleted-files", response_model=ToolCallOut[DeletedFilesResult])
async def list_deleted_files(call: CallTool, limit: Limit = 50) -> Response:
    """List deleted files, most recently deleted first."""
    return await call("deleted_files", limit=limit)


@router.get("/files/{file_id}/versions", response_model=ToolCallOut[FileVersionsResult])
async def list_versions(file_id: UUID, call: CallTool, before: int | None = None, limit: Limit = 50) -> Response:
    """List a file's versions with their authors, newest first."""
    return await call("file_versions", file_id=file_id, before=before, limit=limit)


@router.get("/versions/{version_id}", response_model=ToolCallOut[FileVersionResult])
async def read_version(version_id: UUID, call: CallTool) -> Response:
    """Return a version with its content."""
    return await call("file_version", version_id=version_id)


@router.get("/versions/{from_version}/compare/{to_version}", response_model=ToolCallOut[FileCompareResult])
async def compare_versions(from_version: UUID, to_version: UUID, call: CallTool) -> Response:
    """Compare two versions as a unified diff."""
    return await call("file_compare", from_version=from_version, to_version=to_version)


class RestoreIn(InModel):
    """The version to restore; by default the last one of a deleted file."""

    version_id: UUID | None = None


@router.post(
    "/files/{file_id}/restore", response_model=ToolCallOut[FileRestoreResult], responses=WAITS | examples("CONFLICT")
)
async def restore_file(file_id: UUID, wanted: RestoreIn, call: CallTool) -> Response:
    """Restore a version as a new one. Nothing is lost."""
    return await call("file_restore", file_id=file_id, version_id=wanted.version_id)
