"""Sessions and their events over HTTP, and tickets."""

import httpx2
import pytest

from tests.integration.server.people import Newcomer, Someone, code_of
from toolcrib.domain.callers import Role
from toolcrib.domain.errors import Unauthenticated
from toolcrib.domain.events import Event
from toolcrib.domain.ids import SessionId, WorkspaceId, new_id
from toolcrib.server.services import Services
from toolcrib.storage.database import Tenant


@pytest.fixture
def url(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/sessions"


@pytest.mark.req("RN-1", part="sessions as rows")
async def test_a_session_is_begun_found_renamed_and_removed(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
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


async def test_sessions_are_listed_by_pages_the_newest_first(
    client: httpx2.AsyncClient, ada: Someone, url: str
) -> None:
    made = [(await client.post(url, json={}, headers=ada.headers)).json()["id"] for _ in range(3)]

    first = (await client.get(url, params={"limit": 2}, headers=ada.headers)).json()
    second = (await client.get(url, params={"limit": 2, "before": first["next"]}, headers=ada.headers)).json()

    assert [item["id"] for item in first["items"] + second["items"]] == made[::-1]
    assert second["next"] is None


@pytest.mark.req("HU-3", part="a person switches the mode")
async def test_a_person_switches_a_session_between_plan_and_build(
    client: httpx2.AsyncClient, ada: Someone, url: str
) -> None:
    made = (await client.post(url, json={"mode": "plan"}, headers=ada.headers)).json()["id"]

    modes = [
        (await client.patch(f"{url}/{made}", json=change, headers=ada.headers)).json()["mode"]
        for change in ({"mode": "build"}, {"title": "same mode"}, {"mode": "plan"})
    ]

    assert modes == ["build", "build", "plan"]


async def test_an_agent_that_is_not_there_cannot_act_in_a_session(
    client: httpx2.AsyncClient, ada: Someone, url: str
) -> None:
    response = await client.post(url, json={"agent_id": str(new_id())}, headers=ada.headers)

    assert code_of(response) == (404, "NOT_FOUND")


async def test_a_member_removes_their_own_sessions_only(
    client: httpx2.AsyncClient,
    services: Services,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    url: str,
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=Role.MEMBER)
    adas = (await client.post(url, json={}, headers=ada.headers)).json()["id"]
    bobs = [(await client.post(url, json={}, headers=bob.headers)).json()["id"] for _ in range(2)]

    statuses = [
        (await client.delete(f"{url}/{session}", headers=who.headers)).status_code
        for session, who in ((adas, bob), (bobs[0], bob), (bobs[1], ada))
    ]

    assert statuses == [403, 204, 204]


@pytest.mark.req("EV-1", part="events as pages")
async def test_events_are_read_by_pages(
    client: httpx2.AsyncClient, services: Services, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    tenant = Tenant(workspace_id, ada.id)
    session = (await client.post(url, json={}, headers=ada.headers)).json()["id"]
    async with services.database.transaction(tenant) as connection:
        for number in range(5):
            await services.sessions.append(
                connection, tenant, Event(SessionId(session), "message", {"messageId": str(number)})
            )

    found = await client.get(f"{url}/{session}/events", params={"after": 2, "limit": 2}, headers=ada.headers)

    assert found.json() == {
        "items": [
            {"seq": 3, "type": "message", "payload": {"messageId": "2"}},
            {"seq": 4, "type": "message", "payload": {"messageId": "3"}},
        ]
    }


@pytest.mark.req("EV-2", part="authentication")
async def test_a_ticket_is_kept_as_a_hash_and_says_how_long_it_lives(
    client: httpx2.AsyncClient, services: Services, ada: Someone, workspace_id: WorkspaceId
) -> None:
    made = (await client.post(f"/workspaces/{workspace_id}/tickets", headers=ada.headers)).json()

    assert made["expires_in"] == 30
    async with services.database.system() as connection:
        cursor = await connection.execute("select t::text from toolcrib.tickets t where user_id = %s", (ada.id,))
        [(row,)] = await cursor.fetchall()
    assert made["ticket"] not in row
    assert (await services.tickets.redeem(made["ticket"])).user_id == ada.id


@pytest.mark.req("EV-2", part="authentication")
async def test_a_ticket_too_old_opens_nothing(
    services: Services, ada: Someone, workspace_id: WorkspaceId, client: httpx2.AsyncClient
) -> None:
    made = (await client.post(f"/workspaces/{workspace_id}/tickets", headers=ada.headers)).json()
    async with services.database.system() as connection:
        await connection.execute(
            "update toolcrib.tickets set expires_at = now() - interval '1 second' where user_id = %s", (ada.id,)
        )

    with pytest.raises(Unauthenticated, match="no longer"):
        await services.tickets.redeem(made["ticket"])
