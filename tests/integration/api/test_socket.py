"""The application behind a real web server, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
import uvicorn

from tests.integration.api.accounts import PASSWORD, Someone, bearer, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.core.ids import WorkspaceId
from toolcrib.settings import Settings

LIMIT = 1_000


@pytest.fixture
async def origin(services: ApiServices, settings: Settings) -> AsyncIterator[str]:
    """Yield the URL of the server."""
    app = create_app(replace(services, settings=settings.model_copy(update={"max_request_bytes": LIMIT})))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await serving


@pytest.fixture
async def wire(origin: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=f"{origin}/api/v1", trust_env=False) as opened:
        yield opened


async def test_browser_stays_logged_in_by_its_cookies(wire: httpx2.AsyncClient, origin: str, ada: Someone) -> None:
    login = await wire.post("/auth/login", json={"email": ada.email, "password": PASSWORD})
    me = await wire.get("/auth/me")
    founded = await wire.post("/workspaces", headers={"Origin": origin}, json={"name": "website"})
    refreshed = await wire.post("/auth/refresh", headers={"Origin": origin})
    out = await wire.post("/auth/logout", headers={"Origin": origin})
    after = await wire.get("/auth/me")

    statuses = [r.status_code for r in (login, me, founded, refreshed, out, after)]
    assert statuses == [200, 200, 201, 200, 204, 401]


async def test_key_works_over_the_network(wire: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId) -> None:
    made = await wire.post("/api-keys", headers=ada.headers, json={"name": "laptop"})

    found = await wire.get(f"/workspaces/{workspace_id}", headers=bearer(made.json()["secret"]))

    assert found.json()["id"] == str(workspace_id)


async def test_body_with_too_large_content_length_is_rejected(wire: httpx2.AsyncClient, ada: Someone) -> None:
    response = await wire.post("/workspaces", headers=ada.headers, json={"name": "x" * LIMIT})

    assert code_of(response) == (413, "TOO_LARGE")


async def test_endless_body_is_rejected(wire: httpx2.AsyncClient, ada: Someone) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"name": "'
        for _ in range(LIMIT):
            yield b"xx"

    headers = ada.headers | {"Content-Type": "application/json"}
    response = await wire.post("/workspaces", headers=headers, content=endless())

    assert code_of(response) == (413, "TOO_LARGE")


async def test_url_spelled_differently_is_not_redirected(wire: httpx2.AsyncClient, ada: Someone) -> None:
    # A redirect would send the token to wherever a proxy's Host header points.
    assert code_of(await wire.get("/workspaces/", headers=ada.headers)) == (404, "NOT_FOUND")
