"""Sessions and their events over HTTP, and tickets."""

from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone, bearer, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Unauthenticated
from toolcrib.core.events import Event
from toolcrib.core.ids import SessionId, WorkspaceId, new_id
from toolcrib.storage.database import Tenant
from toolcrib.storage.events import EventStore


@pytest.fixture
def url(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/sessions"


async def test_session_is_created_found_renamed_and_deleted(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
    made = await client.post(url, json={"title": "first", "mode": "plan", "trust": "supervised"}, headers=ada.headers)
    one = f"{url}/{made.json()['id']}"
    found = await client.get(one, headers=ada.headers)
    renamed = await client.patch(one, json={"title": "second"}, headers=ada.headers)
    gone = await client.delete(one, headers=ada.headers)
    after = await client.get(one, headers=ada.headers)

    assert made.status_code == 201
    assert (found.json()["title"], found.json()["mode"], found.json()["trust"]) == ("first", "plan", "supervised")
    assert found.json()["last_seq"] == 0
    assert renamed.json()["title"] == "second"
    assert gone.status_code == 204
    assert code_of(after) == (404, "NOT_FOUND")


async def test_sessions_are_listed_in_pages_newest_first(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
    made = [(await client.post(url, json={}, headers=ada.headers)).json()["id"] for _ in range(3)]

    first = (await client.get(url, params={"limit": 2}, headers=ada.headers)).json()
    second = (await client.get(url, params={"limit": 2, "before": first["next"]}, headers=ada.headers)).json()

    assert [item["id"] for item in first["items"] + second["items"]] == made[::-1]
    assert second["next"] is None


async def test_person_switches_a_session_between_plan_and_build(
    client: httpx2.AsyncClient, ada: Someone, url: str
) -> None:
    made = (await client.post(url, json={"mode": "plan"}, headers=ada.headers)).json()["id"]

    modes = [
        (await client.patch(f"{url}/{made}", json=change, headers=ada.headers)).json()["mode"]
        for change in ({"mode": "build"}, {"title": "same mode"}, {"mode": "plan"})
    ]

    assert modes == ["build", "build", "plan"]


async def test_unknown_agent_cannot_act_in_a_session(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
    response = await client.post(url, json={"agent_id": str(new_id())}, headers=ada.headers)

    assert code_of(response) == (404, "NOT_FOUND")


async def test_member_deletes_only_their_own_sessions(
    client: httpx2.AsyncClient,
    services: ApiServices,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    url: str,
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=WorkspaceRole.MEMBER)
    adas = (await client.post(url, json={}, headers=ada.headers)).json()["id"]
    bobs = [(await client.post(url, json={}, headers=bob.headers)).json()["id"] for _ in range(2)]

    statuses = [
        (await client.delete(f"{url}/{session}", headers=who.headers)).status_code
        for session, who in ((adas, bob), (bobs[0], bob), (bobs[1], ada))
    ]

    assert statuses == [403, 204, 204]


async def test_events_are_read_in_pages(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    tenant = Tenant(workspace_id, ada.id)
    session = (await client.post(url, json={}, headers=ada.headers)).json()["id"]
    async with services.database.transaction(tenant) as connection:
        for number in range(5):
            await EventStore.append_within(
                connection, tenant, Event(SessionId(session), "message", {"messageId": str(number)})
            )

    found = await client.get(f"{url}/{session}/events", params={"after": 2, "limit": 2}, headers=ada.headers)

    assert found.json() == {
        "items": [
            {"seq": 3, "type": "message", "payload": {"messageId": "2"}},
            {"seq": 4, "type": "message", "payload": {"messageId": "3"}},
        ],
        "next": "4",
    }


async def test_ticket_is_stored_as_a_hash_and_has_an_expiry(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId
) -> None:
    made = (await client.post(f"/workspaces/{workspace_id}/tickets", headers=ada.headers)).json()

    assert made["expires_in"] == 30
    async with services.database.as_system() as connection:
        cursor = await connection.execute(
            "select t::text from toolcrib.connection_tickets t where user_id = %s", (ada.id,)
        )
        [(row,)] = await cursor.fetchall()
    assert made["ticket"] not in row
    assert (await services.tickets.redeem(made["ticket"])).user_id == ada.id


async def test_expired_ticket_gives_no_access(
    services: ApiServices, ada: Someone, workspace_id: WorkspaceId, client: httpx2.AsyncClient
) -> None:
    made = (await client.post(f"/workspaces/{workspace_id}/tickets", headers=ada.headers)).json()
    async with services.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.connection_tickets set expires_at = now() - interval '1 second' where user_id = %s",
            (ada.id,),
        )

    with pytest.raises(Unauthenticated, match="expired"):
        await services.tickets.redeem(made["ticket"])


PHASES = """
trust: autonomous
phases:
  - name: design
    tool_permissions: {read: {allowed: true}}
  - name: build
    tool_permissions: {read: {allowed: true}, write: {allowed: true}}
"""


async def test_person_chooses_the_phase_and_an_agent_key_does_not(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    tenant = Tenant(workspace_id, ada.id)
    agent = await services.agents.create(tenant, name="builder", definition=PHASES)
    other = await services.agents.create(tenant, name="other", definition=PHASES)
    _, secret = await services.keys.create_for_agent(tenant, agent.id, name="k", expires_at=None)
    made = (await client.post(url, json={"agent_id": str(agent.id)}, headers=ada.headers)).json()
    wide = {"agent_id": str(other.id), "phase": "build"}
    others = (await client.post(url, json=wide, headers=ada.headers)).json()
    call = {"tool": "write", "args": {"path": "/made.txt", "content": "x"}, "session_id": made["id"]}
    tools = f"/workspaces/{workspace_id}/tools"

    alone = await client.patch(f"{url}/{made['id']}", json={"phase": "build"}, headers=bearer(secret))
    narrow = await client.post(tools, json=call, headers=bearer(secret))
    borrowed = await client.post(tools, json=call | {"session_id": others["id"]}, headers=bearer(secret))
    unknown = await client.patch(f"{url}/{made['id']}", json={"phase": "release"}, headers=ada.headers)
    chosen = await client.patch(f"{url}/{made['id']}", json={"phase": "build"}, headers=ada.headers)
    done = await client.post(tools, json=call, headers=bearer(secret))
    back = await client.patch(f"{url}/{made['id']}", json={"phase": None}, headers=ada.headers)

    assert (made["phase"], others["phase"]) == (None, "build")
    assert code_of(alone) == (403, "FORBIDDEN")
    assert code_of(narrow) == (403, "NOT_PERMITTED")
    assert code_of(borrowed) == (403, "NOT_PERMITTED")
    assert code_of(unknown) == (400, "VALIDATION_ERROR")
    assert chosen.json()["phase"] == "build"
    assert done.status_code == 200
    assert back.json()["phase"] is None


async def test_call_of_a_person_in_a_session_goes_by_the_rules_of_its_agent(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    tenant = Tenant(workspace_id, ada.id)
    definition = "trust: guided\ntool_permissions: {write: {allowed: true}}\n"
    agent = await services.agents.create(tenant, name="coder", definition=definition)
    _, agent_key = await services.keys.create_for_agent(tenant, agent.id, name="k", expires_at=None)
    own_key = (await client.post("/api-keys", json={"name": "k"}, headers=ada.headers)).json()["secret"]
    with_agent = (await client.post(url, json={"agent_id": str(agent.id)}, headers=ada.headers)).json()["id"]
    without = (await client.post(url, json={}, headers=ada.headers)).json()["id"]

    async def call(tool: str, headers: dict[str, str], **more: Any) -> httpx2.Response:
        path = f"/{new_id()}.txt"
        args = {"write": {"path": path, "content": "x"}, "rm": {"path": path}}[tool]
        return await client.post(
            f"/workspaces/{workspace_id}/tools", json={"tool": tool, "args": args, **more}, headers=headers
        )

    for headers in (ada.headers, bearer(own_key)):
        asked = await call("write", headers, session_id=with_agent)
        denied = await call("rm", headers, session_id=with_agent)
        assert (asked.status_code, asked.json()["result"]["status"]) == (202, "approval_pending")
        assert code_of(denied) == (403, "NOT_PERMITTED")
        for own in ({}, {"session_id": without}, {"session_id": with_agent, "as_person": True}):
            done = await call("write", headers, **own)
            assert done.status_code == 200, done.text
    borrowed = await call("write", bearer(agent_key), session_id=with_agent, as_person=True)
    calls = (await client.get(f"{url}/{with_agent}/calls", headers=ada.headers)).json()["items"]

    assert code_of(borrowed) == (403, "FORBIDDEN")
    assert [(one["agent_id"], one["state"]) for one in calls if one["tool"] == "write"] == [
        (None, "done"),
        (str(agent.id), "paused"),
        (None, "done"),
        (str(agent.id), "paused"),
    ]


async def test_agent_key_call_has_the_trust_of_its_session(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    tenant = Tenant(workspace_id, ada.id)
    definition = "trust: autonomous\ntool_permissions: {write: {allowed: true}}\n"
    agent = await services.agents.create(tenant, name="builder", definition=definition)
    _, secret = await services.keys.create_for_agent(tenant, agent.id, name="k", expires_at=None)
    given = {"agent_id": str(agent.id), "trust": "supervised"}
    session = (await client.post(url, json=given, headers=ada.headers)).json()
    call = {"tool": "write", "args": {"path": "/made.txt", "content": "x"}, "session_id": session["id"]}
    tools = f"/workspaces/{workspace_id}/tools"

    asked = await client.post(tools, json=call, headers=bearer(secret))
    await client.patch(f"{url}/{session['id']}", json={"trust": None}, headers=ada.headers)
    done = await client.post(tools, json=call, headers=bearer(secret))

    assert asked.status_code == 202
    assert done.status_code == 200


async def test_explain_evaluates_a_phase(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId
) -> None:
    agent = await services.agents.create(Tenant(workspace_id, ada.id), name="builder", definition=PHASES)
    asked = {"tool": "write", "args": {"path": "/made.txt", "content": "x"}, "agent_id": str(agent.id)}
    address = f"/workspaces/{workspace_id}/explain"

    first = await client.post(address, json=asked, headers=ada.headers)
    second = await client.post(address, json=asked | {"phase": "build"}, headers=ada.headers)
    third = await client.post(address, json=asked | {"phase": "release"}, headers=ada.headers)

    assert (first.json()["action"], second.json()["action"]) == ("deny", "allow")
    assert first.json()["rule"] == "agent.phases.design.tool_permissions.write"
    assert code_of(third) == (400, "VALIDATION_ERROR")


async def test_explain_evaluates_a_session(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId
) -> None:
    tenant = Tenant(workspace_id, ada.id)
    definition = "trust: guided\nmax_trust: autonomous\ntool_permissions: {write: {allowed: true}}\n"
    agent = await services.agents.create(tenant, name="writer", definition=definition)
    other = await services.agents.create(tenant, name="other", definition="")
    address = f"/workspaces/{workspace_id}"

    async def begun(**given: str) -> str:
        made = await client.post(f"{address}/sessions", json={"agent_id": str(agent.id), **given}, headers=ada.headers)
        return str(made.json()["id"])

    async def explained(**given: str) -> httpx2.Response:
        asked = {"tool": "write", "args": {"path": "/made.txt", "content": "x"}, **given}
        return await client.post(f"{address}/explain", json=asked, headers=ada.headers)

    plain, trusted, planning = await begun(), await begun(trust="autonomous"), await begun(mode="plan")
    found = [(await explained(session_id=one)).json() for one in (plain, trusted, planning)]
    mixed = await explained(session_id=plain, agent_id=str(other.id))
    unknown = await explained(session_id=str(new_id()))

    rules = ["trust.guided.dangerous", "trust.autonomous.dangerous", "session.mode"]
    assert [one["rule"] for one in found] == rules
    assert [one["action"] for one in found] == ["ask", "allow", "deny"]
    assert {one["agent"] for one in found} == {"writer"}
    assert code_of(mixed) == (400, "VALIDATION_ERROR")
    assert code_of(unknown) == (404, "NOT_FOUND")
