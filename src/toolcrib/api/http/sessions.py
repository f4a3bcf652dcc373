"""Sessions of a workspace: their messages, runs and events, and tickets for WebSockets."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import Response

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.connection_auth import auth_by_headers
from toolcrib.api.auth.principal import Authenticated, caller_for, require_person, tenant_for
from toolcrib.api.auth.request_tenant import AnyTenant, PersonTenant
from toolcrib.api.http_errors import examples
from toolcrib.api.message_attachments import attach_files
from toolcrib.api.routers import api_router
from toolcrib.api.session_stream import EventStream, SessionEncoder, encoded, resume_messages
from toolcrib.core.errors import BadArguments, ToolcribError
from toolcrib.core.ids import AgentId, MessageId, RunId, SessionId, WorkspaceId
from toolcrib.core.runs import CostGroup, RunState
from toolcrib.events import Subscription
from toolcrib.schemas.schema_base import Page
from toolcrib.schemas.sessions import (
    CostOut,
    EventOut,
    EventPage,
    ForkCreate,
    FoundSessionOut,
    ListedSessionOut,
    MessageCreate,
    MessageOut,
    RunOut,
    SessionCreate,
    SessionOut,
    SessionUpdate,
    TicketOut,
)
from toolcrib.storage.api_keys import TICKET_LIFETIME

router = api_router("/workspaces/{workspace_id}", tag="sessions")
runs_router = api_router("/workspaces/{workspace_id}", tag="runs")

_LARGEST = 2**63 - 1
After = Annotated[int, Query(ge=0, le=_LARGEST, description="Return events after this number.")]


@router.post("/sessions", status_code=201, responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def create_session(given: SessionCreate, tenant: PersonTenant, services: Injected) -> SessionOut:
    """Create a session."""
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
        directory=given.directory,
    )
    if document is not None:
        try:
            await services.packages.begin(tenant, session.id, document)
        except BaseException:
            await services.sessions.delete(tenant, session.id)
            raise
    return SessionOut.model_validate(session)


@router.get("/sessions")
async def list_sessions(
    tenant: PersonTenant,
    services: Injected,
    before: SessionId | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    parent_session_id: Annotated[
        SessionId | None, Query(description="List the sessions of the child runs that this session's agent started.")
    ] = None,
) -> Page[ListedSessionOut]:
    """List the workspace's sessions, newest first. Those of child runs are listed by their parent only."""
    sessions = await services.sessions.page(tenant, before=before, limit=limit + 1, parent_id=parent_session_id)
    # Unlike a full page, one more session shows that there is a next page.
    return Page[ListedSessionOut].of(sessions[:limit], limit=limit if len(sessions) > limit else None)


