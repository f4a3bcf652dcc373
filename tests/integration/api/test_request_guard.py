"""What every response has in common: hosts, headers, sizes and errors."""

from dataclasses import replace

import httpx2
import pytest
from fastapi import FastAPI, Request, Response
from structlog.testing import capture_logs

import toolcrib
from tests.databases import DatabaseUrls
from tests.integration.api.accounts import API, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.wiring.tool_runtime import Stores


async def test_health_needs_no_token(client: httpx2.AsyncClient, settings: Settings) -> None:
    response = await client.get("http://localhost/health")

    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "database": "ok",
        "version": toolcrib.__version__,
        "node": settings.node_name,
    }


# Hosts and headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:3000", 200),
        ("127.0.0.1:3000", 200),
        ("[::1]:3000", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("localhost@evil.example", 400),
        ("evil.example:127", 400),
        ("", 400),
    ],
)
async def test_unknown_host_is_rejected(client: httpx2.AsyncClient, host: str, status: int) -> None:
    response = await client.get("http://localhost/health", headers={"Host": host})

    assert response.status_code == status


@pytest.mark.parametrize("path", ["http://localhost/health", "/auth/me", "/nowhere"])
async def test_every_response_has_security_headers(client: httpx2.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_response_may_have_its_own_policy(app: FastAPI, client: httpx2.AsyncClient) -> None:
    app.add_route("/page", a_page)

    response = await client.get("http://localhost/page")

    assert response.headers.get_list("cache-control") == ["max-age=60"]
    assert response.headers["x-content-type-options"] == "nosniff"


async def a_page(request: Request) -> Response:
    return Response("hello", headers={"Cache-Control": "max-age=60"})


# Errors


async def test_unknown_url_and_wrong_method_return_the_envelope(client: httpx2.AsyncClient) -> None:
    unknown = await client.get("/nowhere")
    wrong = await client.put("/workspaces")

    assert code_of(unknown) == (404, "NOT_FOUND")
    assert code_of(wrong) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"null",
        b"[]",
        b'"name"',
        b'{"name": "a", "name": "b"}',
        b'{"name": NaN}',
        b'{"name": "\\ud800"}',
        b'{"name": "\xed\xa0\x80"}',
        b'{"name": "\xff"}',
        b'{"name": ' + b"[" * 150 + b"]" * 150 + b"}",
        b"[" * 100_000,
        '{"name": "a"}'.encode("utf-16"),
    ],
)
async def test_malformed_body_is_400(client: httpx2.AsyncClient, ada: Someone, body: bytes) -> None:
    headers = ada.headers | {"Content-Type": "application/json"}

    response = await client.post("/workspaces", headers=headers, content=body)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert response.json()["fields"]


async def test_body_of_another_type_is_not_parsed_as_json(client: httpx2.AsyncClient, ada: Someone) -> None:
    # A form on another site can send text/plain without a preflight request.
    headers = ada.headers | {"Content-Type": "text/plain"}

    response = await client.post("/workspaces", headers=headers, content=b'{"name": "website"}')

    assert code_of(response) == (400, "VALIDATION_ERROR")


async def test_unexpected_error_is_logged_and_not_disclosed(app: FastAPI, client: httpx2.AsyncClient) -> None:
    app.add_route("/broken", broken)

    with capture_logs() as logs:
        response = await client.get("http://localhost/broken?secret=1")

    assert code_of(response) == (500, "INTERNAL_ERROR")
    [logged] = logs
    assert logged["error_id"] in response.json()["error"]
    assert logged["where"] == "GET /broken"
    assert isinstance(logged["exc_info"], ZeroDivisionError)
    assert "division" not in response.text


async def broken(request: Request) -> Response:
    raise ZeroDivisionError("division by zero")


async def test_unreachable_database_is_503(services: ApiServices, database_urls: DatabaseUrls, ada: Someone) -> None:
    async with Database.open(database_urls.app, database_urls.system, pool_size=2) as closed:
        pass
    services = replace(services, database=closed, workspaces=Stores(services.settings, closed).workspaces)
    transport = httpx2.ASGITransport(create_app(services))
    async with httpx2.AsyncClient(transport=transport, base_url=API) as client:
        health = await client.get("http://localhost/health")
        listed = await client.get("/workspaces", headers=ada.headers)

    assert code_of(health) == code_of(listed) == (503, "UNAVAILABLE")
    assert health.headers["retry-after"]
    assert listed.headers["retry-after"]
