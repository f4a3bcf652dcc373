"""The ASGI application for MCP clients: authenticates them and finds their workspace.

The MCP library takes a second to import, so it is loaded for the first client.
"""

import asyncio
import importlib
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.principal import (
    Principal,
    bearer,
    caller_for,
    principal_by_token,
    reject_foreign_origin,
    tenant_for,
    workspace_id_of,
)
from toolcrib.api.pause_notices import origin_of
from toolcrib.api.request_guard import admit_large, may_be_large, reject_bad_json, replayed
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, Unauthenticated
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant

# The key in the ASGI scope.
MCP_REQUEST: Final = "toolcrib.visit"
_NO_KEY: Final = "Send an API key with every request: `Authorization: Bearer <key>`. Cookies are ignored here."


@dataclass(frozen=True, slots=True)
class McpRequest:
    """An authenticated MCP request to a workspace."""

    principal: Principal
    workspace_id: WorkspaceId
    request: Request

    @property
    def origin(self) -> str:
        """The origin under which the client reached this server."""
        return origin_of(self.request)

    @property
    def tenant(self) -> Tenant:
        """The principal in the workspace."""
        return tenant_for(self.principal, self.workspace_id)

    def caller(self) -> Caller:
        """Return a caller with a new call id."""
        return caller_for(self.principal, self.workspace_id, via="mcp")

    @property
    def name(self) -> str:
        """The owner of its MCP sessions. No other principal can use them."""
        agent = self.principal.agent
        return f"{self.principal.user_id}/{agent.id if agent else ''}/{self.workspace_id}"


class McpBackend(Protocol):
    """The MCP server, loaded on demand."""

    def open(self) -> AbstractAsyncContextManager[None]: ...
    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class McpApp:
    """The ASGI application at ``/mcp``. The first request loads and starts the server."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._loading = asyncio.Lock()
        self._backend: McpBackend | None = None
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        reject_foreign_origin(request, self._services)
        mcp_request = await self._admitted(request)
        if may_be_large(request):
            await admit_large(request, mcp_request.principal)
            body = await request.body()
            await reject_bad_json(body)
            receive = replayed(body, receive)
        backend = self._backend or await self._load()
        await backend.answer({**scope, MCP_REQUEST: mcp_request}, receive, send)

    async def close(self) -> None:
        """End all sessions."""
        self._stop.set()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _admitted(self, request: Request) -> McpRequest:
        token = bearer(request)
        if token is None:
            raise Unauthenticated(_NO_KEY)
        principal = await principal_by_token(self._services, token)
        workspace_id = _workspace(request.path_params.get("workspace_id"), principal)
        return McpRequest(principal, workspace_id, request)

    async def _load(self) -> McpBackend:
        async with self._loading:
            if self._backend is None:
                made = await asyncio.to_thread(_backend, self._services)
                ready = asyncio.Event()
                self._running = asyncio.create_task(self._run(made, ready))
                await ready.wait()
                self._backend = made
            return self._backend

    async def _run(self, backend: McpBackend, ready: asyncio.Event) -> None:
        """Run the server in its own task: sessions outlive the request that opened them."""
        async with backend.open():
            ready.set()
            await self._stop.wait()


def _backend(services: ApiServices) -> McpBackend:
    made: McpBackend = importlib.import_module("toolcrib.api.mcp.mcp_server").McpProtocolServer(services)
    return made


def _workspace(given: Any, principal: Principal) -> WorkspaceId:
    if given is None and principal.workspace_id is not None:
        return principal.workspace_id
    if given is None:
        raise BadArguments({"workspace_id": "A person's key opens several workspaces. Use /mcp/{workspace_id}."})
    return workspace_id_of(given)
