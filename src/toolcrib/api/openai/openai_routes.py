"""``/v1/models`` and ``/v1/chat/completions``, for clients without sessions that resend the conversation."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import JSONResponse, Response

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.connection_auth import ConnectionAuth, auth_by_secret, run_while_connected
from toolcrib.api.auth.principal import Principal, bearer, caller_for, tenant_for
from toolcrib.api.http_errors import STATUS, answer_to
from toolcrib.api.message_attachments import attach_files
from toolcrib.api.openai.completion_request import ClientConversation, CompletionRequest
from toolcrib.api.openai.completion_response import DONE, Completion, CompletionAnswer, CompletionStream
from toolcrib.api.pause_notices import origin_of
from toolcrib.api.request_guard import StrictRoute
from toolcrib.core.errors import AnswerNotKept, Forbidden, NotFound, ToolcribError, Unauthenticated
from toolcrib.core.idempotency import current_claim
from toolcrib.core.ids import RunId, WorkspaceId
from toolcrib.core.messages import session_title
from toolcrib.events import Subscription
from toolcrib.schemas.sessions import AttachedFile
from toolcrib.storage.agents import StoredAgent
from toolcrib.storage.database import Tenant
from toolcrib.storage.events import ConversationCursor
from toolcrib.storage.workspaces import Workspace

_PAGE: Final = 200
# How many workspaces of one person are searched.
_MOST: Final = 2_000
_VIA: Final = "openai"


@dataclass(frozen=True, slots=True)
class AgentModel:
    """An agent of one of the person's workspaces."""

    workspace: Workspace
    agent: StoredAgent

    @property
    def name(self) -> str:
        """The model name: workspace and agent."""
        return f"{self.workspace.name}/{self.agent.name}"

    @property
    def sure_name(self) -> str:
        """The unique model name, with the workspace's id."""
        return f"{self.workspace.id}/{self.agent.name}"


async def listed(services: ApiServices, principal: Principal) -> dict[str, AgentModel]:
    """Return all agents that a person can use, by model name; by the unique name where two names are equal."""
    found = [
        AgentModel(workspace, agent)
        async for workspace in _workspaces(services, principal)
        for agent in await services.agents.list(tenant_for(principal, workspace.id))
    ]
    times = Counter(one.name for one in found)
    return {one.name if times[one.name] == 1 else one.sure_name: one for one in found}


async def called(services: ApiServices, principal: Principal, name: str) -> AgentModel:
    """Return the agent with this model name.

    Raises:
        NotFound: There is none, or more than one.
    """
    fitting = [
        AgentModel(workspace, agent)
        async for workspace in _workspaces(services, principal)
        if name.startswith((f"{workspace.name}/", f"{workspace.id}/"))
        for agent in await services.agents.list(tenant_for(principal, workspace.id))
    ]
    surely = [one for one in fitting if one.sure_name == name]
    meant = surely or [one for one in fitting if one.name == name]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise _no_model(f"There is no model {name!r}. GET /v1/models lists the available agents.")
    choice = ", ".join(repr(one.sure_name) for one in meant)
    raise _no_model(f"{len(meant)} agents are named {name!r}. Use one of: {choice}.")


