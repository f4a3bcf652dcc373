"""Paused calls of a workspace: lists, decides, answers and cancels them; lists and revokes grants."""

from typing import Annotated, Literal

from fastapi import Query

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.request_tenant import AnyTenant, PersonTenant
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.ids import CallId, GrantId, PauseId, SessionId
from toolcrib.core.paused_calls import PauseKind
from toolcrib.schemas.paused_calls import (
    AnswersIn,
    ApprovalDecisionIn,
    ApprovalOut,
    ChangesPageOut,
    EditPreviewOut,
    FileEditsIn,
    GrantOut,
    PausedCallOut,
    PausedCallPage,
    ProposedFileOut,
    QuestionPauseOut,
    paused_call_out,
    whole_paused_call_out,
)
from toolcrib.schemas.schema_base import Page

router = api_router("/workspaces/{workspace_id}", tag="paused calls")


@router.get("/paused-calls", response_model_exclude_unset=True)
async def list_paused_calls(
    tenant: AnyTenant,
    services: Injected,
    kind: PauseKind | None = None,
    state: Annotated[Literal["pending", "all"], Query(description="`all`: also those that have ended.")] = "pending",
    session_id: SessionId | None = None,
    after: PauseId | None = None,
    limit: int = Query(default=100, ge=1, le=500),
) -> PausedCallPage:
    """List the paused calls, oldest first. An agent sees its own."""
    found = await services.paused_calls.list(
        tenant, kind=kind, session_id=session_id, pending_only=state == "pending", after=after, limit=limit
    )
    return PausedCallPage.of(map(paused_call_out, found), limit=limit)


@router.get("/paused-calls/{pause_id}", response_model_exclude_unset=True, responses=examples("NOT_FOUND"))
async def get_paused_call(pause_id: PauseId, tenant: AnyTenant, services: Injected) -> PausedCallOut:
    """Return one paused call in any state."""
    return whole_paused_call_out(await services.paused_calls.get(tenant, pause_id))


@router.post(
    "/paused-calls/{pause_id}/decision",
    response_model=ApprovalOut,
    response_model_exclude_unset=True,
    responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"),
)
async def decide_paused_call(
    pause_id: PauseId, given: ApprovalDecisionIn, tenant: PersonTenant, services: Injected
) -> PausedCallOut:
    """Approve or reject a call. Members only; owners only for the scope `always`. The first decision counts."""
    return paused_call_out(await services.paused_calls.decide(tenant, pause_id, given.decision, via="rest"))


@router.post(
    "/paused-calls/{pause_id}/edit-preview",
    response_model_exclude_unset=True,
    responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"),
)
async def preview_edited_call(
    pause_id: PauseId, given: FileEditsIn, tenant: PersonTenant, services: Injected
) -> EditPreviewOut:
    """Return what a pending call would change with a person's edits, and its hash. Members only. Stores nothing."""
    edits = [one.edit for one in given.edits]
    found = await services.paused_calls.preview_edits(tenant, pause_id, edits)
    return EditPreviewOut.model_validate({"changes": found.changes, "change_set_sha256": found.sha256})


@router.get(
    "/paused-calls/{pause_id}/changes",
    response_model_exclude_unset=True,
    responses=examples("NOT_FOUND", "CONFLICT"),
)
async def list_proposed_changes(
    pause_id: PauseId,
    tenant: AnyTenant,
    services: Injected,
    first: Annotated[int, Query(ge=0, le=2**31 - 1, description="The number of the first change.")] = 0,
    from_line: Annotated[int, Query(ge=0, le=2**31 - 1, description="Where the lines of the first one begin.")] = 0,
) -> ChangesPageOut:
    """Return some changes of a pending call with all their lines, however many it has."""
    found = await services.paused_calls.changes_page(tenant, pause_id, first=first, from_line=from_line)
    return ChangesPageOut.model_validate({"changes": found.entries, "next": found.next})


@router.get("/paused-calls/{pause_id}/file", responses=examples("NOT_FOUND", "CONFLICT"))
async def get_proposed_file(
    pause_id: PauseId,
    tenant: PersonTenant,
    services: Injected,
    path: Annotated[str, Query(max_length=5_000, description="As in `changes`.")],
) -> ProposedFileOut:
    """Return the content that a pending call would give to a file, to edit it. Members only."""
    return ProposedFileOut(path=path, content=await services.paused_calls.proposed_text(tenant, pause_id, path))


@router.post(
    "/paused-calls/{pause_id}/answers",
    response_model=QuestionPauseOut,
    response_model_exclude_unset=True,
    responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"),
)
async def answer_paused_call(
    pause_id: PauseId, given: AnswersIn, tenant: PersonTenant, services: Injected
) -> PausedCallOut:
    """Answer a call's questions. Members only. Each answer must match its schema. The first answer counts."""
    answered = await services.paused_calls.answer(
        tenant, pause_id, given.answers, buttons=given.answered_with_button, via="rest"
    )
    return paused_call_out(answered)


@router.post("/calls/{call_id}/cancel", response_model_exclude_unset=True, responses=examples("NOT_FOUND", "CONFLICT"))
async def cancel_call(call_id: CallId, tenant: AnyTenant, services: Injected) -> PausedCallOut:
    """Cancel a call that waits for a person. An agent can cancel its own calls."""
    return paused_call_out(await services.paused_calls.cancel(tenant, call_id))


@router.get("/grants")
async def list_grants(tenant: PersonTenant, services: Injected) -> Page[GrantOut]:
    """List the grants: what people approved beyond a single call and have not revoked."""
    return Page[GrantOut].of(await services.grants.list(tenant))


@router.delete("/grants/{grant_id}", status_code=204, responses=examples("NOT_FOUND"))
async def revoke_grant(grant_id: GrantId, tenant: PersonTenant, services: Injected) -> None:
    """Revoke a grant. From the agent's next call on, a person is asked again."""
    await services.grants.revoke(tenant, grant_id)
