"""Invitations: reused, expired, revoked, for another role or workspace, or from a person who may not invite."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.api.accounts import PASSWORD, Founder, Newcomer, Someone, bearer, code_of, new_email
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant

ACCEPT = "/auth/invitations/accept"
REFUSED = (403, "FORBIDDEN")


@pytest.fixture
def url(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/invitations"


async def invited(client: httpx2.AsyncClient, owner: Someone, url: str, role: str = "member") -> dict[str, Any]:
    made = await client.post(url, json={"email": new_email(), "role": role}, headers=owner.headers)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


async def accepted(client: httpx2.AsyncClient, token: str, **more: Any) -> httpx2.Response:
    answer = await client.post(ACCEPT, json={"token": token, "password": PASSWORD, **more})
    # It logs the guest in as a browser; the other clients here are not browsers.
    client.cookies.clear()
    return answer


async def roles(client: httpx2.AsyncClient, owner: Someone, workspace_id: WorkspaceId) -> dict[str, str]:
    members = await client.get(f"/workspaces/{workspace_id}/members", headers=owner.headers)
    return {one["email"]: one["role"] for one in members.json()["items"]}


async def test_guest_creates_an_account_and_becomes_a_member_at_once(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, url: str, database_urls: DatabaseUrls
) -> None:
    made = await invited(client, ada, url, "viewer")
    before = await client.get(url, headers=ada.headers)
    joined = await accepted(client, made["token"], full_name="Grace Hopper")
    me = await client.get("/auth/me", headers=bearer(joined.json()["access_token"]))
    again = await client.post("/auth/login", json={"email": made["email"], "password": PASSWORD})
    client.cookies.clear()
    after = await client.get(url, headers=ada.headers)

    assert made["link"] == f"http://localhost/#invitation={made['token']}"
    assert [one["id"] for one in before.json()["items"]] == [made["id"]]
    assert made["token"] not in before.text
    assert joined.status_code == 201
    assert (me.json()["email"], me.json()["full_name"]) == (made["email"], "Grace Hopper")
    assert again.status_code == 200
    assert after.json()["items"] == []
    assert (await roles(client, ada, workspace_id))[made["email"]] == "viewer"
    with psycopg.connect(database_urls.owner) as connection:
        rows = connection.execute("select i::text from toolcrib.invitations i where id = %s", (made["id"],)).fetchall()
    assert made["token"] not in str(rows)


async def test_invitation_works_once_even_for_two_guests_at_once(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    made = await invited(client, ada, url)

    answers = await asyncio.gather(*(accepted(client, made["token"]) for _ in range(4)))
    late = await accepted(client, made["token"])

    assert sorted(one.status_code for one in answers) == [201, 403, 403, 403]
    assert code_of(late) == REFUSED
    assert len(await roles(client, ada, workspace_id)) == 2


async def test_expired_invitation_is_rejected(client: httpx2.AsyncClient, services: ApiServices, ada: Someone,
                                                  workspace_id: WorkspaceId, url: str) -> None:  # fmt: skip
    email = new_email()
    _, token = await services.invitations.create(Tenant(workspace_id, ada.id), email=email, role=WorkspaceRole.MEMBER)
    async with services.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.invitations set expires_at = now() - interval '1 second' where email = %s", (email,)
        )

    refused = await accepted(client, token)
    listed = await client.get(url, headers=ada.headers)
    login = await client.post("/auth/login", json={"email": email, "password": PASSWORD})

    assert code_of(refused) == REFUSED
    assert listed.json()["items"] == []
    assert login.status_code == 401


async def test_revoked_and_replaced_invitations_are_rejected(
    client: httpx2.AsyncClient, ada: Someone, url: str
) -> None:
    revoked, replaced = await invited(client, ada, url), await invited(client, ada, url)
    gone = await client.delete(f"{url}/{revoked['id']}", headers=ada.headers)
    newer = await client.post(url, json={"email": replaced["email"].upper(), "role": "member"}, headers=ada.headers)

    assert gone.status_code == 204
    assert code_of(await client.delete(f"{url}/{revoked['id']}", headers=ada.headers)) == (404, "NOT_FOUND")
    assert code_of(await accepted(client, revoked["token"])) == REFUSED
    assert code_of(await accepted(client, replaced["token"])) == REFUSED
    assert (await accepted(client, newer.json()["token"])).status_code == 201


@pytest.mark.parametrize("more", [{"role": "owner"}, {"email": "root@example.com"}, {"workspace_id": str(UUID(int=1))}])
async def test_guest_cannot_choose_role_address_or_workspace(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, url: str, more: dict[str, str]
) -> None:
    made = await invited(client, ada, url, "viewer")

    assert code_of(await accepted(client, made["token"], **more)) == (400, "VALIDATION_ERROR")
    joined = await accepted(client, made["token"])
    token = bearer(joined.json()["access_token"])
    promoted = await client.post(url, json={"email": new_email(), "role": "owner"}, headers=token)

    assert (await roles(client, ada, workspace_id))[made["email"]] == "viewer"
    assert code_of(promoted) == REFUSED


@pytest.mark.parametrize("role", [WorkspaceRole.VIEWER, WorkspaceRole.MEMBER])
async def test_only_owners_invite_list_and_revoke(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, workspace_id: WorkspaceId,
    url: str, role: WorkspaceRole,
) -> None:  # fmt: skip
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=role)
    agent = await services.agents.create(Tenant(workspace_id, ada.id), name="helper", definition="")
    _, key = await services.keys.create_for_agent(Tenant(workspace_id, ada.id), agent.id, name="k", expires_at=None)
    made = await invited(client, ada, url)

    for headers in (bob.headers, bearer(key)):
        assert code_of(await client.post(url, json={"email": new_email()}, headers=headers)) == REFUSED
        assert code_of(await client.get(url, headers=headers)) == REFUSED
        assert code_of(await client.delete(f"{url}/{made['id']}", headers=headers)) == REFUSED
    assert (await accepted(client, made["token"])).status_code == 201


async def test_owner_of_another_workspace_neither_invites_nor_revokes_here(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, founded: Founder, workspace_id: WorkspaceId, url: str
) -> None:
    eve = await newcomer()
    elsewhere = f"/workspaces/{await founded(eve)}/invitations"
    made = await invited(client, ada, url)

    assert code_of(await client.post(url, json={"email": new_email()}, headers=eve.headers)) == REFUSED
    assert code_of(await client.delete(f"{url}/{made['id']}", headers=eve.headers)) == REFUSED
    foreign = await client.delete(f"{elsewhere}/{made['id']}", headers=eve.headers)
    assert code_of(foreign) == (404, "NOT_FOUND")
    joined = await accepted(client, (await invited(client, eve, elsewhere))["token"])
    token = bearer(joined.json()["access_token"])
    assert code_of(await client.get(f"/workspaces/{workspace_id}/members", headers=token)) == REFUSED


async def test_invitation_by_a_former_or_disabled_owner_is_rejected(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, workspace_id: WorkspaceId,
    url: str,
) -> None:  # fmt: skip
    tenant = Tenant(workspace_id, ada.id)
    demoted, disabled = await newcomer(), await newcomer()
    for owner in (demoted, disabled):
        await services.workspaces.add_member(tenant, email=owner.email, role=WorkspaceRole.OWNER)
    first, second = await invited(client, demoted, url, "owner"), await invited(client, disabled, url, "owner")

    await services.workspaces.change_role(tenant, demoted.id, WorkspaceRole.MEMBER)
    await services.user_admin.change(disabled.id, disabled=True)

    assert code_of(await accepted(client, first["token"])) == REFUSED
    assert code_of(await accepted(client, second["token"])) == REFUSED


async def test_invitation_into_a_deleted_workspace_is_rejected(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    made = await invited(client, ada, url)
    assert (await client.delete(f"/workspaces/{workspace_id}", headers=ada.headers)).status_code == 204

    assert code_of(await accepted(client, made["token"])) == REFUSED


async def test_invitation_gives_no_access_to_an_existing_account(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, url: str
) -> None:
    bob = await newcomer()
    taken = await client.post(url, json={"email": bob.email.upper()}, headers=ada.headers)
    made = await invited(client, ada, url)
    # They register in another way meanwhile.
    await services.accounts.create_user(
        email=made["email"], full_name=None, password_hash=await services.passwords.hash("another long password")
    )
    late = await accepted(client, made["token"])
    login = await client.post("/auth/login", json={"email": made["email"], "password": PASSWORD})

    assert code_of(taken) == (409, "CONFLICT")
    assert code_of(late) == (409, "CONFLICT")
    assert login.status_code == 401


@pytest.mark.parametrize("token", ["", "tci_", "tci_guess", "\x00", "01a1e4b5-09f5-74a6-8dfb-20e0684b6bc5"])
async def test_guessed_invitation_is_rejected(client: httpx2.AsyncClient, token: str) -> None:
    assert (await accepted(client, token)).status_code in (400, 403)


async def test_operator_may_disable_invitations(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    made = await invited(client, ada, url)
    settings = services.settings.model_copy(update={"invitations": False})
    closed = create_app(replace(services, settings=settings))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(closed), base_url=client.base_url) as there:
        assert code_of(await there.post(url, json={"email": new_email()}, headers=ada.headers)) == REFUSED
        assert code_of(await accepted(there, made["token"])) == REFUSED


async def test_audit_log_records_who_invited_whom_and_the_outcome(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, url: str
) -> None:
    made, other = await invited(client, ada, url), await invited(client, ada, url)
    await client.delete(f"{url}/{other['id']}", headers=ada.headers)
    joined = await accepted(client, made["token"])
    guest = (await client.get("/auth/me", headers=bearer(joined.json()["access_token"]))).json()["id"]

    found = await client.get(f"/workspaces/{workspace_id}/audit", params={"kind": "admin"}, headers=ada.headers)
    records = {(one["tool"], one["user_id"], one["arguments"]["subject"]) for one in found.json()["items"]}

    assert records >= {
        ("invitation.created", str(ada.id), made["id"]),
        ("invitation.revoked", str(ada.id), other["id"]),
        ("invitation.accepted", guest, made["id"]),
        ("member.created", guest, guest),
    }
    assert made["token"] not in found.text
