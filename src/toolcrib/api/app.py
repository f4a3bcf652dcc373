"""The application: its routes, its edge, its errors. Whoever serves it makes the services first."""

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
    """FastAPI, with our description of the API."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._describing: asyncio.Task[bytes] | None = None

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = describe(self)
        return self.openapi_schema

    async def serve_openapi(self, _: Request) -> Response:
        """The OpenAPI document, built off the loop by the first request: it takes most of a second."""
        if self._describing is None:
            self._describing = asyncio.create_task(asyncio.to_thread(lambda: to_json(self.openapi())))
        return Response(await asyncio.shield(self._describing), media_type="application/json")


def create_app(services: ApiServices, *, lifespan: Lifespan | None = None) -> FastAPI:
    """An application that serves with the given services."""
    door = McpApp(services)
    watchdog = LoopWatchdog(file=services.settings.stalls_file)
    app = Application(
        title="Toolcrib",
        version=toolcrib.__version__,
        # Served by ourselves, below.
        openapi_url=None,
        # These pages load scripts from another site; the document itself is enough.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        lifespan=_living(door, watchdog, lifespan),
    )
    app.state.services = services
    app.state.watchdog = watchdog
    app.add_route("/api/v1/openapi.json", app.serve_openapi, include_in_schema=False)
    # Routes are tried in this order: tools are called most.
    app.add_route("/api/v1/workspaces/{workspace_id}/tools", tool_calls.call_tool_fast, methods=["POST"])
    for path in ("/mcp/{workspace_id}", "/mcp"):
        app.router.routes.append(Route(path, door, include_in_schema=False))
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


def _living(door: McpApp, watchdog: LoopWatchdog, lifespan: Lifespan | None) -> Lifespan:
    """The application's life, during which its loop is watched, and at whose end MCP clients are let go."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            opened.enter_context(watchdog.watching())
            opened.push_async_callback(door.close)
            if lifespan is not None:
                await opened.enter_async_context(lifespan(app))
            yield

    return life


# The web server around the application: how it listens, and what it lets a client do before it knows who that is.

Listener = uvicorn.Server


def listener(services: ApiServices) -> Listener:
    """A server for these services, on the address of their settings unless it is given a socket."""
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
        # What a client may make us hold before we know who it is. Large files are written over HTTP.
        ws_max_size=1_000_000,
        # Many small messages: it would cost more time than it saves in size.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=10,
    )
    freeze_gc()
    return Listener(config)


def _prepare(app: FastAPI) -> None:
    """Looks for an address that there is not: the framework prepares each route when it is first looked at, which
    would keep the first who asks, and everyone else, waiting for a second."""
    scope = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(scope)
