"""Sessions of a workspace, their events as pages and as a stream, and tickets for WebSockets."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from pydantic import Field, StringConstraints, model_validator

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.connection_auth import auth_by_headers
from toolcrib.api.auth.principal import APerson, require_person, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, Name, OutModel, Page
from toolcrib.api.session_stream import EventStream, SessionEncoder, encoded, resume_messages
from toolcrib.core.agents import PhaseName, TrustLevel
from toolcrib.core.callers import SessionMode
from toolcrib.core.errors import BadArguments, ToolcribError
from toolcrib.core.ids import AgentId, SessionId
from toolcrib.events import Subscription
from toolcrib.storage.users import LIFETIME

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["sessions"], route_class=StrictRoute)

_LARGEST = 2**63 - 1
After = Annotated[int, Query(ge=0, le=_LARGEST, description="Return events after this number.")]


ProviderName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[a-z-]+$")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"), Field(examples=["demo"])]
ChoiceT = TypeVar("ChoiceT", "SessionCreate", "SessionUpdate")


def _both_or_none(given: ChoiceT) -> ChoiceT:
    if (given.provider is None) != (given.model is None):
        raise ValueError("Give both provider and model, or neither")
    return given


class SessionCreate(InModel):
    title: Name | None = None
    agent_id: UUID | None = Field(
        default=None, description="The session's agent. Without it, calls in the session are your own."
    )
    mode: SessionMode = SessionMode.BUILD
    trust: TrustLevel | None = Field(default=None, description="By default, the agent's trust.")
    provider: ProviderName | None = Field(default=None, description="The model provider. By default, the agent's.")
    model: ModelName | None = Field(default=None, description="The provider's name of the model.")
    phase: PhaseName | None = Field(default=None, description="One of the agent's phases. By default, the first one.")
    package: PackageName | None = Field(
        default=None, description="An installed package. The session runs its workflow."
    )

    @model_validator(mode="after")
    def _both(self) -> "SessionCreate":
        return _both_or_none(self)


class SessionUpdate(InModel):
    """Fields that are absent stay as they are."""

    title: Name | None = None
    trust: TrustLevel | None = Field(
        default=None, description="Null sets the agent's trust. Takes effect with the next message."
    )
    mode: SessionMode | None = Field(default=None, description="Plan or build. Also applies to the current run.")
    provider: ProviderName | None = Field(
        default=None, description="Requires `model`. Null sets the agent's provider and model."
    )
    model: ModelName | None = None
    phase: PhaseName | None = Field(
        default=None, description="One of the agent's phases; null sets the first one. Takes effect with the next turn."
    )

    @model_validator(mode="after")
    def _both(self) -> "SessionUpdate":
        return _both_or_none(self)


class SessionOut(OutModel):
    id: UUID
    title: str | None
    agent_id: UUID | None
    mode: SessionMode
    trust: TrustLevel | None
    provider: str | None = Field(description="The model provider; null for the agent's.")
    model: str | None
    phase: str | None = Field(description="The agent's phase, which sets its permissions; null for the first one.")
    package: str | None = Field(description="The package whose workflow the session runs.")
    created_by: UUID
    created_at: datetime
    last_seq: int = Field(description="The number of the newest event.")


class EventOut(OutModel):
    """An event of a session, with its number."""

    seq: int
    type: str = Field(examples=["tool-result"])
    payload: dict[str, Any] = Field(description="The same payload as on the WebSocket, in camelCase.")


class EventPage(OutModel):
    """Events in order. Repeat with the last number as ``after`` until the page is empty."""

    items: list[EventOut]


class TicketOut(OutModel):
    """A single-use ticket for the workspace's WebSocket."""

    ticket: str = Field(examples=["tct_…"])
    expires_in: int = Field(description="Lifetime in seconds.")


@router.post(
    "/sessions",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="create_session",
)
async def create(workspace_id: UUID, given: SessionCreate, principal: APerson, services: Injected) -> SessionOut:
    """Create a session."""
    tenant = tenant_for(principal, workspace_id)
    document, workflow = (
        (None, None) if given.package is None else await services.packages.workflow(tenant, given.package)
    )
    session = await services.sessions.create(
        tenant,
        title=given.title,
        agent_id=None if given.agent_id is None else AgentId(given.agent_id),
        mode=given.mode,
        trust=given.trust,
        provider=given.provider,
        model=given.model,
        phase=given.phase,
        package=given.package,
        workflow=workflow,
    )
    if document is not None:
        try:
            await services.packages.begin(tenant, session.id, document)
        except BaseException:
            await services.sessions.delete(tenant, session.id)
            raise
    return SessionOut.model_validate(session)


