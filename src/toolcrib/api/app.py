"""The ASGI application: routes, request guard and error handlers; and the uvicorn server around it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import toolcrib
from toolcrib.api import http_errors
from toolcrib.api.allowed_hosts import AllowedHosts
from toolcrib.api.api_services import ApiServices
from toolcrib.api.connection_deadlines import ConnectionCapacity, ConnectionRegistry
from toolcrib.api.http import (
    accounts,
    agents,
    api_keys,
    approvals,
    audit,
    call_history,
    files,
    health,
    invitations,
    mcp_servers,
    members,
    models,
    packages,
    questions,
    runs,
    sessions,
    tool_calls,
    workspaces,
)
from toolcrib.api.loop_watchdog import LoopWatchdog
from toolcrib.api.mcp.mcp_app import McpApp
from toolcrib.api.openai import openai_routes as openai_routes
from toolcrib.api.openapi_document import describe, operation_id
from toolcrib.api.request_guard import RequestGuard
from toolcrib.api.web_ui import WebUi
from toolcrib.api.websocket import websocket_endpoint
from toolcrib.runtime.process_setup import freeze_gc

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Application(FastAPI):
    """FastAPI with our own OpenAPI document."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._describing: asyncio.Task[bytes] | None = None

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(self)
        return self.openapi_schema

    async def serve_openapi(self, _: Request) -> Response:
        """Serve the OpenAPI document. The first request builds it in a thread, because that takes most of a second."""
        if self._describing is None:
            self._describing = asyncio.create_task(asyncio.to_thread(lambda: to_json(self.openapi())))
        return Response(await asyncio.shield(self._describing), media_type="application/json")


def create_app(services: ApiServices, *, lifespan: Lifespan | None = None) -> FastAPI:
    """Create the application for the given services."""
    mcp_app = McpApp(services)
    watchdog = LoopWatchdog(file=services.settings.stalls_file)
    app = Application(
        title="Toolcrib",
        version=toolcrib.__version__,
        # Our own route serves it, see below.
        openapi_url=None,
        # These pages load scripts from another site; the document itself is enough.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        lifespan=_living(mcp_app, watchdog, lifespan),
    )
    app.state.services = services
    app.state.watchdog = watchdog
    app.add_route("/api/v1/openapi.json", app.serve_openapi, include_in_schema=False)
    # Routes are matched in this order: tool calls are the most frequent.
    app.add_route("/api/v1/workspaces/{workspace_id}/tools", tool_calls.call_tool_fast, methods=["POST"])
    for path in ("/mcp/{workspace_id}", "/mcp"):
        app.router.routes.append(Route(path, mcp_app, include_in_schema=False))
    for module in (
        tool_calls,
        files,
        approvals,
        questions,
        runs,
        call_history,
        models,
        sessions,
        websocket_endpoint,
        workspaces,
        members,
        invitations,
        agents,
        mcp_servers,
        packages,
        audit,
        api_keys,
        accounts,
    ):
        app.include_router(module.router, prefix="/api/v1")
    app.include_router(invitations.public, prefix="/api/v1")
    app.include_router(health.status_router, prefix="/api/v1")
    app.include_router(openai_routes.router)
    app.include_router(health.router)
    app.router.default = WebUi(app.router.default)
    http_errors.install(app)
    app.add_middleware(
        RequestGuard,
        hosts=AllowedHosts(services.settings.allowed_hosts),
        max_request_bytes=services.settings.max_request_bytes,
    )
    return app


def _living(mcp_app: McpApp, watchdog: LoopWatchdog, lifespan: Lifespan | None) -> Lifespan:
    """Return the lifespan: watches the event loop, and closes MCP sessions at the end."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            opened.enter_context(watchdog.watching())
            opened.push_async_callback(mcp_app.close)
            if lifespan is not None:
                await opened.enter_async_context(lifespan(app))
            yield

    return life


Listener = uvicorn.Server


def listener(services: ApiServices) -> Listener:
    """Create the web server, on the address of the settings unless it is given a socket."""
    settings = services.settings
    app = create_app(services)
    _prepare(app)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
        date_header=False,
        http=ConnectionRegistry(ConnectionCapacity.here(settings.trusted_proxies)).protocol(),
        ws="websockets-sansio",
        # What a client may make the server buffer before it is authenticated. Large files are written over HTTP.
        ws_max_size=1_000_000,
        # Messages are many and small: compression would cost more time than it saves in size.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=10,
    )
    freeze_gc()
    return Listener(config)


def _prepare(app: FastAPI) -> None:
    """Match a path that does not exist, so that the framework prepares every route.

    It would otherwise do so at the first request, which would block the event loop for a second.
    """
    scope = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(scope)