async def _workspaces(services: ApiServices, principal: Principal) -> AsyncIterator[Workspace]:
    before: WorkspaceId | None = None
    for _ in range(_MOST // _PAGE):
        page = await services.workspaces.list_own(principal.person, before=before, limit=_PAGE)
        for workspace in page:
            yield workspace
        if len(page) < _PAGE:
            return
        before = page[-1].id


def _no_model(message: str) -> NotFound:
    return NotFound(message, fields={"model": "Unknown"})


# Errors after which clients may retry. A retry starts another run, so only errors from before the run are here.
_AGAIN: Final = frozenset({"OVERLOADED", "QUARANTINED", "RATE_LIMITED"})
# OpenAI's codes; other errors have our own code in lower case.
_CODES: Final[Mapping[str, str]] = {
    "INVALID_TOKEN": "invalid_api_key",
    "RATE_LIMITED": "rate_limit_exceeded",
    "INTERNAL_ERROR": "server_error",
}


class OpenAiRoute(StrictRoute):
    """A route whose errors have OpenAI's format."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_their_way(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - the outermost handler of these routes
                return error_response(error, where=f"{request.method} {request.url.path}")

        return handle_their_way


def error_response(error: Exception, *, where: str = "") -> Response:
    """Return the response for an error. An unexpected error is logged; the response has only the log's id."""
    ours = answer_to(error, where=where)
    body = json.loads(bytes(ours.body))
    headers = {name: value for name, value in ours.headers.items() if name not in ("content-length", "content-type")}
    headers["x-should-retry"] = "true" if body["code"] in _AGAIN else "false"
    return JSONResponse(
        {"error": openai_error(body["code"], body["error"], body.get("fields", {}), status=ours.status_code)},
        status_code=ours.status_code,
        headers=headers,
    )


def openai_error(code: str, message: str, fields: Mapping[str, str], *, status: int) -> dict[str, Any]:
    """Return an error in OpenAI's format. The first wrong field is the ``param``."""
    flaws = "; ".join(f"{field}: {flaw}" for field, flaw in fields.items()) if code == "VALIDATION_ERROR" else ""
    return {
        "message": f"{message}: {flaws}" if flaws else message,
        "type": _type(status),
        "param": next(iter(fields), None),
        "code": "model_not_found" if code == "NOT_FOUND" and "model" in fields else _CODES.get(code, code.lower()),
    }


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


router = APIRouter(prefix="/v1", route_class=OpenAiRoute, include_in_schema=False)


@router.get("/models")
async def models(request: Request, services: Injected) -> dict[str, Any]:
    """List the agents of your workspaces as models."""
    authority = await _admitted(request, services)
    found = await listed(services, authority.principal)
    return {"object": "list", "data": [_model(name, offered) for name, offered in found.items()]}


@router.get("/models/{name:path}")
async def model(name: str, request: Request, services: Injected) -> dict[str, Any]:
    """Return one agent as a model."""
    authority = await _admitted(request, services)
    return _model(name, await called(services, authority.principal, name))


@router.post("/chat/completions")
async def complete(given: CompletionRequest, request: Request, services: Injected) -> Response:
    """Send a message to an agent. The answer has all text of its run."""
    authority = await _admitted(request, services)
    conversation = ClientConversation.of(given.messages)
    meant = await called(services, authority.principal, given.model)
    tenant = tenant_for(authority.principal, meant.workspace.id)
    async with AsyncExitStack() as opened:
        opened.enter_context(services.connection_limits.authenticated(authority.principal.user_id))
        answer = await _earlier(services, tenant, origin=origin_of(request)) or await _begun(
            services, authority.principal, meant, conversation, origin=origin_of(request)
        )
        opened.push_async_callback(answer.let_go)
        subscription = await opened.enter_async_context(
            services.live.subscribe(tenant, answer.run.session_id, after=answer.last_seq)
        )
        completion = Completion(f"chatcmpl-{answer.run.id}", given.model, with_usage=given.wants_usage)
        text_stream = _text_stream(services, tenant, meant, conversation, answer, subscription)
        if given.stream:
            return CompletionStream(
                _chunks(completion, answer, text_stream),
                authority=authority,
                pace=services.connection_limits.pace,
                opened=opened.pop_all(),
            )
        whole = _whole(completion, answer, text_stream)
        check_seconds = services.connection_limits.pace.check
        body = await run_while_connected(whole, request.receive, authority=authority, check_seconds=check_seconds)
    if body is None and authority.is_closing:
        raise HTTPException(
            503, "The server is stopping, so the run was cancelled. Send it again.", {"Retry-After": "5"}
        )
    if body is None:
        raise Unauthenticated("This API key or token was revoked or expired, so the run was cancelled.")
    return JSONResponse(body)


async def _admitted(request: Request, services: ApiServices) -> ConnectionAuth:
    token = bearer(request)
    if token is None:
        raise Unauthenticated("Send your API key: `Authorization: Bearer <key>`. Cookies are ignored here.")
    authority = await auth_by_secret(services, token)
    if authority.principal.agent is not None:
        raise Forbidden("An agent's API key can only call tools and read files. Use your own API key.")
    return authority


async def _earlier(services: ApiServices, tenant: Tenant, *, origin: str) -> CompletionAnswer | None:
    """Return the answer of the run that an earlier request with the same idempotency key submitted, if it did."""
    claim = current_claim()
    if claim is None or not claim.is_retry:
        return None
    try:
        run = await services.run_service.runs.get(tenant, RunId(claim.effect_id))
    except NotFound:
        if claim.was_answered:
            raise AnswerNotKept("The request with this key was answered, and its session is deleted.") from None
        return None
    last_seq = 0
    while page := await services.sessions.events_after(tenant, run.session_id, last_seq, limit=_PAGE):
        for event in page:
            if event.payload.get("runId") == str(run.id):
                return CompletionAnswer(services, tenant, run, last_seq=last_seq, origin=origin)
            last_seq = event.seq or last_seq
    return CompletionAnswer(services, tenant, run, last_seq=last_seq, origin=origin)


async def _begun(
    services: ApiServices, principal: Principal, meant: AgentModel, conversation: ClientConversation, *, origin: str
) -> CompletionAnswer:
    """Submit the message: in the session of this conversation, or in a new one that gets the history."""
    tenant = tenant_for(principal, meant.workspace.id)
    assert tenant.user_id is not None
    digest = conversation.digest(tenant.user_id, meant.agent.id)
    cursor = None if digest is None else await services.conversation_cursors.load(tenant, digest)
    if cursor is None:
        session = await services.sessions.create(
            tenant, title=session_title(conversation.prompt), agent_id=meant.agent.id
        )
        cursor, text, history = ConversationCursor(session.id, 0), conversation.prompt, conversation.history
        files = conversation.attachments
    else:
        new, history = conversation.since_the_answer, []
        text, files = new.text, new.attachments
    attached = await attach_files(
        services,
        caller_for(principal, meant.workspace.id, session_id=cursor.session_id, via=_VIA),
        [AttachedFile(name=one.name, data=one.base64) for one in files],
    )
    run = await services.run_service.submit(
        tenant, cursor.session_id, text, via=_VIA, history=history, attachments=attached
    )
    return CompletionAnswer(services, tenant, run, last_seq=cursor.last_seq, origin=origin)


async def _text_stream(
    services: ApiServices,
    tenant: Tenant,
    meant: AgentModel,
    conversation: ClientConversation,
    answer: CompletionAnswer,
    subscription: Subscription,
) -> AsyncIterator[str]:
    """Yield the answer's text. At the end, save the cursor from which the client will continue."""
    async for piece in answer.pieces(subscription):
        yield piece
    assert tenant.user_id is not None
    digest = conversation.digest(tenant.user_id, meant.agent.id, answer=answer.text)
    if answer.text.strip() and digest is not None:
        await services.conversation_cursors.save(
            tenant, ConversationCursor(answer.run.session_id, answer.last_seq), digest
        )


async def _whole(completion: Completion, answer: CompletionAnswer, text_stream: AsyncIterator[str]) -> dict[str, Any]:
    async for _ in text_stream:
        pass
    return completion.whole(answer.text, finish=answer.finish, usage=answer.usage)


async def _chunks(
    completion: Completion, answer: CompletionAnswer, text_stream: AsyncIterator[str]
) -> AsyncIterator[dict[str, Any]]:
    yield completion.chunk(role="assistant", content="")
    try:
        async for piece in text_stream:
            yield completion.chunk(content=piece)
    except ToolcribError as error:
        yield {"error": openai_error(error.code, error.message, error.fields, status=STATUS.get(error.code, 500))}
        return
    yield completion.chunk(finish=answer.finish)
    if completion.with_usage:
        yield completion.last(answer.usage)
    yield DONE


def _model(name: str, offered: AgentModel) -> dict[str, Any]:
    created = int(offered.agent.created_at.timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": offered.workspace.name}
