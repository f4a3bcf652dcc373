"""Tool calls: one URL for every tool, the list of tools, explanations of the policy, and the calls of a session."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from math import inf
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.connection_auth import auth_by_headers
from toolcrib.api.auth.principal import (
    APerson,
    Authenticated,
    Principal,
    authenticate,
    caller_for,
    require_person,
    tenant_for,
    workspace_id_of,
)
from toolcrib.api.auth.request_tenant import AnyTenant, PersonTenant
from toolcrib.api.call_retries import execute_once
from toolcrib.api.http_errors import answer_to, examples
from toolcrib.api.request_guard import read_body
from toolcrib.api.request_log import ROUTE_KEY
from toolcrib.api.routers import api_router
from toolcrib.api.session_stream import EventStream
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.idempotency import current_claim
from toolcrib.core.ids import CallId, RunId, SessionId, WorkspaceId
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.policy.trust import in_phase, reject_unknown_phase
from toolcrib.schemas.schema_base import Page
from toolcrib.schemas.tool_calls import (
    AnyToolCallOut,
    CallSummaryOut,
    ExplainIn,
    ExplanationOut,
    PausedCallAccepted,
    StoredCallOut,
    ToolCallIn,
)
from toolcrib.storage.database import Tenant
from toolcrib.tools.tool import ToolDefinition

router = api_router(tag="tools")
history_router = api_router(tag="tool calls")

WAITS: Final[dict[int | str, dict[str, Any]]] = {
    202: {
        "model": PausedCallAccepted,
        "description": "The call is paused until a person decides. Fetch the outcome by the call's id.",
    }
}

_STREAM: Final = "text/event-stream"

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
        **examples("VALIDATION_ERROR", "FORBIDDEN", "NOT_PERMITTED", "NOT_FOUND", "CONFLICT"),
    },
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": _CALL_SCHEMA}}},
)
async def call_tool(workspace_id: UUID, request: Request, services: Injected) -> Response:
    """Execute a tool in a workspace.

    With `Accept: text/event-stream` the answer is a stream, for calls that take long: `output` events with the `text`
    that the tool shows while it runs, then one `end` event with the `status` and the `body` of the usual answer.
    """
    principal = await authenticate(request, services)
    try:
        call = ToolCallIn.model_validate(await read_body(request, principal))
    except ValidationError as error:
        fields = {".".join(str(step) for step in detail["loc"]) or "body": detail["msg"] for detail in error.errors()}
        raise BadArguments(fields) from None
    caller = caller_for(principal, workspace_id, session_id=call.session_id)
    if call.as_person:
        await require_person(principal)
    elif call.session_id is not None:
        session = await services.sessions.get(Tenant.of(caller), SessionId(call.session_id))
        caller = await services.session_agents.caller_in(caller, session)
    execute = partial(execute_once, services, ToolCall(call.tool, call.args), caller)
    if _STREAM not in request.headers.get("accept", ""):
        return outcome_response(await execute())
    async with AsyncExitStack() as opened:
        opened.enter_context(services.connection_limits.authenticated(principal.user_id))
        authority = await auth_by_headers(services, request)
        return EventStream(
            _streamed(execute, where=f"POST {request.url.path}"),
            # The call was authorized when it began, and may take longer than a login's token lasts.
            authority=replace(authority, until=inf),
            pace=services.connection_limits.pace,
            opened=opened.pop_all(),
        )


async def _streamed(execute: Callable[..., Awaitable[Outcome]], *, where: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the output of a call while it runs, and then the response that it would have had.

    A client that disconnects cancels the call, unless its changes are being committed already.
    """
    texts: asyncio.Queue[str | None] = asyncio.Queue()
    running = asyncio.ensure_future(execute(emit=texts.put_nowait))
    running.add_done_callback(lambda _: texts.put_nowait(None))
    try:
        while (text := await texts.get()) is not None:
            yield {"type": "output", "payload": {"text": text}}
        try:
            response = outcome_response(await running)
        except Exception as error:  # noqa: BLE001 - answered as the request guard would
            response = answer_to(error, where=where)
        if (claim := current_claim()) is not None:
            claim.streamed = (response.status_code, bytes(response.body))
        yield {"type": "end", "payload": {"status": response.status_code, "body": json.loads(bytes(response.body))}}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


