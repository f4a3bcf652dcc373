"""Budgets of a workspace over HTTP: owners set them, members see them, and changes are recorded."""

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone, code_of
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId


async def test_an_owner_sets_changes_and_removes_budgets_by_period(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    url = f"/workspaces/{workspace_id}"

    async def change(budgets: object) -> object:
        return (await client.patch(url, json={"budgets": budgets}, headers=ada.headers)).json()["budgets"]

    limited = {"max_tokens": None, "max_cost": 5.0}
    assert await change({"day": {"max_cost": 5}}) == {"session": None, "day": limited, "month": None}
    both = await change({"month": {"max_tokens": 9_000_000}})
    assert both == {"session": None, "day": limited, "month": {"max_tokens": 9_000_000, "max_cost": None}}
    assert await change({"day": None}) == {**both, "day": None}
    assert await change({"month": {}}) is None
    await change({"day": {"max_cost": 5}, "session": {"max_tokens": 10}})
    assert await change(None) is None


async def test_budgets_are_listed_with_what_is_used(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    url = f"/workspaces/{workspace_id}"
    definition = "budgets:\n  day: {max_cost: 2.5}\n  session: {max_tokens: 1000}\n"
    agent = await client.post(f"{url}/agents", json={"name": "coder", "definition": definition}, headers=ada.headers)
    await client.patch(url, json={"budgets": {"month": {"max_cost": 50}}}, headers=ada.headers)

    found = (await client.get(f"{url}/budgets", headers=ada.headers)).json()["items"]

    nothing = {"max_tokens": None, "max_cost": None, "tokens": None, "cost": None}
    of_agent = {"agent_id": agent.json()["id"], "agent_name": "coder"}
    assert found == [
        {
            **nothing,
            "agent_id": None,
            "agent_name": None,
            "period": "month",
            "max_cost": "50.0",
            "tokens": 0,
            "cost": "0",
        },
        {**nothing, **of_agent, "period": "session", "max_tokens": 1000},
        {**nothing, **of_agent, "period": "day", "max_cost": "2.5", "tokens": 0, "cost": "0"},
    ]


@pytest.mark.parametrize(
    ("budgets", "field"),
    [
        ({"day": {"max_cost": 0}}, "budgets.day.max_cost"),
        ({"day": {"max_cost": -1}}, "budgets.day.max_cost"),
        ({"day": {"max_cost": 1e300}}, "budgets.day.max_cost"),
        ({"day": {"max_tokens": 10**30}}, "budgets.day.max_tokens"),
        ({"week": {"max_tokens": 10}}, "budgets.week"),
        ({"day": {"max_calls": 10}}, "budgets.day.max_calls"),
    ],
)
async def test_a_wrong_budget_names_its_field(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, budgets: object, field: str
) -> None:
    response = await client.patch(f"/workspaces/{workspace_id}", json={"budgets": budgets}, headers=ada.headers)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert list(response.json()["fields"]) == [field]


@pytest.mark.parametrize("role", [WorkspaceRole.MEMBER, WorkspaceRole.VIEWER])
async def test_only_owners_set_budgets_and_all_see_them(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, workspace_id: WorkspaceId, role: WorkspaceRole
) -> None:
    grace, url = await newcomer(), f"/workspaces/{workspace_id}"
    joined = await client.post(f"{url}/members", json={"email": grace.email, "role": role}, headers=ada.headers)
    assert joined.status_code == 201
    await client.patch(url, json={"budgets": {"day": {"max_cost": 5}}}, headers=ada.headers)

    refused = await client.patch(url, json={"budgets": {"day": {"max_cost": 500}}}, headers=grace.headers)
    removed = await client.patch(url, json={"budgets": None}, headers=grace.headers)
    seen = await client.get(f"{url}/budgets", headers=grace.headers)

    assert code_of(refused) == code_of(removed) == (403, "FORBIDDEN")
    assert [one["max_cost"] for one in seen.json()["items"]] == ["5.0"]


async def test_changes_of_budgets_are_in_the_audit_log(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    url = f"/workspaces/{workspace_id}"
    await client.patch(url, json={"budgets": {"day": {"max_cost": 5}}}, headers=ada.headers)

    newest = (await client.get(f"{url}/audit", headers=ada.headers)).json()["items"][0]

    assert newest["tool"] == "workspace.changed"
    assert newest["arguments"]["before"]["budgets"] is None
    assert newest["arguments"]["after"]["budgets"] == {"day": {"max_cost": 5.0}}
