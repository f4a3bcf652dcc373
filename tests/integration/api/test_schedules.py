"""Schedules over HTTP: what is valid, who may do what, and what the audit log records."""

from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone
from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant


@pytest.fixture
def schedules(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/schedules"


@pytest.fixture
async def given(services: ApiServices, workspace_id: WorkspaceId, ada: Someone) -> dict[str, Any]:
    agent = await services.agents.create(Tenant(workspace_id, ada.id), name="writer", definition="trust: guided")
    return {
        "name": "Report",
        "cron": "0 9 * * mon-fri",
        "time_zone": "Europe/Berlin",
        "agent_id": str(agent.id),
        "message": "What changed?",
    }


async def test_member_creates_changes_runs_and_deletes_a_schedule(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, schedules: str, given: dict[str, Any]
) -> None:
    made = await client.post(schedules, json=given, headers=ada.headers)
    assert made.status_code == 201, made.text
    shown = made.json()
    assert given.items() <= shown.items()
    assert shown["user_id"] == str(ada.id)
    assert shown["enabled"]
    assert shown["next_at"]
    one = f"{schedules}/{shown['id']}"
    assert (await client.get(one, headers=ada.headers)).json() == shown
    assert (await client.get(schedules, headers=ada.headers)).json()["items"] == [shown]
    assert (await client.post(schedules, json=given, headers=ada.headers)).status_code == 409

    paused = await client.patch(one, json={"enabled": False}, headers=ada.headers)
    assert (paused.json()["enabled"], paused.json()["next_at"]) == (False, None)
    started = await client.post(f"{one}/run", headers=ada.headers)
    assert started.status_code == 202, started.text
    assert started.json()["prompt_preview"] == "What changed?"
    after = (await client.get(one, headers=ada.headers)).json()
    assert after["last_run_id"] == started.json()["id"]
    session = await client.get(f"/workspaces/{workspace_id}/sessions/{after['last_session_id']}", headers=ada.headers)
    assert session.json()["title"] == "Report"

    assert (await client.delete(one, headers=ada.headers)).status_code == 204
    assert (await client.get(one, headers=ada.headers)).status_code == 404
    assert (await client.post(f"{one}/run", headers=ada.headers)).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "every day"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../etc"}, "time_zone"),
        ({"name": ""}, "name"),
        ({"message": ""}, "message"),
        ({"message": "a\x00b"}, "message"),
        ({"user_id": "00000000-0000-7000-8000-000000000000"}, "user_id"),
    ],
)
async def test_invalid_schedule_is_rejected_with_the_field(
    client: httpx2.AsyncClient, ada: Someone, schedules: str, given: dict[str, Any], wrong: dict[str, Any], field: str
) -> None:
    refused = await client.post(schedules, json=given | wrong, headers=ada.headers)
    assert refused.status_code == 400, refused.text
    assert list(refused.json()["fields"]) == [field]
    made = (await client.post(schedules, json=given, headers=ada.headers)).json()
    refused = await client.patch(f"{schedules}/{made['id']}", json=wrong, headers=ada.headers)
    assert refused.status_code == 400, refused.text


async def test_nobody_else_changes_what_is_sent_as_a_user(
    client: httpx2.AsyncClient,
    services: ApiServices,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    schedules: str,
    given: dict[str, Any],
) -> None:
    bob, carol = await newcomer(), await newcomer()
    for member in (bob, carol):
        await services.workspaces.add_member(
            Tenant(workspace_id, ada.id), email=member.email, role=WorkspaceRole.MEMBER
        )
    of_bob = (await client.post(schedules, json=given, headers=bob.headers)).json()
    one = f"{schedules}/{of_bob['id']}"

    assert (await client.patch(one, json={"message": "x"}, headers=carol.headers)).status_code == 403
    assert (await client.patch(one, json={"message": "x"}, headers=ada.headers)).status_code == 403
    assert (await client.post(f"{one}/run", headers=ada.headers)).status_code == 403
    assert (await client.delete(one, headers=carol.headers)).status_code == 403
    assert (await client.patch(one, json={"enabled": False}, headers=ada.headers)).status_code == 200
    assert (await client.delete(one, headers=ada.headers)).status_code == 204


async def test_changes_of_schedules_are_recorded_and_firings_are_not(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, schedules: str, given: dict[str, Any]
) -> None:
    made = (await client.post(schedules, json=given, headers=ada.headers)).json()
    one = f"{schedules}/{made['id']}"
    await client.post(f"{one}/run", headers=ada.headers)
    await client.patch(one, json={"cron": "0 10 * * *"}, headers=ada.headers)
    await client.delete(one, headers=ada.headers)

    audit = f"/workspaces/{workspace_id}/audit"
    found = (await client.get(audit, headers=ada.headers, params={"kind": "admin"})).json()["items"]
    of_schedules = [record for record in reversed(found) if record["tool"].startswith("schedule.")]

    assert [record["tool"] for record in of_schedules] == ["schedule.created", "schedule.changed", "schedule.deleted"]
    assert {record["arguments"]["subject"] for record in of_schedules} == {made["id"]}
    before, after = of_schedules[1]["arguments"]["before"], of_schedules[1]["arguments"]["after"]
    assert (before["cron"], after["cron"]) == ("0 9 * * mon-fri", "0 10 * * *")
    assert "What changed?" not in str(of_schedules)
