"""Sessions of a workspace, their events as pages and as a stream, and tickets for who watches them."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from pydantic import Field

from toolcrib.domain.agents import Trust
from toolcrib.domain.errors import BadArguments, ToolcribError
from toolcrib.domain.ids import AgentId, SessionId
from toolcrib.domain.sessions import Mode
from toolcrib.engine.live import Subscription
from toolcrib.server.auth import APerson, a_person, tenant_for
from toolcrib.server.authority import by_headers
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Given, Name, Page, Shown
from toolcrib.server.sse import EventStream, encoded
from toolcrib.server.told import Teller, waiting_ones
from toolcrib.storage.tickets import LIFETIME

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["sessions"], route_class=StrictRoute)

_LARGEST = 2**63 - 1
After = Annotated[int, Query(ge=0, le=_LARGEST, description="The number of the last event that you have seen.")]


class NewSession(Given):
    title: Name | None = None
    agent_id: UUID | None = Field(default=None, description="The agent that acts in it; without one, you do.")
    mode: Mode = Mode.BUILD
    trust: Trust | None = Field(default=None, description="By default the agent's own.")


class SessionChange(Given):
    """What is not named stays as it is."""

    title: Name | None = None
    trust: Trust | None = Field(default=None, description="Null: the agent's own. Counts from the next message on.")
    mode: Mode | None = Field(default=None, description="Plan or build; a run that is under way goes on in it.")


class SessionAnswer(Shown):
    id: UUID
    title: str | None
    agent_id: UUID | None
    mode: Mode
    trust: Trust | None
    created_by: UUID
    created_at: datetime
    last_seq: int = Field(description="The number of its newest event.")


class EventAnswer(Shown):
    seq: int
    type: str = Field(examples=["tool-result"])
    payload: dict[str, Any] = Field(description="In camelCase, as the WebSocket tells it.")


class EventPage(Shown):
    """Events in their order. Ask again with the last number as ``after``, until there are none."""

    items: list[EventAnswer]


class TicketAnswer(Shown):
    ticket: str = Field(examples=["tct_…"])
    expires_in: int = Field(description="Seconds.")


@router.post(
    "/sessions",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="create_session",
)
async def create(workspace_id: UUID, given: NewSession, principal: APerson, services: Injected) -> SessionAnswer:
    """Begins a session."""
    session = await services.sessions.create(
        tenant_for(principal, workspace_id),
        title=given.title,
        agent_id=None if given.agent_id is None else AgentId(given.agent_id),
        mode=given.mode,
        trust=given.trust,
    )
    return SessionAnswer.model_validate(session)


@router.get("/sessions", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_sessions")
async def list_all(
    workspace_id: UUID,
    principal: APerson,
    services: Injected,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[SessionAnswer]:
    """The workspace's sessions, the newest first."""
    tenant = tenant_for(principal, workspace_id)
    start = None if before is None else SessionId(before)
    sessions = await services.sessions.page(tenant, before=start, limit=limit + 1)
    items = [SessionAnswer.model_validate(session) for session in sessions[:limit]]
    return Page(items=items, next=str(items[-1].id) if len(sessions) > limit else None)


@router.get("/sessions/{session_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"), name="get_session")
async def get(workspace_id: UUID, session_id: UUID, principal: APerson, services: Injected) -> SessionAnswer:
    """One session."""
    session = await services.sessions.get(tenant_for(principal, workspace_id), SessionId(session_id))
    return SessionAnswer.model_validate(session)


@router.patch(
    "/sessions/{session_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="change_session",
)
async def change(
    workspace_id: UUID, session_id: UUID, given: SessionChange, principal: APerson, services: Injected
) -> SessionAnswer:
    """Gives a session another title, trust or mode; for members."""
    tenant, session = tenant_for(principal, workspace_id), SessionId(session_id)
    if "title" in given.model_fields_set:
        await services.sessions.rename(tenant, session, given.title)
    if "trust" in given.model_fields_set:
        await services.sessions.entrust(tenant, session, given.trust)
    if given.mode is not None:
        await services.sessions.switch(tenant, session, given.mode)
    return SessionAnswer.model_validate(await services.sessions.get(tenant, session))