@router.get("/sessions/search", responses=examples("VALIDATION_ERROR"))
async def search_sessions(
    tenant: PersonTenant,
    services: Injected,
    query: Annotated[str, Query(min_length=1, max_length=200, description="Words, or how they begin.")],
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[FoundSessionOut]:
    """Find sessions by words of their titles and messages, each once: titles first, then the newest messages."""
    return Page[FoundSessionOut].of(await services.sessions.search(tenant, query, limit=limit))


@router.post(
    "/sessions/{session_id}/forks",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
)
async def fork_session(
    session_id: SessionId, given: ForkCreate, tenant: PersonTenant, services: Injected
) -> SessionOut:
    """Create a session that continues this one from a message, or with another text instead of it. Members only.

    The session stays as it is, and so do the files: undo its runs if they should be as they were.
    """
    fork, run = await services.session_forks.fork(
        tenant, session_id, MessageId(given.message_id), text=given.text, via="rest"
    )
    if run is not None:
        services.run_service.announce(run)
    return SessionOut.model_validate(fork)


@router.get("/sessions/{session_id}", responses=examples("NOT_FOUND"))
async def get_session(session_id: SessionId, tenant: PersonTenant, services: Injected) -> SessionOut:
    """Return one session."""
    return SessionOut.model_validate(await services.sessions.get(tenant, session_id))


@router.patch("/sessions/{session_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def change_session(
    session_id: SessionId, given: SessionUpdate, tenant: PersonTenant, services: Injected
) -> SessionOut:
    """Change a session's title, trust, model, phase or mode. Members only."""
    if "title" in given.model_fields_set:
        await services.sessions.rename(tenant, session_id, given.title)
    if "trust" in given.model_fields_set:
        await services.sessions.set_trust(tenant, session_id, given.trust)
    if "model" in given.model_fields_set:
        await services.sessions.choose_model(tenant, session_id, provider=given.provider, model=given.model)
    if "phase" in given.model_fields_set:
        await services.sessions.enter_phase(tenant, session_id, given.phase)
    if given.mode is not None:
        await services.sessions.set_mode(tenant, session_id, given.mode)
    return SessionOut.model_validate(await services.sessions.get(tenant, session_id))


@router.delete("/sessions/{session_id}", status_code=204, responses=examples("NOT_FOUND"))
async def delete_session(session_id: SessionId, tenant: PersonTenant, services: Injected) -> None:
    """Delete a session and its events. Only for its creator and for owners. Files stay as they are."""
    await services.sessions.delete(tenant, session_id)


@router.get("/sessions/{session_id}/events", responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def list_events(
    session_id: SessionId,
    tenant: PersonTenant,
    services: Injected,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
) -> EventPage:
    """List a session's events after a number, in order."""
    found = await services.sessions.events_after(tenant, session_id, after, limit=limit)
    items = [EventOut.model_validate(event) for event in found]
    return EventPage(items=items, next=str(items[-1].seq) if len(items) == limit else None)


@router.get(
    "/sessions/{session_id}/events/stream",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "A stream of events and deltas."},
        **examples("VALIDATION_ERROR", "NOT_FOUND", "RATE_LIMITED"),
    },
)
async def stream_events(
    workspace_id: WorkspaceId,
    session_id: SessionId,
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
        found = await services.sessions.events_after(tenant, session_id, start, limit=1_000)
        encoder = SessionEncoder()
        body = b"".join(encoded(encoder.encode(event)) for event in found)
        return Response(body, media_type="text/event-stream")
    async with AsyncExitStack() as opened:
        opened.enter_context(services.connection_limits.authenticated(principal.user_id))
        subscription = await opened.enter_async_context(services.live.subscribe(tenant, session_id, after=start))
        first = await resume_messages(services, tenant, subscription.session, after=start)
        return EventStream(
            _messages(first, subscription),
            authority=authority,
            pace=services.connection_limits.pace,
            opened=opened.pop_all(),
        )


@router.post("/tickets")
async def create_ticket(workspace_id: WorkspaceId, request: Request, services: Injected) -> TicketOut:
    """Create a ticket that opens this workspace's WebSocket once, within seconds, for clients that cannot set headers.

    Offer it as the subprotocol `toolcrib.ticket.<ticket>` besides `toolcrib.chat`, or send it as the first message.
    """
    authority = await auth_by_headers(services, request)
    principal = await require_person(authority.principal)
    # A key does not expire like a login, but a connection opened by its ticket lasts no longer than a login's would.
    longest = time.time() + services.tokens.lifetime_seconds
    until = datetime.fromtimestamp(min(authority.until, longest), UTC)
    ticket = await services.tickets.create(tenant_for(principal, workspace_id), connection_expires_at=until)
    return TicketOut(ticket=ticket, expires_in=int(TICKET_LIFETIME.total_seconds()))


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


# Messages to a session's agent, and the runs that answer them


@runs_router.post(
    "/sessions/{session_id}/messages", status_code=202, responses=examples("VALIDATION_ERROR", "FORBIDDEN", "NOT_FOUND")
)
async def send_message(
    session_id: SessionId, given: MessageCreate, tenant: PersonTenant, principal: Authenticated, services: Injected
) -> RunOut:
    """Send a message. Members only. A run answers it: now, or after the session's current run."""
    if given.attachments:
        await services.sessions.get(tenant, session_id)
    caller = caller_for(principal, tenant.workspace_id, session_id=session_id)
    attachments = await attach_files(services, caller, given.attachments)
    run = await services.run_service.submit(
        tenant, session_id, given.text, via="rest", priority=given.priority, attachments=attachments
    )
    return RunOut.model_validate(run)


@runs_router.post("/sessions/{session_id}/compact", status_code=202, responses=examples("FORBIDDEN", "NOT_FOUND"))
async def compact_session(session_id: SessionId, tenant: PersonTenant, services: Injected) -> RunOut:
    """Replace the session's older messages by a summary, now or after its current run. Members only.

    The run that does it adds no message. The last question and its answer stay; a session that is too short is left
    as it is.
    """
    return RunOut.model_validate(await services.run_service.compact(tenant, session_id, via="rest"))


@runs_router.get("/sessions/{session_id}/messages", response_model_exclude_unset=True)
async def list_messages(
    session_id: SessionId,
    tenant: PersonTenant,
    services: Injected,
    run_id: Annotated[RunId | None, Query(description="Only messages of this run.")] = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
    results: Annotated[bool, Query(description="Include tool results as messages.")] = False,  # noqa: FBT002 - by name
) -> Page[MessageOut]:
    """List the messages in order, including those that a summary has replaced."""
    found = await services.run_service.messages(
        tenant, session_id, run_id=run_id, after=after, limit=limit, results=results
    )
    items = [MessageOut.model_validate(one) for one in found]
    full = sum(one.role != "tool" for one in items) == limit
    return Page(items=items, next=str(items[-1].position) if full else None)


@runs_router.get("/sessions/{session_id}/runs")
async def list_runs(
    session_id: SessionId,
    tenant: PersonTenant,
    services: Injected,
    before: RunId | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[RunOut]:
    """List a session's runs, newest first."""
    return Page[RunOut].of(
        await services.run_service.runs.page(tenant, session_id, before=before, limit=limit), limit=limit
    )


@runs_router.get("/runs", responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def list_workspace_runs(
    tenant: PersonTenant,
    services: Injected,
    state: Annotated[RunState | None, Query(description="Only runs in this state.")] = None,
    session_id: Annotated[SessionId | None, Query(description="Only runs of this session.")] = None,
    parent_run_id: Annotated[RunId | None, Query(description="Only child runs that this run started.")] = None,
    before: RunId | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[RunOut]:
    """List the workspace's runs, newest first."""
    found = await services.run_service.runs.page(
        tenant, session_id, state=state, parent_id=parent_run_id, before=before, limit=limit
    )
    return Page[RunOut].of(found, limit=limit)


@runs_router.get("/costs", responses=examples("VALIDATION_ERROR"))
async def list_costs(
    tenant: PersonTenant,
    services: Injected,
    by: Annotated[CostGroup, Query(description="What to add up by.")] = CostGroup.DAY,
    days: Annotated[int, Query(ge=1, le=366, description="The last so many days (UTC), today included.")] = 30,
) -> Page[CostOut]:
    """Add up the tokens and costs of the workspace, the latest days or the dearest agents, models or sessions first."""
    return Page[CostOut].of(await services.model_usage.sums(tenant, by=by, days=days))


@runs_router.get("/runs/{run_id}", responses=examples("NOT_FOUND"))
async def get_run(run_id: RunId, tenant: AnyTenant, services: Injected) -> RunOut:
    """Return one run."""
    return RunOut.model_validate(await services.run_service.runs.get(tenant, run_id))


@runs_router.post("/runs/{run_id}/cancel", responses=examples("NOT_FOUND", "CONFLICT"))
async def cancel_run(run_id: RunId, tenant: PersonTenant, services: Injected) -> RunOut:
    """Cancel a run within a second, on whatever node it is. Members only. Its changes can be undone.

    Messages queued behind a run that had started are held: they start only when released, or can be cancelled too.
    """
    return RunOut.model_validate(await services.run_service.cancel(tenant, run_id))


@runs_router.post("/runs/{run_id}/retry", status_code=202, responses=examples("NOT_FOUND", "CONFLICT"))
async def retry_run(run_id: RunId, tenant: PersonTenant, services: Injected) -> RunOut:
    """Send the message of a run again that failed, was cancelled or used up a budget, as a new run. Members only.

    What the first run changed stays. Your credentials for the model provider are used.
    """
    return RunOut.model_validate(await services.run_service.retry(tenant, run_id, via="rest"))


@runs_router.post("/runs/{run_id}/release", responses=examples("NOT_FOUND", "CONFLICT"))
async def release_run(run_id: RunId, tenant: PersonTenant, services: Injected) -> RunOut:
    """Release a queued message that a stop held: it starts now, or after the session's current run. Members only."""
    return RunOut.model_validate(await services.run_service.release(tenant, run_id))
