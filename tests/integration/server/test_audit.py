"""The book over HTTP."""

from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from tests.integration.server.people import Newcomer, Someone, code_of
from toolcrib.domain.agents import AgentRules
from toolcrib.domain.book import AuditRecord
from toolcrib.domain.callers import Agent, Caller, Role
from toolcrib.domain.ids import AgentId, WorkspaceId, new_id
from toolcrib.engine.seals import Sealer
from toolcrib.server.services import Services
from toolcrib.storage.audit import Sealing, Wanted
from toolcrib.storage.database import Tenant
from toolcrib.wiring import audit_key


@pytest.fixture
async def calls(services: Services, ada: Someone, workspace_id: WorkspaceId) -> list[str]:
    """Three calls, the oldest first."""
    callers = [Caller(workspace_id, ada.id, via="rest") for _ in range(3)]
    for caller in callers:
        record = AuditRecord(caller, "read", "allow", "role", {"path": "/a"}, "done", datetime.now(UTC), 120)
        await services.audit.add([record])
    return [str(caller.call_id) for caller in callers]


@pytest.mark.req("AP-3", part="audit")
async def test_an_owner_reads_the_book_from_its_newest_page(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    book = f"/workspaces/{workspace_id}/audit"

    first = (await client.get(book, headers=ada.headers, params={"limit": 2})).json()
    rest = (await client.get(book, headers=ada.headers, params={"limit": 2, "before": first["next"]})).json()

    assert [record["call_id"] for record in first["items"] + rest["items"]] == calls[::-1]
    assert rest["next"] is None
    assert first["items"][0]["input"] == {"path": "/a"}


@pytest.mark.req("AP-3", part="audit")
async def test_only_owners_read_the_book(
    client: httpx2.AsyncClient,
    services: Services,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    calls: list[str],
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=Role.MEMBER)

    response = await client.get(f"/workspaces/{workspace_id}/audit", headers=bob.headers)

    assert code_of(response) == (403, "FORBIDDEN")


@pytest.mark.req("AP-3", part="audit")
async def test_the_book_is_asked_for_who_which_tool_how_it_ended_and_when(
    client: httpx2.AsyncClient, services: Services, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    agent = Caller(workspace_id, ada.id, agent=Agent(AgentId(new_id()), "writer", AgentRules()), via="run")
    later = datetime.now(UTC) + timedelta(hours=1)
    await services.audit.add([AuditRecord(agent, "write", "refuse", "role", {"path": "/b"}, "refused", later, 1)])

    async def found(**params: str) -> list[str]:
        answer = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params=params)
        return [record["tool"] for record in answer.json()["items"]]

    assert await found(tool="write") == await found(outcome="refused") == await found(agent_id=str(agent.agent_id))
    assert await found(tool="write") == await found(since=(later - timedelta(minutes=1)).isoformat()) == ["write"]
    assert await found(until=later.isoformat()) == ["read"] * 3
    assert await found(user_id=str(ada.id)) == ["write", *["read"] * 3]
    assert await found(user_id=str(new_id())) == await found(session_id=str(new_id())) == []


async def test_a_page_looks_at_so_many_records_and_no_more_and_says_where_to_go_on(
    services: Services, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    tenant, wanted = Tenant(workspace_id, ada.id), Wanted(tool="write")

    first = await services.audit.page(tenant, before=None, limit=10, wanted=wanted, look=2)
    second = await services.audit.page(tenant, before=first.next, limit=10, wanted=wanted, look=2)

    assert (first.records, second.records) == ([], [])
    assert first.next is not None
    assert second.next is None


@pytest.mark.req("AU-1", part="verification over HTTP")
async def test_an_owner_verifies_the_book_part_by_part_and_hears_what_is_not_sealed(
    client: httpx2.AsyncClient, services: Services, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    sealer = Sealer(Sealing(services.database), audit_key(services.settings))
    address = f"/workspaces/{workspace_id}/audit/verification"
    while await sealer.seal():
        pass
    record = AuditRecord(Caller(workspace_id, ada.id), "read", "allow", "role", {}, "done", datetime.now(UTC), 1)
    await services.audit.add([record])
    newest = await Sealing(services.database).newest()
    assert newest is not None

    told = (await client.get(address, params={"after": newest.number - 1}, headers=ada.headers)).json()
    beyond = (await client.get(address, params={"after": newest.number + 7}, headers=ada.headers)).json()

    assert told == {
        "whole": True,
        "problems": [],
        "last": newest.number,
        "newest": newest.number,
        "sealed": newest.records,
        "unsealed": 1,
    }
    assert beyond["problems"] == [f"Seal {newest.number + 7} is missing."]


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "1001"}, {"before": "-1"}, {"before": "yesterday"}])
async def test_a_wrong_page_is_refused(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, params: dict[str, str]
) -> None:
    response = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params=params)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert set(response.json()["fields"]) == set(params)