@router.delete(
    "/sessions/{session_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="delete_session",
)
async def delete(workspace_id: UUID, session_id: UUID, principal: APerson, services: Injected) -> None:
    """Removes a session and its events; for who began it, and for owners. Files stay as they are."""
    await services.sessions.delete(tenant_for(principal, workspace_id), SessionId(session_id))


@router.get(
    "/sessions/{session_id}/events",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="list_events",
)
async def events(
    workspace_id: UUID,
    session_id: UUID,
    principal: APerson,
    services: Injected,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
) -> EventPage:
    """A session's events after a number, in their order."""
    tenant = tenant_for(principal, workspace_id)
    found = await services.sessions.events_after(tenant, SessionId(session_id), after, limit=limit)
    return EventPage(items=[EventAnswer.model_validate(event) for event in found])


@router.get(
    "/sessions/{session_id}/events/stream",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events and deltas as they happen."},
        **examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "RATE_LIMITED"),
    },
    name="stream_events",
)
async def stream(
    workspace_id: UUID,
    session_id: UUID,
    request: Request,
    services: Injected,
    after: After = 0,
    follow: Annotated[bool, Query(description="False: end when everything so far was told.")] = True,  # noqa: FBT002 - by name
    last_event_id: Annotated[str | None, Header(description="Wins over `after`; browsers send it.")] = None,
) -> Any:
    """A session as server-sent events: what came after your last, then what happens, as the WebSocket tells it."""
    authority = await by_headers(services, request)
    principal = await a_person(authority.principal)
    tenant, start = tenant_for(principal, workspace_id), _last_seen(last_event_id, after)
    if not follow:
        found = await services.sessions.events_after(tenant, SessionId(session_id), start, limit=1_000)
        teller = Teller()
        body = b"".join(encoded(teller.tell(event)) for event in found)
        return Response(body, media_type="text/event-stream")
    async with AsyncExitStack() as opened:
        opened.enter_context(services.doors.inside(principal.user_id))
        subscription = await opened.enter_async_context(
            services.live.subscribe(tenant, SessionId(session_id), after=start)
        )
        first = await waiting_ones(services, tenant, subscription.session, after=start)
        return EventStream(
            _told(first, subscription), authority=authority, pace=services.doors.pace, opened=opened.pop_all()
        )


@router.post("/tickets", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="create_ticket")
async def create_ticket(workspace_id: UUID, request: Request, services: Injected) -> TicketAnswer:
    """A ticket that opens this workspace's WebSocket once, within seconds, for you: for clients without headers.

    Offer it as the subprotocol `toolcrib.ticket.<ticket>` beside `toolcrib.chat`, or send it as the first message.
    """
    authority = await by_headers(services, request)
    principal = await a_person(authority.principal)
    # A key lives on by itself; what it opens by a ticket lasts no longer than a login's would.
    longest = time.time() + services.tokens.lifetime_seconds
    until = datetime.fromtimestamp(min(authority.until, longest), UTC)
    ticket = await services.tickets.create(tenant_for(principal, workspace_id), valid_until=until)
    return TicketAnswer(ticket=ticket, expires_in=int(LIFETIME.total_seconds()))


async def _told(first: list[dict[str, Any]], subscription: Subscription) -> AsyncIterator[dict[str, Any]]:
    for message in first:
        yield message
    teller = Teller()
    try:
        async for item in subscription:
            yield teller.tell(item)
    except ToolcribError as error:
        yield {"type": "chat:error", "payload": {"code": error.code, "message": error.message}}


def _last_seen(last_event_id: str | None, after: int) -> int:
    if last_event_id is None or last_event_id == "":
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < len(str(_LARGEST))):
        raise BadArguments({"Last-Event-ID": "Expected the number of an event"})
    return int(last_event_id)
