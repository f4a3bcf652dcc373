"""Tool calls: one URL for every tool, the list of tools, and explanations of the policy."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from toolcrib.api.api_services import Injected, services_of
from toolcrib.api.auth.principal import APerson, Authenticated, Principal, authenticate, caller_for, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute, admit_large, may_be_large, read_json
from toolcrib.api.schema_base import CallState, ErrorInfo, InModel, OutModel
from toolcrib.core.agents import PhaseName
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import AgentId, CallId, SessionId, WorkspaceId
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.policy.authorization import AuthorizationAction
from toolcrib.policy.phases import in_phase, reject_unknown_phase
from toolcrib.policy.trust import in_session
from toolcrib.tools.tool import ToolDefinition

router = APIRouter(tags=["tools"], route_class=StrictRoute)

ResultT = TypeVar("ResultT")


class ToolCallIn(InModel):
    """A tool and its arguments."""

    tool: str = Field(max_length=200, examples=["read"])
    args: dict[str, Any] = Field(examples=[{"path": "/documents/report.md"}])
    session_id: UUID | None = Field(default=None, description="The session of the call.")


class TruncationOut(BaseModel):
    """The result was shortened for a model; fetch the full one by the call's id."""

    total_bytes: int = Field(description="Size of the full result.")
    call_id: UUID
    offset: int = Field(description="The text is complete up to this character. Continue from here with `read_result`.")


class ToolCallOut(BaseModel, Generic[ResultT]):
    """A successful call.

    ``truncated`` is present if the result was shortened for a model; it may then not match its schema.
    """

    success: Literal[True] = True
    result: ResultT
    error: None = None
    truncated: TruncationOut | None = None


class AnyToolCallOut(ToolCallOut[Any]):
    """A successful call. The type of ``result`` depends on the tool: `ToolResults` lists them by tool name."""


class PausedCallRef(BaseModel):
    """A call that waits for a person."""

    status: Literal["approval_pending"]
    approval_id: UUID
    call_id: UUID
    reason: str
    expires_at: datetime


class PausedCallAccepted(BaseModel):
    """An accepted call that will be executed if a person approves it."""

    success: Literal[True] = True
    result: PausedCallRef
    error: None = None


WAITS: Final[dict[int | str, dict[str, Any]]] = {
    202: {
        "model": PausedCallAccepted,
        "description": "The call is paused until a person decides. Fetch the outcome by the call's id.",
    }
}

_EXAMPLES: dict[str, Any] = {
    "ls": {"value": {"tool": "ls", "args": {"path": "/documents", "recursive": False, "limit": 100}}},
    "read": {"value": {"tool": "read", "args": {"path": "/src/main.rs", "offset": 100, "limit": 50}}},
    "write": {"value": {"tool": "write", "args": {"path": "/notes/thoughts.md", "content": "# My thoughts\n"}}},
    "edit": {
        "value": {
            "tool": "edit",
            "args": {
                "path": "/notes/thoughts.md",
                "old_string": "My",
                "new_string": "Our",
                "last_read_hash": "a1b2…",
            },
        }
    },
    "mv": {"value": {"tool": "mv", "args": {"source": "/file.txt", "destination": "/archive/"}}},
}


_CALL_SCHEMA = {"schema": ToolCallIn.model_json_schema(), "examples": _EXAMPLES}


@router.post(
    "/workspaces/{workspace_id}/tools",
    response_model=AnyToolCallOut,
    responses={
        **WAITS,
        **examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_PERMITTED", "NOT_FOUND", "CONFLICT"),
    },
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": _CALL_SCHEMA}}},
)
async def call_tool(workspace_id: UUID, request: Request) -> Response:
    """Execute a tool in a workspace."""
    services = services_of(request)
    principal = await authenticate(request)
    if may_be_large(request):
        await admit_large(request, principal)
    call = await _call(request)
    caller = caller_for(principal, workspace_id, session_id=call.session_id)
    agent = caller.agent
    if call.session_id is not None and agent is not None:
        session = await services.sessions.get(tenant_for(principal, workspace_id), SessionId(call.session_id))
        # Another agent's session does not set this agent's phase; the database rejects such a call as well.
        if session.agent_id == agent.id:
            phased = in_phase(agent, session.phase)
            agent = in_session(phased, session.trust, by_owner=session.trust_by_owner)
        caller = replace(caller, mode=session.mode, agent=agent)
    outcome = await services.executor.execute(ToolCall(call.tool, call.args), caller)
    return outcome_response(outcome)


async def call_tool_fast(request: Request) -> Response:
    """Execute a tool, without FastAPI's dependency lookup, injection and validation.

    This function serves the busiest URL; the route above documents it. FastAPI's part took half of the time of a read.
    """
    try:
        workspace_id = UUID(request.path_params["workspace_id"])
    except ValueError:
        raise BadArguments({"workspace_id": "Input should be a valid UUID"}) from None
    return await call_tool(workspace_id, request)


async def _call(request: Request) -> ToolCallIn:
    try:
        return ToolCallIn.model_validate(await read_json(await request.body()))
    except ValidationError as error:
        fields = {".".join(str(step) for step in detail["loc"]) or "body": detail["msg"] for detail in error.errors()}
        raise BadArguments(fields) from None


