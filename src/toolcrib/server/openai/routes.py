"""``/v1/models`` and ``/v1/chat/completions``: for clients that know no sessions and repeat what was said."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from toolcrib.domain.errors import Forbidden, ToolcribError, Unauthenticated
from toolcrib.engine.live import Subscription
from toolcrib.server.attending import attended
from toolcrib.server.auth import bearer, tenant_for
from toolcrib.server.authority import Authority, by_secret
from toolcrib.server.errors import STATUS
from toolcrib.server.openai.agents import Offered, called, listed
from toolcrib.server.openai.answering import Answer
from toolcrib.server.openai.errors import OpenAiRoute, told
from toolcrib.server.openai.requests import ChatRequest, Conversation
from toolcrib.server.openai.shapes import DONE, ChunkStream, Completion, Usage
from toolcrib.server.services import Injected, Services
from toolcrib.server.waiting import origin_of
from toolcrib.storage.bookmarks import Bookmark
from toolcrib.storage.database import Tenant

router = APIRouter(prefix="/v1", route_class=OpenAiRoute, include_in_schema=False)

_TITLE_CHARACTERS = 60


@router.get("/models")
async def models(request: Request, services: Injected) -> dict[str, Any]:
    """The agents of one's workspaces."""
    authority = await _admitted(request, services)
    found = await listed(services, authority.principal)
    return {"object": "list", "data": [_model(name, offered) for name, offered in found.items()]}


@router.get("/models/{name:path}")
async def model(name: str, request: Request, services: Injected) -> dict[str, Any]:
    """One agent."""
    authority = await _admitted(request, services)
    return _model(name, await called(services, authority.principal, name))


@router.post("/chat/completions")
async def complete(given: ChatRequest, request: Request, services: Injected) -> Response:
    """A message to an agent, answered with all that its run says."""
    authority = await _admitted(request, services)
    conversation = Conversation.of(given.messages)
    meant = await called(services, authority.principal, given.model)
    tenant = tenant_for(authority.principal, meant.workspace.id)
    async with AsyncExitStack() as opened:
        opened.enter_context(services.doors.inside(authority.principal.user_id))
        answer = await _begun(services, tenant, meant, conversation, origin=origin_of(request))
        opened.push_async_callback(answer.let_go)
        subscription = await opened.enter_async_context(
            services.live.subscribe(tenant, answer.run.session_id, after=answer.told)
        )
        completion = Completion(f"chatcmpl-{answer.run.id}", given.model, with_usage=given.wants_usage)
        spoken = _spoken(services, tenant, meant, conversation, answer, subscription)
        if given.stream:
            return ChunkStream(
                _chunks(completion, answer, spoken),
                authority=authority,
                pace=services.doors.pace,
                opened=opened.pop_all(),
            )
        whole = _whole(completion, answer, spoken)
        check_seconds = services.doors.pace.check
        body = await attended(whole, request.receive, authority=authority, check_seconds=check_seconds)
    if body is None:
        raise Unauthenticated("This API key or token has ended meanwhile, and the run was stopped.")
    return JSONResponse(body)


async def _admitted(request: Request, services: Services) -> Authority:
    token = bearer(request)
    if token is None:
        raise Unauthenticated("Send an API key of yours: `Authorization: Bearer <key>`. Cookies do not count here.")
    authority = await by_secret(services, token)
    if authority.principal.agent is not None:
        raise Forbidden("An agent's key is for tools and for reading files. Speak to agents with a key of your own.")
    return authority


async def _begun(
    services: Services, tenant: Tenant, meant: Offered, conversation: Conversation, *, origin: str
) -> Answer:
    """Hands the message in: where this conversation left off, or in a new session that is told what came before."""
    assert tenant.user_id is not None
    digest = conversation.digest(tenant.user_id, meant.agent.id)
    bookmark = None if digest is None else await services.bookmarks.take(tenant, digest)
    if bookmark is None:
        session = await services.sessions.create(tenant, title=_title(conversation.prompt), agent_id=meant.agent.id)
        bookmark, text, history = Bookmark(session.id, 0), conversation.prompt, conversation.history
    else:
        text, history = conversation.since_the_answer, []
    run = await services.desk.submit(tenant, bookmark.session_id, text, via="openai", history=history)
    return Answer(services, tenant, run, told=bookmark.told, origin=origin)


async def _spoken(
    services: Services,
    tenant: Tenant,
    meant: Offered,
    conversation: Conversation,
    answer: Answer,
    subscription: Subscription,
) -> AsyncIterator[str]:
    """The answer piece by piece. Before it ends, it is noted where the client will come back to."""
    async for piece in answer.pieces(subscription):
        yield piece
    assert tenant.user_id is not None
    digest = conversation.digest(tenant.user_id, meant.agent.id, answer=answer.text)
    if answer.text.strip() and digest is not None:
        await services.bookmarks.leave(tenant, Bookmark(answer.run.session_id, answer.told), digest)


async def _whole(completion: Completion, answer: Answer, spoken: AsyncIterator[str]) -> dict[str, Any]:
    async for _ in spoken:
        pass
    return completion.whole(answer.text, finish=answer.finish, usage=_usage(answer))


async def _chunks(completion: Completion, answer: Answer, spoken: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    yield completion.chunk(role="assistant", content="")
    try:
        async for piece in spoken:
            yield completion.chunk(content=piece)
    except ToolcribError as error:
        yield {"error": told(error.code, error.message, error.fields, status=STATUS.get(error.code, 500))}
        return
    yield completion.chunk(finish=answer.finish)
    if completion.with_usage:
        yield completion.last(_usage(answer))
    yield DONE


def _usage(answer: Answer) -> Usage:
    return Usage(answer.input_tokens, answer.output_tokens)


def _model(name: str, offered: Offered) -> dict[str, Any]:
    created = int(offered.agent.created_at.timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": offered.workspace.name}


def _title(prompt: str) -> str | None:
    """The beginning of a message, as it may stand in a list."""
    printable = "".join(sign for sign in " ".join(prompt.split()) if sign.isprintable())
    return printable[:_TITLE_CHARACTERS].strip() or None
