"""The services that routes use. ``wiring`` creates them once; the application holds them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from toolcrib.api.access_tokens import AccessTokens, LoginLinks, SetupLinks
from toolcrib.api.connection_limits import ConnectionLimits
from toolcrib.api.passwords import Passwords, RateLimits
from toolcrib.api.readiness import Readiness
from toolcrib.core.ids import CallId, SessionId, WorkspaceId
from toolcrib.runtime.drain import Drain
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore, GrantStore
from toolcrib.storage.api_keys import ApiKeyStore, TicketStore
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import Database
from toolcrib.storage.events import ConversationCursorStore
from toolcrib.storage.files import FileStore
from toolcrib.storage.idempotency_keys import IdempotencyKeyStore
from toolcrib.storage.inbox import InboxStore
from toolcrib.storage.invitations import InvitationStore
from toolcrib.storage.model_usage import ModelUsageStore
from toolcrib.storage.provider_credentials import ProviderCredentialStore
from toolcrib.storage.quotas import UsageStore
from toolcrib.storage.session_forks import SessionForkStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.storage.tool_calls import CallHistoryStore, ToolCallStore
from toolcrib.storage.user_admin import UserAdmin
from toolcrib.storage.users import UserStore
from toolcrib.storage.workspaces import WorkspaceStore

if TYPE_CHECKING:
    from toolcrib.api.rate_limits import SharedRateLimiter
    from toolcrib.api.server_metrics import ServerMetrics
    from toolcrib.events import EventHub
    from toolcrib.gate.audit_verification import AuditVerifier
    from toolcrib.gate.call_pipeline import Gate
    from toolcrib.gate.lost_calls import LostCalls
    from toolcrib.gate.paused_calls import PausedCalls
    from toolcrib.gate.session_agents import SessionAgents
    from toolcrib.mcp.mcp_toolsets import McpToolsets
    from toolcrib.nodes.call_forwarder import ForwardingGate, ForwardingMcpServers, ForwardingPackages
    from toolcrib.providers.provider_registry import ProviderRegistry
    from toolcrib.runs.loaded_run import CredentialResolver
    from toolcrib.runs.run_service import RunService
    from toolcrib.runs.schedules import ScheduleService
    from toolcrib.tools.tool_registry import ToolRegistry
    from toolcrib.websearch.brave import SearchKeys
    from toolcrib.workspace.packages.installer import PackageInstaller
    from toolcrib.workspace.sync.workspace_recovery import WorkspaceRecovery


Key = tuple[WorkspaceId, SessionId]


class RunningCalls:
    """Calls from WebSockets that run on this node, by session and call; anyone in the session can cancel them."""

    def __init__(self) -> None:
        self._tasks: dict[Key, dict[CallId, asyncio.Task[None]]] = {}

    def start(self, key: Key, call_id: CallId, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a call as a task."""
        task = asyncio.create_task(work)
        self._tasks.setdefault(key, {})[call_id] = task
        task.add_done_callback(lambda _: self._forget(key, call_id))
        return task

    def cancel(self, key: Key) -> list[CallId]:
        """Cancel the running calls of a session and return their ids."""
        running = self._tasks.get(key, {})
        for task in running.values():
            task.cancel()
        return list(running)

    def _forget(self, key: Key, call_id: CallId) -> None:
        calls = self._tasks.get(key, {})
        calls.pop(call_id, None)
        if not calls:
            self._tasks.pop(key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything that a route may use."""

    settings: Settings
    database: Database
    accounts: UserStore
    keys: ApiKeyStore
    workspaces: WorkspaceStore
    # Returns the node that is to have the files of a new workspace.
    choose_home: Callable[[], Awaitable[str]]
    agents: AgentStore
    packages: "PackageInstaller | ForwardingPackages"
    files: FileStore
    audit: AuditStore
    verifier: "AuditVerifier"
    usage: UsageStore
    model_usage: ModelUsageStore
    past_calls: CallHistoryStore
    sandbox: Sandbox
    calls: ToolCallStore
    session_forks: SessionForkStore
    sessions: SessionStore
    conversation_cursors: ConversationCursorStore
    tickets: TicketStore
    live: "EventHub"
    paused_calls: "PausedCalls"
    session_agents: "SessionAgents"
    grants: GrantStore
    inbox: InboxStore
    invitations: InvitationStore
    user_admin: UserAdmin
    run_service: "RunService"
    schedules: "ScheduleService"
    access: ProviderCredentialStore
    model_access: "CredentialResolver"
    search_keys: "SearchKeys"
    providers: "ProviderRegistry"
    executor: "Gate | ForwardingGate"
    lost_calls: "LostCalls"
    idempotency_keys: IdempotencyKeyStore
    registry: "ToolRegistry"
    toolbox: "McpToolsets"
    # Connects to MCP servers, which may need the workspace's files.
    mcp_servers: "McpToolsets | ForwardingMcpServers"
    passwords: Passwords
    tokens: AccessTokens
    login_links: LoginLinks
    setup_links: SetupLinks
    drain: Drain
    recovery: "WorkspaceRecovery"
    metrics: "ServerMetrics | None" = None
    readiness: Readiness = field(default_factory=Readiness)
    limits: RateLimits = field(default_factory=RateLimits)
    # With Redis, or a limit of requests.
    shared_limits: "SharedRateLimiter | None" = None
    connection_limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    running_calls: RunningCalls = field(default_factory=RunningCalls)


def services_of(connection: HTTPConnection) -> ApiServices:
    """Return the services of the application that handles this request."""
    services: ApiServices = connection.scope["app"].state.services
    return services


async def _injected(connection: HTTPConnection) -> ApiServices:
    # A coroutine: FastAPI would run a plain function in a thread.
    return services_of(connection)


Injected = Annotated[ApiServices, Depends(_injected)]
