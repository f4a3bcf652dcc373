"""Members over HTTP: adding, changing roles, removing."""

from uuid import uuid4

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone, code_of, new_email
from toolcrib.core.ids import WorkspaceId


@pytest.fixture
async def bob(newcomer: Newcomer) -> Someone:
    return await newcomer()


@pytest.fixture
def members(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/members"


async def took_in(client: httpx2.AsyncClient, ada: Someone, members: str, bob: Someone, role: str) -> None:
    response = await client.post(members, headers=ada.headers, json={"email": bob.email, "role": role})
    assert response.status_code == 201, response.text


async def test_owner_adds_a_member_by_address(
    client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str
) -> None:
    added = await client.post(members, headers=ada.headers, json={"email": bob.email.upper()})
    listed = await client.get(members, headers=bob.headers)

    assert added.status_code == 201
    assert (added.json()["user_id"], added.json()["role"]) == (str(bob.id), "member")
    assert [(m["email"], m["full_name"], m["role"]) for m in listed.json()["items"]] == [
        (ada.email, "Ada", "owner"),
        (bob.email, "Ada", "member"),
    ]


async def test_member_cannot_be_added_twice(
    client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str
) -> None:
    await took_in(client, ada, members, bob, "viewer")

    again = await client.post(members, headers=ada.headers, json={"email": bob.email, "role": "owner"})

    assert code_of(again) == (409, "CONFLICT")


async def test_person_without_an_account_cannot_be_added(
    client: httpx2.AsyncClient, ada: Someone, members: str
) -> None:
    response = await client.post(members, headers=ada.headers, json={"email": new_email()})

    assert code_of(response) == (404, "NOT_FOUND")


@pytest.mark.parametrize("role", ["viewer", "member"])
async def test_only_owners_manage_members(
    client: httpx2.AsyncClient, ada: Someone, bob: Someone, newcomer: Newcomer, members: str, role: str
) -> None:
    carol = await newcomer()
    await took_in(client, ada, members, bob, role)

    adding = await client.post(members, headers=bob.headers, json={"email": carol.email})
    rising = await client.patch(f"{members}/{bob.id}", headers=bob.headers, json={"role": "owner"})
    removing = await client.delete(f"{members}/{ada.id}", headers=bob.headers)

    assert code_of(adding) == code_of(rising) == code_of(removing) == (403, "FORBIDDEN")


async def test_role_change_applies_from_the_next_request(
    client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str
) -> None:
    await took_in(client, ada, members, bob, "viewer")
    promoted = await client.patch(f"{members}/{bob.id}", headers=ada.headers, json={"role": "owner"})
    demoted = await client.patch(f"{members}/{ada.id}", headers=bob.headers, json={"role": "viewer"})
    too_late = await client.delete(f"{members}/{bob.id}", headers=ada.headers)

    assert (promoted.json()["role"], demoted.json()["role"]) == ("owner", "viewer")
    assert code_of(too_late) == (403, "FORBIDDEN")


async def test_removed_member_loses_access_at_once(
    client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str
) -> None:
    await took_in(client, ada, members, bob, "member")

    removed = await client.delete(f"{members}/{bob.id}", headers=ada.headers)
    after = await client.get(members, headers=bob.headers)

    assert removed.status_code == 204
    assert code_of(after) == (403, "FORBIDDEN")


async def test_every_member_may_leave(client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str) -> None:
    await took_in(client, ada, members, bob, "viewer")

    assert (await client.delete(f"{members}/{bob.id}", headers=bob.headers)).status_code == 204


async def test_last_owner_cannot_leave(client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str) -> None:
    await took_in(client, ada, members, bob, "member")

    leaving = await client.delete(f"{members}/{ada.id}", headers=ada.headers)
    stepping_down = await client.patch(f"{members}/{ada.id}", headers=ada.headers, json={"role": "member"})
    staying = await client.patch(f"{members}/{ada.id}", headers=ada.headers, json={"role": "owner"})

    assert code_of(leaving) == code_of(stepping_down) == (409, "CONFLICT")
    assert staying.status_code == 200


async def test_role_of_a_non_member_cannot_be_changed(
    client: httpx2.AsyncClient, ada: Someone, bob: Someone, members: str
) -> None:
    for user_id in (bob.id, uuid4()):
        changing = await client.patch(f"{members}/{user_id}", headers=ada.headers, json={"role": "owner"})
        removing = await client.delete(f"{members}/{user_id}", headers=ada.headers)

        assert code_of(changing) == code_of(removing) == (404, "NOT_FOUND")


async def test_unknown_role_is_rejected(client: httpx2.AsyncClient, ada: Someone, members: str) -> None:
    response = await client.patch(f"{members}/{ada.id}", headers=ada.headers, json={"role": "king"})

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert "'owner'" in response.json()["fields"]["role"]
