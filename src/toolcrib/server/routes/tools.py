"""The endpoint for tools: one address for every tool, and what a caller is offered there."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from toolcrib.domain.callers import Agent, Caller, Role
from toolcrib.domain.errors import BadArguments
from toolcrib.domain.ids import AgentId, CallId, SessionId, WorkspaceId
from toolcrib.domain.outcomes import Outcome
from toolcrib.policy.decisions import Verdict
from toolcrib.server.auth import APerson, Authenticated, Principal, authenticate, caller_for, tenant_for
from toolcrib.server.bodies import StrictRoute, strict_json
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected, services_of
from toolcrib.server.shapes import CallState, Given, KeptError, Shown
from toolcrib.tools.call import ToolCall
from toolcrib.tools.tool import ToolDefinition

router = APIRouter(tags=["tools"], route_class=StrictRoute)

ResultT = TypeVar("ResultT")


class Call(Given):
    """A tool and its arguments."""

    tool: str = Field(max_length=200, examples=["read"])
    args: dict[str, Any] = Field(examples=[{"path": "/documents/report.md"}])
    session_id: UUID | None = Field(default=None, description="The session that the call belongs to.")


class Cut(BaseModel):
    """A result was shortened for a model; the whole is fetched by the call's id."""

    cut: Literal[True]
    bytes: int = Field(description="Of the whole.")
    call_id: UUID


class Called(BaseModel, Generic[ResultT]):
    """A call that succeeded. ``cut`` is there when the result was shortened for a model; then it may lack its shape."""

    success: Literal[True] = True
    result: ResultT
    error: None = None
    cut: Cut | None = None


class AnyCalled(Called[Any]):
    """A call that succeeded. What ``result`` is depends on the tool: `ToolResults` has it by the tool's name."""


class Pending(BaseModel):
    """A call that waits for a person."""

    status: Literal["approval_pending"]
    approval_id: UUID
    call_id: UUID
    reason: str
    expires_at: datetime


class Accepted(BaseModel):
    """A call that was accepted, and will be carried out if a person allows it."""

    success: Literal[True] = True
    result: Pending
    error: None = None


WAITS: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": Accepted, "description": "A person must decide first; fetch the outcome by the call's id."}
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


_CALL_SCHEMA = {"schema": Call.model_json_schema(), "examples": _EXAMPLES}


@router.post(
    "/workspaces/{workspace_id}/tools",
    response_model=AnyCalled,
    responses={
        **WAITS,
        **examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_PERMITTED", "NOT_FOUND", "CONFLICT"),
    },
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": _CALL_SCHEMA}}},
)
async def call_tool(workspace_id: UUID, request: Request) -> Response:
    """Executes a tool in a workspace."""
    services = services_of(request)
    principal = await authenticate(request)
    call = _call(await request.body())
    caller = caller_for(principal, workspace_id, session_id=call.session_id)
    if call.session_id is not None and caller.is_agent:
        session = await services.sessions.get(tenant_for(principal, workspace_id), SessionId(call.session_id))
        caller = replace(caller, mode=session.mode)
    outcome = await services.executor.execute(ToolCall(call.tool, call.args), caller)
    return answer(outcome)


async def call_tool_directly(request: Request) -> Response:
    """The same, for the address that is called most: past what FastAPI would look up, inject and check.

    It answers; the route above describes it. Half of a read's time went into the way from one to the other.
    """
    try:
        workspace_id = UUID(request.path_params["workspace_id"])
    except ValueError:
        raise BadArguments({"workspace_id": "Input should be a valid UUID"}) from None
    return await call_tool(workspace_id, request)


def _call(body: bytes) -> Call:
    try:
        return Call.model_validate(strict_json(body))
    except ValidationError as error:
        fields = {".".join(str(step) for step in detail["loc"]) or "body": detail["msg"] for detail in error.errors()}
        raise BadArguments(fields) from None


def answer(outcome: Outcome) -> Response:
    """An outcome over HTTP: its result in the envelope, or its error raised if the tool does not tell it itself.

    A call that waits for a decision is accepted, not done (202): its outcome is fetched later by the call's id.
    """
    if outcome.error is not None and outcome.result is None:
        raise outcome.error
    if outcome.is_waiting and outcome.result is None:
        accepted = {"success": True, "result": dict(outcome.metadata), "error": None}
        return Response(to_json(accepted), status_code=202, media_type="application/json")
    content = {"success": True, "result": outcome.result, "error": None}
    if outcome.metadata and not outcome.is_waiting:
        content["cut"] = dict(outcome.metadata)
    # Written at once rather than checked against the model first: this is the address that is called most.
    return Response(to_json(content), media_type="application/json")


@router.get("/workspaces/{workspace_id}/tools", responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def list_tools(workspace_id: UUID, principal: Authenticated, services: Injected) -> list[ToolDefinition]:
    """The tools that you are offered here, with the schemas of their arguments."""
    await services.workspaces.get(tenant_for(principal, workspace_id))
    registry = await services.registry.within(WorkspaceId(workspace_id))
    return registry.definitions_for_scope(principal.agent.rules if principal.agent else None)


class Question(Given):
    """A call that might be made, by you or by one of the workspace's agents."""

    tool: str = Field(max_length=200, examples=["write"])
    args: dict[str, Any] = Field(examples=[{"path": "/notes/x.md", "content": "x"}])
    agent_id: UUID | None = None


class WithheldFile(Shown):
    """A file of a batch that would not be given, though the others would."""

    path: str
    rule: str
    reason: str


class Explained(Shown):
    """What the gate would do with a call, and every rule that it would look at."""

    tool: str
    agent: str | None
    verdict: Verdict
    rule: str
    reason: str
    needs_role: Role
    considered: list[str]
    withheld: list[WithheldFile]


@router.post(
    "/workspaces/{workspace_id}/explain",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
)
async def explain(workspace_id: UUID, question: Question, principal: APerson, services: Injected) -> Explained:
    """Which rule decides a call and why, without running it."""
    await services.workspaces.get(tenant_for(principal, workspace_id))
    caller = await _as_asked(principal, workspace_id, question.agent_id, services)
    tool = (await services.registry.within(caller.workspace_id, question.tool)).get(question.tool)
    found = services.executor.explain(ToolCall(question.tool, question.args), caller, tool=tool)
    return Explained.model_validate(found)


async def _as_asked(principal: Principal, workspace_id: UUID, agent_id: UUID | None, services: Injected) -> Caller:
    if agent_id is None:
        return caller_for(principal, workspace_id)
    agent = await services.agents.get(tenant_for(principal, workspace_id), AgentId(agent_id))
    return caller_for(principal, workspace_id, agent=Agent(agent.id, agent.name, agent.rules))


class KeptCall(Shown):
    """A call as it was kept, with its whole result."""

    id: UUID
    tool: str
    arguments: dict[str, Any] = Field(description="Contents only as size and sha256.")
    state: CallState
    result: Any = Field(description="`ToolResults` has its shape by the tool's name.")
    error: KeptError | None
    change_set_id: UUID | None
    started_at: datetime
    ended_at: datetime | None


@router.get(
    "/workspaces/{workspace_id}/calls/{call_id}",
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
)
async def get_call(workspace_id: UUID, call_id: UUID, principal: Authenticated, services: Injected) -> KeptCall:
    """A call that was kept: one that changed something, or whose result was cut for a model."""
    found = await services.calls.get(tenant_for(principal, workspace_id), CallId(call_id))
    return KeptCall.model_validate(found)
