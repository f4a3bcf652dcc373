"""Accounts: only invited people create one, and disabling an account ends its access everywhere at once."""

import asyncio
import re
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.databases import migrated_database, urls_of
from tests.faults.server import TOOLCRIB, Server, client_of
from tests.wait_until import PATIENCE
from toolcrib.api.access_tokens import AccessTokens, LoginLinks, SetupLinks
from toolcrib.core.errors import Forbidden

pytestmark = pytest.mark.xdist_group("redteam-accounts")

PASSWORD = "a long enough phrase"
MOST = {"API_KEYS": 5, "WORKSPACES": 3, "SESSIONS": 4, "OPEN_APPROVALS": 3}
ADA = {"email": "ada@example.com", "password": PASSWORD}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A new server without accounts, as its operator gets it."""
    with migrated_database() as name, Server(tmp_path_factory.mktemp("closed"), urls_of(name)) as server:
        del server.environment["TOOLCRIB_OPEN_REGISTRATION"]
        server.environment |= {f"TOOLCRIB_MAX_{what}": str(most) for what, most in MOST.items()}
        server.start()
        yield server


@pytest.fixture
async def stranger(closed: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(closed) as client:
        yield client


async def test_only_the_setup_link_creates_the_first_account_and_only_once(
    closed: Server, stranger: httpx2.AsyncClient
) -> None:
    (link,) = re.findall(r"http://\S+/#setup=(\S+)", closed.logged())
    wrong = {
        "none": None,
        "another key's": SetupLinks(secrets.token_urlsafe(48)).issue(),
        "too old": SetupLinks(closed.jwt_secret, clock=lambda: time.time() - 4_000).issue(),
        "a login link": LoginLinks(closed.jwt_secret, node=closed.node).issue(_nobody(), 0),
        "an access token": AccessTokens(closed.jwt_secret).issue(_nobody(), 0),
    }
    refused = {
        what: (await stranger.post("/auth/register", json=ADA | {"setup": setup})).status_code
        for what, setup in wrong.items()
    }
    people = [{"email": f"first{number}@example.com", "password": PASSWORD, "setup": link} for number in range(8)]
    at_once = await asyncio.gather(*(stranger.post("/auth/register", json=one) for one in people))
    later = await stranger.post("/auth/register", json=ADA | {"setup": link})
    said = (await stranger.get("/auth/registration")).json()
    closed.kill()
    closed.start()

    assert refused == dict.fromkeys(wrong, 403)
    assert sorted(one.status_code for one in at_once) == [201] + [403] * 7
    assert [one.json()["is_administrator"] for one in at_once if one.status_code == 201] == [True]
    assert later.status_code == 403
    assert said == {"open": False, "secure_cookies": True}
    # An account exists now: another link would give access.
    assert len(re.findall("#setup=", closed.logged())) == 1


def test_setup_link_is_no_login() -> None:
    secret = secrets.token_urlsafe(48)
    setup = SetupLinks(secret).issue()

    for verifies in (AccessTokens(secret).verify, LoginLinks(secret, node="here").redeem):
        with pytest.raises(Exception, match=r"No valid token|already used"):
            verifies(setup)
    with pytest.raises(Forbidden):
        SetupLinks(secret).check(AccessTokens(secret).issue(_nobody(), 0))


async def test_disabled_account_loses_access_everywhere_at_once_and_for_good(
    closed: Server, stranger: httpx2.AsyncClient
) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    _user(closed, "create", email, password=PASSWORD)
    bystander = f"{secrets.token_hex(4)}@example.com"
    _user(closed, "create", bystander, password=PASSWORD)
    person = {"email": email, "password": PASSWORD}
    login = (await stranger.post("/auth/login", json=person)).json()
    other = (await stranger.post("/auth/login", json=person | {"email": bystander})).json()
    stranger.cookies.clear()
    async with client_of(closed, login["access_token"]) as http:
        http.cookies.clear()
        workspace = (await http.post("/workspaces", json={"name": "w"})).json()["id"]
        session = (await http.post(f"/workspaces/{workspace}/sessions", json={"title": "s"})).json()["id"]
        key = (await http.post("/api-keys", json={"name": "k"})).json()["secret"]
        agent = await http.post(f"/workspaces/{workspace}/agents", json={"name": "a", "definition": "trust: guided\n"})
        agent_key = await http.post(f"/workspaces/{workspace}/agents/{agent.json()['id']}/keys", json={"name": "k"})
        ticket = (await http.post(f"/workspaces/{workspace}/tickets")).json()["ticket"]

        address = f"{closed.origin.replace('http', 'ws', 1)}/api/v1/workspaces/{workspace}/ws"
        stream = http.stream("GET", f"/workspaces/{workspace}/sessions/{session}/events/stream")
        by_token, by_key = _bearer(login["access_token"]), _bearer(key)
        async with (
            connect(address, additional_headers=by_token, proxy=None) as one,
            connect(address, additional_headers=by_key, proxy=None) as two,
            stream as events,
        ):
            assert events.status_code == 200
            said = _user(closed, "disable", email)
            async with asyncio.timeout(PATIENCE):
                ended = [await _end_of(one), await _end_of(two)]
                async for _ in events.aiter_bytes():
                    pass
    answers = [
        (await stranger.get("/auth/me", headers=by_token)).status_code,
        (await stranger.post("/auth/refresh", json={"refresh_token": login["refresh_token"]})).status_code,
        (await stranger.get("/auth/me", headers=by_key)).status_code,
        (await stranger.post("/auth/login", json=person)).status_code,
        (await stranger.get(f"/workspaces/{workspace}/tools", headers=_bearer(agent_key.json()["secret"]))).status_code,
    ]
    bystanders = (await stranger.get("/auth/me", headers=_bearer(other["access_token"]))).status_code
    listed = _user(closed, "list")
    _user(closed, "enable", email)
    again = await stranger.post("/auth/login", json=person)
    stranger.cookies.clear()
    old = [(await stranger.get("/auth/me", headers=headers)).status_code for headers in (by_token, by_key)]
    with pytest.raises(Exception, match="401"):
        async with connect(address, subprotocols=["toolcrib.chat", f"toolcrib.ticket.{ticket}"], proxy=None):  # type: ignore[list-item]
            pass

    assert "disabled" in said
    assert ended == [4401, 4401]
    assert answers == [401] * 5
    assert bystanders == 200
    # The first account of a server is also an administrator.
    assert re.search(rf"{email} +(administrator +)?disabled since", listed)
    assert again.status_code == 200
    assert old == [401, 401]


async def test_new_password_revokes_access_gained_with_the_old_one(
    closed: Server, stranger: httpx2.AsyncClient
) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    _user(closed, "create", email, password=PASSWORD)
    login = (await stranger.post("/auth/login", json={"email": email, "password": PASSWORD})).json()
    stranger.cookies.clear()
    _user(closed, "set-password", email, password="another long enough phrase")

    old = await stranger.get("/auth/me", headers=_bearer(login["access_token"]))
    refreshed = await stranger.post("/auth/refresh", json={"refresh_token": login["refresh_token"]})
    by_old = await stranger.post("/auth/login", json={"email": email, "password": PASSWORD})
    by_new = await stranger.post("/auth/login", json={"email": email, "password": "another long enough phrase"})

    assert [one.status_code for one in (old, refreshed, by_old, by_new)] == [401, 401, 401, 200]


async def test_reset_link_of_the_command_line_works_once_and_ends_what_came_before(
    closed: Server, stranger: httpx2.AsyncClient
) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    _user(closed, "create", email, password=PASSWORD)
    login = (await stranger.post("/auth/login", json={"email": email, "password": PASSWORD})).json()
    stranger.cookies.clear()

    said = _user(closed, "reset-password", email, "--origin", "https://toolcrib.example.com/")
    link = re.fullmatch(r"https://toolcrib\.example\.com/#reset=(\S+)\n", said)
    assert link is not None, said
    new = {"token": link[1], "password": "another long enough phrase"}
    answers = [await stranger.post("/auth/password/reset", json=new) for _ in range(2)]
    stranger.cookies.clear()
    old = await stranger.get("/auth/me", headers=_bearer(login["access_token"]))
    now = await stranger.get("/auth/me", headers=_bearer(answers[0].json()["access_token"]))

    assert [one.status_code for one in (*answers, old, now)] == [200, 403, 401, 200]


@pytest.mark.long
async def test_operator_names_administrators(closed: Server, stranger: httpx2.AsyncClient) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    _user(closed, "create", email, "--administrator", password=PASSWORD)
    login = (await stranger.post("/auth/login", json={"email": email, "password": PASSWORD})).json()
    stranger.cookies.clear()

    listed = _user(closed, "list")
    before = await stranger.get("/users", headers=_bearer(login["access_token"]))
    _user(closed, "administrator", email, "--revoke")
    after = await stranger.get("/users", headers=_bearer(login["access_token"]))

    assert f"{email}    administrator" in listed
    assert (before.status_code, after.status_code) == (200, 403)


@pytest.mark.long
async def test_environment_creates_the_first_administrator_once(tmp_path: Path) -> None:
    root = {"email": "root@example.com", "password": PASSWORD}
    with migrated_database() as name, Server(tmp_path, urls_of(name)) as server:
        del server.environment["TOOLCRIB_OPEN_REGISTRATION"]
        server.environment |= {"TOOLCRIB_ADMIN_EMAIL": "Root@example.com ", "TOOLCRIB_ADMIN_PASSWORD": PASSWORD}
        server.start()
        async with client_of(server) as http:
            first = await http.post("/auth/login", json=root)
            me = (await http.get("/auth/me", headers=_bearer(first.json()["access_token"]))).json()
        # The settings of the first start stay in many deployments, and must not undo a new password.
        _user(server, "set-password", root["email"], password="another long enough phrase")
        server.kill()
        server.start()
        async with client_of(server) as http:
            later = await http.post("/auth/login", json=root)
        logged = server.logged()

    assert (me["email"], me["is_administrator"]) == ("root@example.com", True)
    assert later.status_code == 401
    assert "#setup=" not in logged
    assert PASSWORD not in logged


async def test_quotas_apply_to_concurrent_requests(closed: Server, stranger: httpx2.AsyncClient) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    _user(closed, "create", email, password=PASSWORD)
    login = (await stranger.post("/auth/login", json={"email": email, "password": PASSWORD})).json()
    async with client_of(closed, login["access_token"]) as http:
        # All at once, so that none of them sees what the others are about to create.
        founded = await asyncio.gather(*(http.post("/workspaces", json={"name": "w"}) for _ in range(10)))
        inside = f"/workspaces/{next(one.json()['id'] for one in founded if one.status_code == 201)}"
        rules = "trust: supervised\ntool_permissions: {write: {allowed: true}}\n"
        agent = (await http.post(f"{inside}/agents", json={"name": "a", "definition": rules})).json()
        key = (await http.post(f"{inside}/agents/{agent['id']}/keys", json={"name": "k"})).json()["secret"]
        keys = await asyncio.gather(*(http.post("/api-keys", json={"name": "k"}) for _ in range(10)))
        sessions = [await http.post(f"{inside}/sessions", json={"title": "s"}) for _ in range(6)]
    calls = [
        await stranger.post(
            f"{inside}/tools",
            json={"tool": "write", "args": {"path": f"/{number}.txt", "content": "x"}},
            headers=_bearer(key),
        )
        for number in range(5)
    ]

    assert sorted(one.status_code for one in founded) == [201] * 3 + [409] * 7
    assert sorted(one.status_code for one in keys) == [201] * 4 + [409] * 6
    assert [one.status_code for one in sessions] == [201] * 4 + [409] * 2
    assert "4 sessions, the limit. Delete one first." in sessions[-1].json()["error"]
    assert ["are pending in this workspace, the limit" in one.text for one in calls] == [False] * 3 + [True] * 2, [
        one.text for one in calls
    ]


@pytest.mark.long
def test_password_is_not_accepted_as_an_argument(closed: Server) -> None:
    email = f"{secrets.token_hex(4)}@example.com"
    for command in ("create", "set-password"):
        ended = closed.command("user", command, email, PASSWORD)
        assert ended.returncode != 0
        assert "unexpected extra argument" in ended.stderr
    assert _user(closed, "create", email, password="short", status=2) == ""
    assert "There is no account" in closed.command("user", "disable", email).stderr


def _user(server: Server, *arguments: str, password: str = "", status: int = 0) -> str:
    ended = subprocess.run(
        [TOOLCRIB, "user", *arguments],
        env=server.environment,
        input=f"{password}\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ended.returncode == status, ended.stderr
    return ended.stdout


async def _end_of(socket: Any) -> int | None:
    try:
        while True:
            await socket.recv()
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


def _nobody() -> Any:
    from uuid import UUID

    return UUID(int=0)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
