"""Forks of sessions, titles, the list's facts, and the search over titles and messages, over HTTP."""

from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant


@pytest.fixture
def url(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/sessions"


async def talk(client: httpx2.AsyncClient, services: ApiServices, who: Someone, url: str, *texts: str) -> str:
    """Create a session in which these messages were sent, one after the other. Return its id."""
    session = str((await client.post(url, json={}, headers=who.headers)).json()["id"])
    for text in texts:
        sent = await client.post(f"{url}/{session}/messages", json={"text": text}, headers=who.headers)
        assert sent.status_code == 202, sent.text
        async with services.database.as_system() as connection:
            await connection.execute(
                "update toolcrib.runs set state = 'ended', end_reason = 'done', ended_at = now() where id = %s",
                (sent.json()["id"],),
            )
    return session


async def messages(client: httpx2.AsyncClient, who: Someone, url: str, session: str) -> list[dict[str, Any]]:
    found = (await client.get(f"{url}/{session}/messages", headers=who.headers)).json()["items"]
    return list(found)


async def events(client: httpx2.AsyncClient, who: Someone, url: str, session: str) -> list[dict[str, Any]]:
    found = (await client.get(f"{url}/{session}/events", headers=who.headers)).json()["items"]
    return list(found)


async def test_fork_has_the_messages_up_to_there_and_names_its_origin(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    session = await talk(client, services, ada, url, "First.", "Second.", "Third.")
    original = await messages(client, ada, url, session)

    fork = await client.post(f"{url}/{session}/forks", json={"message_id": original[1]["id"]}, headers=ada.headers)

    assert fork.status_code == 201, fork.text
    copied = await messages(client, ada, url, fork.json()["id"])
    assert [one["content"] for one in copied] == ["First.", "Second."]
    assert [one["created_at"] for one in copied] == [one["created_at"] for one in original[:2]]
    assert not {one["id"] for one in copied} & {one["id"] for one in original}
    assert fork.json()["forked_from_session_id"] == session
    assert fork.json()["forked_from_message_id"] == original[1]["id"]
    heard = await events(client, ada, url, fork.json()["id"])
    assert [one["payload"]["messageId"] for one in heard if one["type"] == "message"] == [one["id"] for one in copied]
    assert fork.json()["last_seq"] == len(heard)
    assert await messages(client, ada, url, session) == original, "the original stays as it is"


async def test_fork_with_a_text_sends_it_instead_of_the_message(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    session = await talk(client, services, ada, url, "First.", "Second.")
    original = await messages(client, ada, url, session)

    body = {"message_id": original[1]["id"], "text": "Better."}
    fork = (await client.post(f"{url}/{session}/forks", json=body, headers=ada.headers)).json()

    assert [one["content"] for one in await messages(client, ada, url, fork["id"])] == ["First.", "Better."]
    assert [one["content"] for one in await messages(client, ada, url, session)] == ["First.", "Second."]


async def test_repeated_fork_with_one_key_is_made_once(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    session = await talk(client, services, ada, url, "First.")
    body = {"message_id": (await messages(client, ada, url, session))[0]["id"], "text": "Better."}
    headers = {**ada.headers, "Idempotency-Key": str(uuid4())}

    made = [await client.post(f"{url}/{session}/forks", json=body, headers=headers) for _ in range(2)]

    assert made[0].json()["id"] == made[1].json()["id"]
    assert len((await client.get(url, headers=ada.headers)).json()["items"]) == 2


async def test_fork_of_an_unknown_message_and_by_a_viewer_are_rejected(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, url: str
) -> None:
    session, other = [await talk(client, services, ada, url, "First.") for _ in range(2)]
    elsewhere = (await messages(client, ada, url, other))[0]["id"]
    viewer = await newcomer()
    await services.workspaces.add_member(
        Tenant(WorkspaceId(UUID(url.split("/")[2])), ada.id), email=viewer.email, role=WorkspaceRole.VIEWER
    )

    unknown = await client.post(f"{url}/{session}/forks", json={"message_id": elsewhere}, headers=ada.headers)
    denied = await client.post(f"{url}/{other}/forks", json={"message_id": elsewhere}, headers=viewer.headers)

    assert code_of(unknown) == (404, "NOT_FOUND")
    assert denied.status_code == 403


async def test_first_message_becomes_the_title_unless_a_person_gave_one(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    text = "Please add a test for the parser of dates,\nwhich fails for every leap year since 1900."
    session = await talk(client, services, ada, url, text, "And another one.")
    titled = (await client.get(f"{url}/{session}", headers=ada.headers)).json()["title"]
    await client.patch(f"{url}/{session}", json={"title": "Dates"}, headers=ada.headers)
    await client.post(f"{url}/{session}/messages", json={"text": "More."}, headers=ada.headers)

    assert titled == "Please add a test for the parser of dates, which fails for…"
    assert (await client.get(f"{url}/{session}", headers=ada.headers)).json()["title"] == "Dates"


async def test_search_finds_titles_before_messages_and_words_by_their_beginning(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    by_text = await talk(client, services, ada, url, "Hello.", "The parser (in src/parser.py) drops Ümlaut letters.")
    by_title = await talk(client, services, ada, url, "Rewrite the parser")

    async def found(query: str) -> list[str]:
        answer = await client.get(f"{url}/search", params={"query": query}, headers=ada.headers)
        assert answer.status_code == 200, answer.text
        return [one["session_id"] for one in answer.json()["items"]]

    assert await found("PARS") == [by_title, by_text]
    assert await found("umlaut") == []
    assert await found("ümlaut letters") == [by_text]
    assert await found("src/parser.py") == [by_text]
    assert await found("' & | !:*") == []
    [hit] = (await client.get(f"{url}/search", params={"query": "drops"}, headers=ada.headers)).json()["items"]
    assert hit["role"] == "user"
    assert "drops Ümlaut letters." in hit["excerpt"]


async def test_search_does_not_find_sessions_of_another_workspace(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    await talk(client, services, ada, url, "A secret word.")
    other = (await client.post("/workspaces", json={"name": "other"}, headers=ada.headers)).json()["id"]

    elsewhere = await client.get(
        f"/workspaces/{other}/sessions/search", params={"query": "secret"}, headers=ada.headers
    )

    assert elsewhere.json()["items"] == []


async def test_list_shows_owner_and_activity(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    await talk(client, services, ada, url, "First.")

    [listed] = (await client.get(url, headers=ada.headers)).json()["items"]

    assert listed["owner_name"]
    assert listed["activity"] == "idle"
    assert listed["cost"] is None
