"""The application: its routes, its edge, its errors. Whoever serves it makes the services first."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route

import toolcrib
from toolcrib.server import errors
from toolcrib.server.edge import Edge
from toolcrib.server.hosts import Hosts
from toolcrib.server.mcp.door import Door
from toolcrib.server.openai import routes as openai_routes
from toolcrib.server.openapi import describe, operation_id
from toolcrib.server.pages import Pages
from toolcrib.server.routes import (
    agents,
    approvals,
    audit,
    auth,
    files,
    health,
    keys,
    mcp_servers,
    members,
    models,
    past,
    questions,
    runs,
    sessions,
    tools,
    websocket,
    workspaces,
)
from toolcrib.server.services import Services

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Application(FastAPI):
    """FastAPI, with our description of the API."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = describe(self)
        return self.openapi_schema


def create_app(services: Services, *, lifespan: Lifespan | None = None) -> FastAPI:
    """An application that serves with the given services."""
    door = Door(services)
    app = Application(
        title="Toolcrib",
        version=toolcrib.__version__,
        openapi_url="/api/v1/openapi.json",
        # These pages load scripts from another site; the document itself is enough.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        lifespan=_with_door(door, lifespan),
    )
    app.state.services = services
    # Routes are tried in this order: tools are called most.
    app.add_route("/api/v1/workspaces/{workspace_id}/tools", tools.call_tool_directly, methods=["POST"])
    for path in ("/mcp/{workspace_id}", "/mcp"):
        app.router.routes.append(Route(path, door, include_in_schema=False))
    for module in (
        tools,
        files,
        approvals,
        questions,
        runs,
        past,
        models,
        sessions,
        websocket,
        workspaces,
        members,
        agents,
        mcp_servers,
        audit,
        keys,
        auth,
    ):
        app.include_router(module.router, prefix="/api/v1")
    app.include_router(health.status_router, prefix="/api/v1")
    app.include_router(openai_routes.router)
    app.include_router(health.router)
    app.router.default = Pages(app.router.default)
    errors.install(app)
    app.add_middleware(
        Edge,
        hosts=Hosts(services.settings.allowed_hosts),
        max_request_bytes=services.settings.max_request_bytes,
    )
    return app


def _with_door(door: Door, lifespan: Lifespan | None) -> Lifespan:
    """The application's life, at whose end MCP clients are let go."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            opened.push_async_callback(door.close)
            if lifespan is not None:
                await opened.enter_async_context(lifespan(app))
            yield

    return life
