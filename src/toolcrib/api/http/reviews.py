"""The review of what a session's agent changed. Both routes are tool calls of a person through the gate."""

from typing import Annotated, Any

from fastapi import Query

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import APerson, caller_for
from toolcrib.api.call_retries import execute_once
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.callers import Caller
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.core.tool_calls import ToolCall
from toolcrib.schemas.reviews import ReviewDecisionIn, ReviewDecisionOut, ReviewOut

router = api_router("/workspaces/{workspace_id}", tag="reviews")


@router.get("/sessions/{session_id}/review", responses=examples("NOT_FOUND"))
async def get_review(
    workspace_id: WorkspaceId,
    session_id: SessionId,
    principal: APerson,
    services: Injected,
    path: Annotated[
        str | None, Query(max_length=5_000, description="Show only this file, by pages of its lines.")
    ] = None,
    from_line: Annotated[int, Query(ge=0, description="With `path`: the first line, from the page before.")] = 0,
    offset: Annotated[int, Query(ge=0, description="The first file, from the page before.")] = 0,
) -> ReviewOut:
    """Return what the session's agent changed since the last review, by file and by hunk."""
    arguments = {"session_id": str(session_id), "path": path, "from_line": from_line, "offset": offset}
    return ReviewOut.model_validate(await _call(services, "review", arguments, caller_for(principal, workspace_id)))


@router.post("/sessions/{session_id}/review", responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def decide_review(
    workspace_id: WorkspaceId,
    session_id: SessionId,
    given: ReviewDecisionIn,
    principal: APerson,
    services: Injected,
) -> ReviewDecisionOut:
    """Keep, revert or edit what was shown. Members only. Nothing is done if a file has changed or was decided since."""
    caller = caller_for(principal, workspace_id, session_id=session_id)
    done = await _call(services, "review_decide", given.model_dump(mode="json"), caller)
    return ReviewDecisionOut.model_validate(done)


async def _call(services: ApiServices, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
    outcome = await execute_once(services, ToolCall(tool, arguments), caller)
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