def outcome_response(outcome: Outcome) -> Response:
    """Return the HTTP response for an outcome. Raises its error unless the tool encodes errors in its result.

    A call that waits for a decision is accepted (202): fetch its outcome later by the call's id.
    """
    if outcome.error is not None and outcome.result is None:
        raise outcome.error
    if outcome.is_waiting and outcome.result is None:
        accepted = {"success": True, "result": dict(outcome.metadata), "error": None}
        return Response(to_json(accepted), status_code=202, media_type="application/json")
    content = {"success": True, "result": outcome.result, "error": None}
    if outcome.metadata and not outcome.is_waiting:
        content |= outcome.metadata
    # Serialized without validation by the model, because this is the busiest URL.
    return Response(to_json(content), media_type="application/json")


@router.get("/workspaces/{workspace_id}/tools", responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def list_tools(workspace_id: UUID, principal: Authenticated, services: Injected) -> list[ToolDefinition]:
    """List the tools that you may use here, with the schemas of their arguments."""
    await services.workspaces.get(tenant_for(principal, workspace_id))
    registry = await services.registry.for_person(WorkspaceId(workspace_id), principal.user_id)
    return registry.definitions_for_scope(principal.agent.rules if principal.agent else None)


class ExplainIn(InModel):
    """A hypothetical call: by you, by one of the workspace's agents, or by the agent of a session."""

    tool: str = Field(max_length=200, examples=["write"])
    args: dict[str, Any] = Field(examples=[{"path": "/notes/x.md", "content": "x"}])
    agent_id: UUID | None = None
    session_id: UUID | None = Field(
        default=None, description="Use the agent, phase, mode, trust and grants of this session."
    )
    phase: PhaseName | None = Field(
        default=None, description="One of the agent's phases. By default, the session's phase or the agent's first one."
    )


class DeniedFileOut(OutModel):
    """A file of a batch that would be denied, although others would be allowed."""

    path: str
    rule: str
    reason: str


class ExplanationOut(OutModel):
    """What the gate would do with a call, and every rule that it would check."""

    tool: str
    agent: str | None
    action: AuthorizationAction
    rule: str
    reason: str
    required_role: WorkspaceRole
    rules_checked: list[str]
    denied_files: list[DeniedFileOut]


@router.post(
    "/workspaces/{workspace_id}/explain",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
)
async def explain(workspace_id: UUID, question: ExplainIn, principal: APerson, services: Injected) -> ExplanationOut:
    """Explain which rule decides a call and why, without running it."""
    await services.workspaces.get(tenant_for(principal, workspace_id))
    caller = await _as_asked(principal, workspace_id, question, services)
    tool = (await services.registry.for_workspace(caller.workspace_id, question.tool)).get(question.tool)
    found = services.executor.explain(ToolCall(question.tool, question.args), caller, tool=tool)
    return ExplanationOut.model_validate(found)


async def _as_asked(principal: Principal, workspace_id: UUID, question: ExplainIn, services: Injected) -> Caller:
    if question.session_id is not None:
        return await _as_in_session(principal, workspace_id, question, SessionId(question.session_id), services)
    if question.agent_id is None:
        return caller_for(principal, workspace_id)
    agent = await services.agents.get(tenant_for(principal, workspace_id), AgentId(question.agent_id))
    reject_unknown_phase(agent.rules, question.phase)
    return caller_for(principal, workspace_id, agent=in_phase(agent.as_caller, question.phase))


async def _as_in_session(
    principal: Principal, workspace_id: UUID, question: ExplainIn, session_id: SessionId, services: Injected
) -> Caller:
    """Return the caller of a run of this session."""
    tenant = tenant_for(principal, workspace_id)
    session = await services.sessions.get(tenant, session_id)
    if question.agent_id not in (None, session.agent_id):
        raise BadArguments({"agent_id": "The session has another agent. Leave this out."})
    agent = None
    if session.agent_id is not None:
        stored = await services.agents.get(tenant, session.agent_id)
        reject_unknown_phase(stored.rules, question.phase)
        phased = in_phase(stored.as_caller, question.phase or session.phase)
        agent = in_session(phased, session.trust, by_owner=session.trust_by_owner)
    return caller_for(principal, workspace_id, agent=agent, session_id=session.id, mode=session.mode)


class StoredCallOut(OutModel):
    """A stored call with its full result."""

    id: UUID
    tool: str
    arguments: dict[str, Any] = Field(description="The arguments. File contents appear only as size and SHA-256.")
    state: CallState
    result: Any = Field(description="See `ToolResults` for the schema of each tool's result.")
    error: ErrorInfo | None
    change_set_id: UUID | None
    started_at: datetime
    ended_at: datetime | None


@router.get(
    "/workspaces/{workspace_id}/calls/{call_id}",
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
)
async def get_call(workspace_id: UUID, call_id: UUID, principal: Authenticated, services: Injected) -> StoredCallOut:
    """Return a stored call: one that changed something, or whose result was shortened for a model."""
    found = await services.calls.get(tenant_for(principal, workspace_id), CallId(call_id))
    return StoredCallOut.model_validate(found)
