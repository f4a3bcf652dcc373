"""The ASGI application: routes, request guard, error handlers, OpenAPI document; and the uvicorn server around it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from socket import socket
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import create_model
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import toolcrib
import toolcrib.tools
from toolcrib.api import http_errors, idempotency
from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.principal import ACCESS_COOKIE
from toolcrib.api.connection_limits import ConnectionCapacity, ConnectionRegistry
from toolcrib.api.http import (
    accounts,
    agents,
    audit,
    files,
    health,
    inbox,
    mcp_servers,
    models,
    paused_calls,
    reviews,
    schedules,
    sessions,
    tool_calls,
    users,
    workspaces,
)
from toolcrib.api.mcp.mcp_app import McpApp
from toolcrib.api.openai import openai_routes
from toolcrib.api.request_guard import AllowedHosts, RequestGuard
from toolcrib.api.request_log import RequestLog
from toolcrib.api.routers import API_PREFIX
from toolcrib.api.web_ui import WebUi
from toolcrib.api.websocket import websocket_endpoint
from toolcrib.runtime.loop_watchdog import LoopWatchdog
from toolcrib.runtime.process_setup import freeze_gc
from toolcrib.tools.tool_registry import discover_tools

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


_DESCRIPTION: Final = """
A versioned workspace and guarded tools for language models.

Log in, then send `Authorization: Bearer <access token>`. Programs can send an API key instead.
Every error is `{"success": false, "error": …, "code": …, "fields": …}`; programs should check `code`.
"""


class Application(FastAPI):
    """FastAPI with our own OpenAPI document, from which clients are generated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._describing: asyncio.Task[bytes] | None = None

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = _describe(self)
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
        lifespan=_living(mcp_app, watchdog, lifespan),
    )
    app.state.services = services
    app.state.watchdog = watchdog
    app.add_route(f"{API_PREFIX}/openapi.json", app.serve_openapi, include_in_schema=False)
    for path in ("/mcp/{workspace_id}", "/mcp"):
        app.router.routes.append(Route(path, mcp_app, include_in_schema=False))
    for router in (
        tool_calls.router,
        files.router,
        inbox.router,
        paused_calls.router,
        sessions.runs_router,
        reviews.router,
        tool_calls.history_router,
        models.router,
        sessions.router,
        websocket_endpoint.router,
        workspaces.router,
        workspaces.members_router,
        workspaces.invitations_router,
        agents.router,
        mcp_servers.router,
        agents.packages_router,
        schedules.router,
        audit.router,
        accounts.keys_router,
        users.router,
        health.status_router,
        # Some of these need no authentication.
        accounts.router,
        workspaces.acceptance_router,
        openai_routes.router,
        health.router,
    ):
        # Not `include_router`: it builds every route again, and takes as long as the first time.
        app.router.routes.extend(router.routes)
    app.router.default = WebUi(app.router.default)
    http_errors.install(app)
    app.add_middleware(tool_calls.DirectToolCalls, services=services)
    app.add_middleware(idempotency.IdempotentRequests, services=services)
    per_minute = services.settings.max_requests_per_minute
    if per_minute is not None and services.shared_limits is not None:
        # Imported here: its library is an extra.
        from toolcrib.api.rate_limited_requests import RateLimitedRequests

        app.add_middleware(
            RateLimitedRequests, services=services, limiter=services.shared_limits, per_minute=per_minute
        )
    app.add_middleware(
        RequestGuard,
        hosts=AllowedHosts(services.settings.allowed_hosts),
        max_request_bytes=services.settings.max_request_bytes,
    )
    app.add_middleware(http_errors.StoppedRequests)
    app.add_middleware(
        RequestLog,
        routes=app.routes,
        writes=services.settings.access_log,
        metrics=services.metrics,
        metrics_token=services.settings.metrics_token,
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


class Listener(uvicorn.Server):
    """The web server. It leaves signals to its program, which ends it with ``should_exit``."""

    def __init__(self, config: uvicorn.Config, *, is_serving: asyncio.Event) -> None:
        super().__init__(config)
        self._is_serving = is_serving

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Open the port, and say so."""
        await super().startup(sockets)
        self._is_serving.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: uvicorn would raise a signal again when it has ended, while the services are still open."""
        yield


def listener(services: ApiServices) -> Listener:
    """Create the web server, on the address of the settings unless it is given a socket."""
    settings = services.settings
    config = uvicorn.Config(
        create_app(services),
        host=settings.host,
        port=settings.port,
        # Its lines go to the program's own log, and requests are in ours.
        log_config=None,
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
    return Listener(config, is_serving=services.recovery.is_serving)


def _describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with what FastAPI cannot know."""
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION.strip(), routes=app.routes)
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "An access token or an API key."},
        "cookie": {"type": "apiKey", "in": "cookie", "name": ACCESS_COOKIE},
    }
    document["security"] = [{"token": []}, {"cookie": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            # Validation errors are 400 here, in the envelope of all errors.
            operation["responses"].pop("422", None)
            operation["responses"] = dict(sorted(operation["responses"].items()))
            # In the order of the path, whose workspace a dependency of the route reads.
            at = {name: place for place, name in enumerate(re.findall(r"{(\w+)}", path))}
            operation.get("parameters", []).sort(key=lambda one, at=at: at.get(one["name"], len(at)))
    idempotency.describe(
        document,
        http_errors.examples("IDEMPOTENCY_KEY_IN_USE", "IDEMPOTENCY_ANSWER_LOST", "IDEMPOTENCY_KEY_REUSED"),
        elsewhere=http_errors.examples("IDEMPOTENCY_EFFECT_UNKNOWN"),
    )
    error = http_errors.ErrorOut
    schemas = document["components"]["schemas"] | {error.__name__: error.model_json_schema(mode="serialization")}
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["schemas"] = dict(sorted(schemas.items())) | _results_of_tools()
    return document


def _results_of_tools() -> dict[str, Any]:
    """Return `ToolResults`: lists the results of all tools by name, because all tools share one URL."""
    # A tool that encodes its errors too returns text, or a union of its own.
    tools = [tool for tool in discover_tools(toolcrib.tools) if tool.encode_error is None and tool.result is not None]
    fields: dict[str, Any] = {tool.name: (tool.result, ...) for tool in tools}
    words = "The result schema of each tool, by tool name. Not a response itself."
    results = create_model("ToolResults", __doc__=words, **fields)
    schema = results.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    shared: dict[str, Any] = schema.pop("$defs")
    return {**shared, "ToolResults": schema}