@router.get("/sessions", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_sessions")
async def list_all(
    workspace_id: UUID,
    principal: APerson,
    services: Injected,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[SessionOut]:
    """List the workspace's sessions, newest first."""
    tenant = tenant_for(principal, workspace_id)
    start = None if before is None else SessionId(before)
    sessions = await services.sessions.page(tenant, before=start, limit=limit + 1)
    items = [SessionOut.model_validate(session) for session in sessions[:limit]]
    return Page(items=items, next=str(items[-1].id) if len(sessions) > limit else None)


@router.get("/sessions/{session_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"), name="get_session")
async def get(workspace_id: UUID, session_id: UUID, principal: APerson, services: Injected) -> SessionOut:
    """Return one session."""
    session = await services.sessions.get(tenant_for(principal, workspace_id), SessionId(session_id))
    return SessionOut.model_validate(session)


@router.patch(
    "/sessions/{session_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="change_session",
)
async def change(
    workspace_id: UUID, session_id: UUID, given: SessionUpdate, principal: APerson, services: Injected
) -> SessionOut:
    """Change a session's title, trust, model, phase or mode. Members only."""
    tenant, session = tenant_for(principal, workspace_id), SessionId(session_id)
    if "title" in given.model_fields_set:
        await services.sessions.rename(tenant, session, given.title)
    if "trust" in given.model_fields_set:
        await services.sessions.set_trust(tenant, session, given.trust)
    if "model" in given.model_fields_set:
        await services.sessions.choose_model(tenant, session, provider=given.provider, model=given.model)
    if "phase" in given.model_fields_set:
        await services.sessions.enter_phase(tenant, session, given.phase)
    if given.mode is not None:
        await services.sessions.set_mode(tenant, session, given.mode)
    return SessionOut.model_validate(await services.sessions.get(tenant, session))


@router.delete(
    "/sessions/{session_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="delete_session",
)
async def delete(workspace_id: UUID, session_id: UUID, principal: APerson, services: Injected) -> None:
    """Delete a session and its events. Only for its creator and for owners. Files stay as they are."""
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
    """List a session's events after a number, in order."""
    tenant = tenant_for(principal, workspace_id)
    found = await services.sessions.events_after(tenant, SessionId(session_id), after, limit=limit)
    return EventPage(items=[EventOut.model_validate(event) for event in found])


@router.get(
    "/sessions/{session_id}/events/stream",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "A stream of events and deltas."},
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
    follow: Annotated[bool, Query(description="If false, end the stream after the stored events.")] = True,  # noqa: FBT002 - by name
    last_event_id: Annotated[
        str | None, Header(description="Overrides `after`. Browsers send it when they reconnect.")
    ] = None,
) -> Any:
    """Stream a session as server-sent events: the events after your last one, then new ones, as on the WebSocket."""
    authority = await auth_by_headers(services, request)
    principal = await require_person(authority.principal)
    tenant, start = tenant_for(principal, workspace_id), _last_seen(last_event_id, after)
    if not follow:
        found = await services.sessions.events_after(tenant, SessionId(session_id), start, limit=1_000)
        encoder = SessionEncoder()
        body = b"".join(encoded(encoder.encode(event)) for event in found)
        return Response(body, media_type="text/event-stream")
    async with AsyncExitStack() as opened:
        opened.enter_context(services.connection_limits.authenticated(principal.user_id))
        subscription = await opened.enter_async_context(
            services.live.subscribe(tenant, SessionId(session_id), after=start)
        )
        first = await resume_messages(services, tenant, subscription.session, after=start)
        return EventStream(
            _messages(first, subscription),
            authority=authority,
            pace=services.connection_limits.pace,
            opened=opened.pop_all(),
        )


@router.post("/tickets", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="create_ticket")
async def create_ticket(workspace_id: UUID, request: Request, services: Injected) -> TicketOut:
    """Create a ticket that opens this workspace's WebSocket once, within seconds, for clients that cannot set headers.

    Offer it as the subprotocol `toolcrib.ticket.<ticket>` besides `toolcrib.chat`, or send it as the first message.
    """
    authority = await auth_by_headers(services, request)
    principal = await require_person(authority.principal)
    # A key does not expire like a login, but a connection opened by its ticket lasts no longer than a login's would.
    longest = time.time() + services.tokens.lifetime_seconds
    until = datetime.fromtimestamp(min(authority.until, longest), UTC)
    ticket = await services.tickets.create(tenant_for(principal, workspace_id), connection_expires_at=until)
    return TicketOut(ticket=ticket, expires_in=int(LIFETIME.total_seconds()))


async def _messages(first: list[dict[str, Any]], subscription: Subscription) -> AsyncIterator[dict[str, Any]]:
    for message in first:
        yield message
    encoder = SessionEncoder()
    try:
        async for item in subscription:
            yield encoder.encode(item)
    except ToolcribError as error:
        yield {"type": "chat:error", "payload": {"code": error.code, "message": error.message}}


def _last_seen(last_event_id: str | None, after: int) -> int:
    if last_event_id is None or last_event_id == "":
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < len(str(_LARGEST))):
        raise BadArguments({"Last-Event-ID": "Expected an event number"})
    return int(last_event_id)
