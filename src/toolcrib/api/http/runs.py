"""Messages to an agent, and the runs that answer them."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, Field, StringConstraints

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, Authenticated, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import ErrorInfo, InModel, OutModel, Page
from toolcrib.core.ids import RunId, SessionId
from toolcrib.core.runs import RunEnding, RunState

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["runs"], route_class=StrictRoute)

# PostgreSQL cannot store NUL.
Text = Annotated[str, StringConstraints(min_length=1, max_length=200_000, pattern=r"^[^\x00]*$")]


_BEGINNING = 300


def _beginning(text: str) -> str:
    return text if len(text) <= _BEGINNING else f"{text[:_BEGINNING]}…"


class MessageCreate(InModel):
    """A person's message to the session's agent."""

    text: Text = Field(examples=["Add a test for the parser."])


class RunOut(OutModel):
    """A run and its progress."""

    id: UUID
    session_id: UUID
    user_id: UUID
    agent_id: UUID | None
    prompt_preview: Annotated[str, BeforeValidator(_beginning)] = Field(
        validation_alias="prompt", description="The beginning of the message that started the run."
    )
    state: RunState
    end_reason: RunEnding | None = Field(description="Why the run ended; null if it has not ended.")
    error: ErrorInfo | None
    turns: int
    input_tokens: int
    output_tokens: int
    context_tokens: int
    active_ms: int = Field(description="Active time in milliseconds, without the time spent waiting for a person.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class FunctionOut(OutModel):
    name: str
    arguments: str = Field(description="JSON text from the model.")


class MessageToolCallOut(OutModel):
    id: str = Field(description="The provider's id of the call.")
    type: Literal["function"]
    function: FunctionOut
    call_id: UUID


class MessageMetadataOut(OutModel):
    """Everything besides the text; each field only where it applies."""

    tool_calls: list[MessageToolCallOut] | None = None
    thinking: str | None = None
    note: dict[str, Any] | None = Field(
        default=None, description="Provider data that is sent back to the provider with the message."
    )
    concluded: bool | None = None
    cut: bool | None = Field(default=None, description="True if the message is incomplete.")
    tool_call_id: str | None = Field(
        default=None, description="The provider's id of the call whose result this is. Only in messages of tools."
    )
    call_id: UUID | None = None
    is_error: bool | None = None
    summarised_by: Literal["model", "rule"] | None = None
    messages: list[UUID] | None = Field(default=None, description="The messages that this summary replaces.")


class MessageOut(OutModel):
    """A message of a session. `tool_calls` in the metadata name calls; fetch their outcomes by `call_id`."""

    id: UUID
    position: int
    run_id: UUID | None
    role: Literal["user", "assistant", "summary", "tool"]
    content: str
    metadata: MessageMetadataOut | None
    created_at: datetime | None


@router.post(
    "/sessions/{session_id}/messages",
    status_code=202,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="send_message",
)
async def send(
    workspace_id: UUID, session_id: UUID, given: MessageCreate, principal: APerson, services: Injected
) -> RunOut:
    """Send a message. Members only. A run answers it: now, or after the session's current run."""
    tenant = tenant_for(principal, workspace_id)
    run = await services.run_service.submit(tenant, SessionId(session_id), given.text, via="rest")
    return RunOut.model_validate(run)


@router.get(
    "/sessions/{session_id}/messages",
    response_model_exclude_unset=True,
    responses=examples("INVALID_TOKEN", "FORBIDDEN"),
    name="list_messages",
)
async def messages(
    workspace_id: UUID,
    session_id: UUID,
    principal: APerson,
    services: Injected,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
    results: Annotated[bool, Query(description="Include tool results as messages.")] = False,  # noqa: FBT002 - by name
) -> Page[MessageOut]:
    """List the messages in order, including those that a summary has replaced."""
    tenant, session = tenant_for(principal, workspace_id), SessionId(session_id)
    found = await services.run_service.messages(tenant, session, after=after, limit=limit, results=results)
    items = [MessageOut.model_validate(one) for one in found]
    full = sum(one.role != "tool" for one in items) == limit
    return Page(items=items, next=str(items[-1].position) if full else None)


@router.get("/sessions/{session_id}/runs", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_runs")
async def list_all(
    workspace_id: UUID,
    session_id: UUID,
    principal: APerson,
    services: Injected,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[RunOut]:
    """List a session's runs, newest first."""
    found = await services.run_service.page(
        tenant_for(principal, workspace_id),
        SessionId(session_id),
        before=None if before is None else RunId(before),
        limit=limit,
    )
    items = [RunOut.model_validate(run) for run in found]
    return Page(items=items, next=str(items[-1].id) if len(items) == limit else None)


@router.get("/runs/{run_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"), name="get_run")
async def get(workspace_id: UUID, run_id: UUID, principal: Authenticated, services: Injected) -> RunOut:
    """Return one run."""
    return RunOut.model_validate(await services.run_service.get(tenant_for(principal, workspace_id), RunId(run_id)))


@router.post(
    "/runs/{run_id}/cancel",
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="cancel_run",
)
async def cancel(workspace_id: UUID, run_id: UUID, principal: APerson, services: Injected) -> RunOut:
    """Cancel a run within a second, on whatever node it is. Members only. Its changes can be undone."""
    run = await services.run_service.cancel(tenant_for(principal, workspace_id), RunId(run_id))
    return RunOut.model_validate(run)
