"""What an operator sees of requests: their ids, the access log, and the metrics that Prometheus reads."""

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from structlog.testing import capture_logs

from tests.integration.api.accounts import API, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.api.passwords import PasswordHasher, Passwords
from toolcrib.core.ids import WorkspaceId
from toolcrib.events import EventHub
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.wiring.server import api_services, server_metrics
from toolcrib.wiring.tool_runtime import assemble

ORIGIN = API.removesuffix("/api/v1")
TOKEN = secrets.token_urlsafe(32)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"access_log": True, "metrics_token": SecretStr(TOKEN)})


@pytest.fixture
def services(settings: Settings, database: Database, live: EventHub, providers: ProviderRegistry) -> ApiServices:
    metrics = server_metrics(database)
    engine = assemble(settings, database, live=live, on_call_ended=metrics.call_ended)
    metrics.watch_queues(lambda: engine.executor.waiting_calls)
    passwords = Passwords(PasswordHasher(iterations=1, lanes=1, memory_kib=8))
    return api_services(engine, live, providers, passwords=passwords, metrics=metrics)


@pytest.fixture
async def web(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN) as opened:
        yield opened


async def metrics(web: httpx2.AsyncClient) -> str:
    response = await web.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 200
    return response.text


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [("deploy-7.b_2", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ('"},{"', False), ("", False)],
)
async def test_short_plain_request_id_of_a_client_is_kept(web: httpx2.AsyncClient, sent: str, is_kept: bool) -> None:
    response = await web.get("/livez", headers={"X-Request-ID": sent})

    assert (response.headers["x-request-id"] == sent) is is_kept
    assert response.headers["x-request-id"]


async def test_access_log_has_a_line_for_each_request_without_its_secrets(
    web: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    path = f"/api/v1/workspaces/{workspace_id}"
    with capture_logs() as lines:
        response = await web.get(f"{path}?token=hunter2", headers={"Authorization": f"Bearer {ada.token}"})
        await web.get("/livez")
        await web.get("/nowhere?password=hunter2")

    logged = [line for line in lines if line["event"] == "request"]
    assert [(line["method"], line["path"], line["route"], line["status"]) for line in logged] == [
        ("GET", path, "/api/v1/workspaces/{workspace_id}", 200),
        ("GET", "/nowhere", "unmatched", 404),
    ]
    assert all(line["seconds"] > 0 and line["client"] == "127.0.0.1" for line in logged)
    assert response.status_code == 200
    assert "hunter2" not in json.dumps(lines)
    assert ada.token not in json.dumps(lines)


async def test_metrics_need_their_token(web: httpx2.AsyncClient, ada: Someone) -> None:
    for authorization in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {ada.token}"}):
        response = await web.get("/metrics", headers=authorization)

        assert code_of(response) == (401, "INVALID_TOKEN")
        assert "toolcrib_" not in response.text


async def test_metrics_are_served_under_any_name(web: httpx2.AsyncClient) -> None:
    """Prometheus connects to each node by its own address; everything else needs a known name."""
    named = {"Host": "10.0.0.7:3000", "Authorization": f"Bearer {TOKEN}"}

    assert (await web.get("/metrics", headers=named)).status_code == 200
    assert (await web.get("/api/v1/status", headers=named)).status_code == 400


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/ready", "/docs", "/admin.php", "/w", "/api", "/.env"])
async def test_unknown_paths_are_404(services: ApiServices, path: str) -> None:
    bare = services.settings.model_copy(update={"metrics_token": None, "access_log": False})
    app = create_app(replace(services, settings=bare, metrics=None))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN) as web:
        assert code_of(await web.get(path)) == (404, "NOT_FOUND")


async def test_labels_have_no_value_that_a_client_chooses(
    web: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    headers = {"Authorization": f"Bearer {ada.token}"}
    for number in range(20):
        await web.get(f"/scan-{number}", headers=headers)
        await web.request(f"M{number}", "/livez")
        await web.post(
            f"/api/v1/workspaces/{workspace_id}/tools", headers=headers, json={"tool": f"tool-{number}", "args": {}}
        )

    text = await metrics(web)

    assert 'toolcrib_http_requests_total{method="GET",route="unmatched",status="404"} 20.0' in text
    assert 'toolcrib_calls_total{outcome="failed",tool="unknown"} 20.0' in text
    for chosen in ("scan-", "tool-", "M1", str(workspace_id), ada.email):
        assert chosen not in text


async def test_metrics_without_a_database_say_so_and_show_no_old_numbers(
    web: httpx2.AsyncClient, services: ApiServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.api.server_metrics._STATE_TIMEOUT_SECONDS", 0.0)

    text = await metrics(web)

    assert "toolcrib_database_up 0.0" in text
    assert "toolcrib_approvals_pending{" not in text
    assert "toolcrib_database_pool_max_connections" in text
