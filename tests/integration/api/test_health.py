"""Readiness: the state of each check, without secrets or paths, and cheap however often it is requested."""

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx2

import toolcrib
from tests.integration.api.accounts import API, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.api.readiness import CheckState, Readiness


async def test_readyz_has_the_state_of_each_check(client: httpx2.AsyncClient, services: ApiServices) -> None:
    response = await client.get("http://localhost/readyz")

    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "database": "ok",
        "disk": "ok",
        # This server has not tried to escape from its sandbox yet.
        "sandbox": "checking",
        "recovery": {"workspaces": 0, "quarantined": 0},
        "version": toolcrib.__version__,
        "node": services.settings.node_name,
    }


async def test_unwritable_disk_is_503_and_the_answer_has_no_path(services: ApiServices, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o500)
    here = services.settings.model_copy(update={"data_dir": data_dir})
    app = create_app(replace(services, settings=here, readiness=Readiness()))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=API) as client:
        ready, health = [await client.get(f"http://localhost/{path}") for path in ("readyz", "health")]
        alive = await client.get("http://localhost/livez")

    assert code_of(ready) == code_of(health) == (503, "UNAVAILABLE")
    assert ready.headers["retry-after"] == "5"
    assert ready.json()["fields"] == {"database": "ok", "disk": "failed", "sandbox": "checking"}
    assert str(tmp_path) not in ready.text
    assert alive.status_code == 200


async def test_many_probes_share_one_check(services: ApiServices) -> None:
    readiness = Readiness()

    found = await asyncio.gather(*(readiness.check(services) for _ in range(200)))
    later = await readiness.check(services)

    assert all(one is found[0] for one in found)
    assert later is found[0]
    assert found[0].database is CheckState.OK
    assert list(services.settings.data_dir.glob(".readiness-*")) == []


async def test_draining_server_is_503(services: ApiServices) -> None:
    app = create_app(services)
    services.drain.has_begun = True
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=API) as client:
        ready = await client.get("http://localhost/readyz")
        alive = await client.get("http://localhost/livez")

    assert code_of(ready) == (503, "UNAVAILABLE")
    assert alive.status_code == 200
