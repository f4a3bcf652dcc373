"""The audit log over HTTP."""

from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.agents import AgentRules
from toolcrib.core.audit import AuditRecord
from toolcrib.core.callers import Agent, Caller, WorkspaceRole
from toolcrib.core.ids import AgentId, WorkspaceId, new_id
from toolcrib.gate.audit_checkpoints import CheckpointSigner, is_signed
from toolcrib.gate.audit_seals import AuditSealer
from toolcrib.storage.audit import AuditFilter
from toolcrib.storage.database import Tenant
from toolcrib.wiring.server import audit_seal_key
from toolcrib.wiring.tool_runtime import Stores


@pytest.fixture
async def calls(services: ApiServices, ada: Someone, workspace_id: WorkspaceId) -> list[str]:
    """Make three calls and return them, oldest first."""
    callers = [Caller(workspace_id, ada.id, via="rest") for _ in range(3)]
    for caller in callers:
        record = AuditRecord(caller, "read", "allow", "role", {"path": "/a"}, "done", datetime.now(UTC), 120)
        await services.audit.append([record])
    return [str(caller.call_id) for caller in callers]


async def test_owner_reads_the_audit_log_from_its_newest_page(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    address = f"/workspaces/{workspace_id}/audit"

    first = (await client.get(address, headers=ada.headers, params={"limit": 2})).json()
    rest = (await client.get(address, headers=ada.headers, params={"limit": 2, "before": first["next"]})).json()

    assert [record["call_id"] for record in first["items"] + rest["items"]] == calls[::-1]
    assert rest["next"] is None
    assert first["items"][0]["arguments"] == {"path": "/a"}


async def test_every_kind_of_record_can_be_read(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId
) -> None:
    """A record that cannot be rendered makes every page that contains it fail."""
    files: list[dict[str, object]] = [
        {"path": "/a", "change": "created", "before": None, "after": "00"},
        {"path": "/.env", "displaced": True},
    ]
    hosts: list[dict[str, object]] = [
        {"host": "example.org:443", "denied_reason": None, "made": None},
        {"host": "example.org:80", "denied_reason": "not granted", "made": "during"},
    ]
    outcomes = ["done", "failed", "denied", "changed", "ended"]
    await services.audit.append(
        [
            AuditRecord(
                Caller(workspace_id, ada.id), "bash_start", "none", "background", {}, outcome, datetime.now(UTC), 1,
                files=files, hosts=hosts,
            )
            for outcome in outcomes
        ]
    )  # fmt: skip

    page = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params={"limit": 1000})
    beyond = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params={"before": 2**70})

    assert page.status_code == 200, page.text
    assert [record["outcome"] for record in page.json()["items"]] == outcomes[::-1]
    assert page.json()["items"][0]["files"] == [{**files[0], "proposed": None}, files[1]]
    assert page.json()["items"][0]["hosts"] == hosts
    assert code_of(beyond) == (400, "VALIDATION_ERROR")


async def test_only_owners_read_the_audit_log(
    client: httpx2.AsyncClient,
    services: ApiServices,
    stores: Stores,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    calls: list[str],
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=WorkspaceRole.MEMBER)

    response = await client.get(f"/workspaces/{workspace_id}/audit", headers=bob.headers)

    assert code_of(response) == (403, "FORBIDDEN")


async def test_audit_log_filters_by_actor_tool_outcome_and_time(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    agent = Caller(workspace_id, ada.id, agent=Agent(AgentId(new_id()), "writer", AgentRules()), via="run")
    later = datetime.now(UTC) + timedelta(hours=1)
    await services.audit.append([AuditRecord(agent, "write", "deny", "role", {"path": "/b"}, "denied", later, 1)])

    async def found(**params: str) -> list[str]:
        answer = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params=params)
        return [record["tool"] for record in answer.json()["items"]]

    assert await found(tool="write") == await found(outcome="denied") == await found(agent_id=str(agent.agent_id))
    assert await found(tool="write") == await found(since=(later - timedelta(minutes=1)).isoformat()) == ["write"]
    assert await found(until=later.isoformat()) == ["read"] * 3
    assert await found(user_id=str(ada.id)) == ["write", *["read"] * 3]
    assert await found(user_id=str(new_id())) == await found(session_id=str(new_id())) == []


async def test_page_scans_a_limited_number_of_records_and_returns_a_cursor(
    services: ApiServices, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    tenant, wanted = Tenant(workspace_id, ada.id), AuditFilter(tool="write")

    first = await services.audit.page(tenant, before=None, limit=10, wanted=wanted, scan_limit=2)
    second = await services.audit.page(tenant, before=first.next, limit=10, wanted=wanted, scan_limit=2)

    assert (first.records, second.records) == ([], [])
    assert first.next is not None
    assert second.next is None


async def test_owner_verifies_the_audit_log_in_parts_and_sees_what_is_not_sealed(
    client: httpx2.AsyncClient,
    services: ApiServices,
    stores: Stores,
    ada: Someone,
    workspace_id: WorkspaceId,
    calls: list[str],
) -> None:
    sealer = AuditSealer(stores.audit_seals, audit_seal_key(services.settings))
    address = f"/workspaces/{workspace_id}/audit/verification"
    while await sealer.seal():
        pass
    record = AuditRecord(Caller(workspace_id, ada.id), "read", "allow", "role", {}, "done", datetime.now(UTC), 1)
    await services.audit.append([record])
    newest = await stores.audit_seals.newest()
    assert newest is not None

    result = (await client.get(address, params={"after": newest.number - 1}, headers=ada.headers)).json()
    beyond = (await client.get(address, params={"after": newest.number + 7}, headers=ada.headers)).json()

    before = await stores.audit_seals.seal(newest.number - 1)
    assert result == {
        "whole": True,
        "problems": [],
        "first": newest.number - 1,
        "first_mac": (before.mac if before else bytes(32)).hex(),
        "verified_to": newest.number,
        "last_seal": newest.number,
        "sealed_records": newest.record_count,
        "unsealed_records": 1,
    }
    assert beyond["problems"] == [f"Seal {newest.number + 7} is missing."]


async def test_only_an_owner_gets_a_signed_checkpoint(
    client: httpx2.AsyncClient,
    services: ApiServices,
    stores: Stores,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    calls: list[str],
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=WorkspaceRole.MEMBER)
    address = f"/workspaces/{workspace_id}/audit/checkpoint"
    while await AuditSealer(stores.audit_seals, audit_seal_key(services.settings)).seal():
        pass
    newest = await stores.audit_seals.newest()
    assert newest is not None

    result = (await client.get(address, headers=ada.headers)).json()

    assert (result["number"], result["mac"]) == (newest.number, newest.mac.hex())
    assert is_signed(result, CheckpointSigner(audit_seal_key(services.settings)).public_key)
    assert code_of(await client.get(address, headers=bob.headers)) == (403, "FORBIDDEN")


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "1001"}, {"before": "-1"}, {"before": "yesterday"}])
async def test_invalid_page_is_rejected(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, params: dict[str, str]
) -> None:
    response = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params=params)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert set(response.json()["fields"]) == set(params)