_TOOLS_TEMPLATE: Final = "/api/v1/workspaces/{workspace_id}/tools"
_TOOLS_PATH: Final = re.compile(r"/api/v1/workspaces/([^/]+)/tools")


class DirectToolCalls:
    """Passes tool calls to ``call_tool`` without FastAPI's routing, dependency injection and validation.

    They are the most frequent requests, and FastAPI's part took half of the time of a read. Errors are answered by the
    request guard, which is outside.
    """

    def __init__(self, app: ASGIApp, services: ApiServices) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        path = _TOOLS_PATH.fullmatch(scope["path"]) if is_post else None
        if path is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"] = {"workspace_id": path[1]}
        scope[ROUTE_KEY] = _TOOLS_TEMPLATE
        response = await call_tool(workspace_id_of(path[1]), Request(scope, receive), self._services)
        await response(scope, receive, send)


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


@router.get("/workspaces/{workspace_id}/tools")
async def list_tools(workspace_id: WorkspaceId, principal: Authenticated, services: Injected) -> list[ToolDefinition]:
    """List the tools that you may use here, with the schemas of their arguments."""
    await services.workspaces.get(tenant_for(principal, workspace_id))
    rules = principal.agent.rules if principal.agent else None
    registry = await services.registry.for_person(workspace_id, principal.user_id, rules)
    return registry.definitions_for_scope(rules)


@router.post("/workspaces/{workspace_id}/explain", responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def explain(workspace_id: UUID, question: ExplainIn, principal: APerson, services: Injected) -> ExplanationOut:
    """Explain which rule decides a call and why, without running it."""
    await services.workspaces.get(tenant_for(principal, workspace_id))
    caller = await _as_asked(principal, workspace_id, question, services)
    is_new = question.definition is not None and question.agent_id is None
    return ExplanationOut.model_validate(
        await services.executor.explain(ToolCall(question.tool, question.args), caller, is_new=is_new)
    )


async def _as_asked(principal: Principal, workspace_id: UUID, question: ExplainIn, services: Injected) -> Caller:
    """Return the person, the agent of that id, or the caller of a run of that session."""
    tenant = tenant_for(principal, workspace_id)
    session = None if question.session_id is None else await services.sessions.get(tenant, question.session_id)
    if session is not None and question.agent_id not in (None, session.agent_id):
        raise BadArguments({"agent_id": "The session has another agent. Leave this out."})
    agent_id = session.agent_id if session else question.agent_id
    agent = None
    if question.definition is not None:
        if session is not None:
            raise BadArguments({"definition": "Not with a session, which has its agent's."})
        agent = await services.agents.draft(
            tenant, definition=question.definition, agent_id=agent_id, known=services.registry.names
        )
    elif agent_id is not None:
        stored = await services.agents.get(tenant, agent_id)
        reject_unknown_phase(stored.rules, question.phase)
        agent = stored.as_caller
    if session is None:
        agent = agent and in_phase(agent, question.phase)
        return caller_for(principal, workspace_id, agent=agent)
    session = replace(session, phase=question.phase or session.phase)
    return await services.session_agents.caller_in(caller_for(principal, workspace_id), session)


@router.get("/workspaces/{workspace_id}/calls/{call_id}", responses=examples("NOT_FOUND"))
async def get_call(call_id: CallId, tenant: AnyTenant, services: Injected) -> StoredCallOut:
    """Return a stored call: one that changed something, or whose result was shortened for a model."""
    return StoredCallOut.model_validate(await services.calls.get(tenant, call_id))


# The calls of a session. The tools `changes` and `undo` list and revert what they changed.


@history_router.get(
    "/workspaces/{workspace_id}/sessions/{session_id}/calls", responses=examples("VALIDATION_ERROR", "NOT_FOUND")
)
async def list_session_calls(
    session_id: SessionId,
    tenant: PersonTenant,
    services: Injected,
    run_id: Annotated[RunId | None, Query(description="Only calls of this run.")] = None,
    before: CallId | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[CallSummaryOut]:
    """List a session's calls, newest first."""
    found = await services.past_calls.page(tenant, session_id, run_id=run_id, before=before, limit=limit)
    return Page[CallSummaryOut].of(found, limit=limit)
