"""People: passwords, logins, and what administrators of the server do with accounts."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.api.accounts import PASSWORD, Newcomer, Someone, bearer, code_of, keyed
from toolcrib.api.api_services import ApiServices

NEW = "another long enough phrase"


@pytest.fixture
async def root(newcomer: Newcomer, services: ApiServices) -> AsyncIterator[Someone]:
    """An administrator, until the test ends: tests share a database."""
    someone = await newcomer()
    await services.user_admin.change(someone.id, administrator=True)
    yield someone
    await services.user_admin.change(someone.id, administrator=False)


async def log_in(
    client: httpx2.AsyncClient, email: str, password: str = PASSWORD, *, agent: str = "a browser"
) -> dict[str, Any]:
    answer = await client.post(
        "/auth/login", json={"email": email, "password": password}, headers={"User-Agent": agent}
    )
    client.cookies.clear()
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def status_of(client: httpx2.AsyncClient, email: str, password: str) -> int:
    answer = await client.post("/auth/login", json={"email": email, "password": password})
    client.cookies.clear()
    return answer.status_code


async def can_continue(client: httpx2.AsyncClient, login: dict[str, Any]) -> bool:
    answer = await client.post("/auth/refresh", json={"refresh_token": login["refresh_token"]})
    return answer.status_code == 200


# One's own password


async def test_new_password_ends_other_logins_and_continues_this_one(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices
) -> None:
    here, there = await log_in(client, ada.email), await log_in(client, ada.email)
    key = (await client.post("/api-keys", headers=bearer(here["access_token"]), json={"name": "ci"})).json()["secret"]

    changed = await client.post(
        "/auth/password",
        headers=bearer(here["access_token"]),
        json={"current_password": PASSWORD, "new_password": NEW},
    )
    client.cookies.clear()

    assert changed.status_code == 200
    old = [await client.get("/auth/me", headers=bearer(one["access_token"])) for one in (here, there)]
    assert [one.status_code for one in old] == [401, 401]
    assert [await can_continue(client, one) for one in (here, there, changed.json())] == [False, False, True]
    # Programs have keys of their own, which end when they are revoked.
    assert (await client.get("/auth/me", headers=bearer(key))).status_code == 200
    assert [await status_of(client, ada.email, one) for one in (PASSWORD, NEW)] == [401, 200]


async def test_password_is_changed_only_by_someone_who_knows_it_and_guesses_are_counted(
    client: httpx2.AsyncClient, ada: Someone
) -> None:
    key = (await client.post("/api-keys", headers=ada.headers, json={"name": "ci"})).json()["secret"]
    right = {"current_password": PASSWORD, "new_password": NEW}
    wrong = right | {"current_password": "not the password"}

    by_key = await client.post("/auth/password", headers=bearer(key), json=right)
    short = await client.post("/auth/password", headers=ada.headers, json=right | {"new_password": "short"})
    guesses = [code_of(await client.post("/auth/password", headers=ada.headers, json=wrong)) for _ in range(10)]
    eleventh = await client.post("/auth/password", headers=ada.headers, json=right)

    assert code_of(by_key) == (403, "FORBIDDEN")
    assert code_of(short) == (400, "VALIDATION_ERROR")
    assert guesses == [(403, "FORBIDDEN")] * 10
    assert code_of(eleventh) == (429, "RATE_LIMITED")


async def test_of_two_password_changes_at_once_one_wins(client: httpx2.AsyncClient, ada: Someone) -> None:
    answers = await asyncio.gather(
        *(
            client.post(
                "/auth/password",
                headers=ada.headers,
                json={"current_password": PASSWORD, "new_password": f"{NEW} {number}"},
            )
            for number in range(2)
        )
    )
    client.cookies.clear()

    assert sorted(one.status_code for one in answers)[0] == 200
    assert sorted(one.status_code for one in answers)[1] in (401, 409)


# One's own logins


async def test_logins_are_listed_with_what_used_them_last(client: httpx2.AsyncClient, ada: Someone) -> None:
    laptop = await log_in(client, ada.email, agent="laptop")
    await log_in(client, ada.email, agent="phone")
    again = await client.post(
        "/auth/refresh", json={"refresh_token": laptop["refresh_token"]}, headers={"User-Agent": "laptop 2"}
    )
    headers = bearer(again.json()["access_token"]) | {"Cookie": f"refresh_token={again.json()['refresh_token']}"}

    found = (await client.get("/auth/logins", headers=headers)).json()["items"]

    assert [(one["client"], one["address"], one["is_current"]) for one in found] == [
        ("laptop 2", "127.0.0.1", True),
        ("phone", "127.0.0.1", False),
    ]
    assert found[0]["created_at"] < found[1]["created_at"] < found[0]["last_used_at"] < found[0]["expires_at"]


async def test_ended_login_is_over_at_once_and_others_continue(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer
) -> None:
    lost, kept = await log_in(client, ada.email, agent="lost"), await log_in(client, ada.email, agent="kept")
    found = (await client.get("/auth/logins", headers=bearer(kept["access_token"]))).json()["items"]
    (lost_id,) = [one["id"] for one in found if one["client"] == "lost"]

    stranger = await client.delete(f"/auth/logins/{lost_id}", headers=(await newcomer()).headers)
    ended = await client.delete(f"/auth/logins/{lost_id}", headers=bearer(kept["access_token"]))

    assert code_of(stranger) == (404, "NOT_FOUND")
    assert ended.status_code == 204
    assert (await client.get("/auth/me", headers=bearer(lost["access_token"]))).status_code == 401
    assert not await can_continue(client, lost)
    continued = await client.post("/auth/refresh", json={"refresh_token": kept["refresh_token"]})
    client.cookies.clear()
    headers = bearer(continued.json()["access_token"])
    assert [one["client"] for one in (await client.get("/auth/logins", headers=headers)).json()["items"]] != []
    assert code_of(await client.delete(f"/auth/logins/{lost_id}", headers=headers)) == (404, "NOT_FOUND")


async def test_all_other_logins_end_and_this_one_continues(client: httpx2.AsyncClient, ada: Someone) -> None:
    here, *others = [await log_in(client, ada.email) for _ in range(3)]
    headers = bearer(here["access_token"]) | {"Cookie": f"refresh_token={here['refresh_token']}"}

    ended = await client.delete("/auth/logins", headers=headers)

    assert ended.status_code == 204
    assert [await can_continue(client, one) for one in (*others, here)] == [False, False, True]


# Administrators


async def test_only_administrators_manage_accounts(client: httpx2.AsyncClient, ada: Someone, root: Someone) -> None:
    requests = [
        ("GET", "/users", None),
        ("PATCH", f"/users/{root.id}", {"is_disabled": True}),
        ("PATCH", f"/users/{ada.id}", {"is_administrator": True}),
        ("POST", f"/users/{root.id}/password-reset", None),
    ]

    refused = [
        code_of(await client.request(method, path, json=body, headers=ada.headers)) for method, path, body in requests
    ]
    listed = (await client.get("/users", headers=root.headers)).json()["items"]

    assert refused == [(403, "FORBIDDEN")] * len(requests)
    shown = {one["email"]: (one["is_administrator"], one["is_disabled"]) for one in listed}
    assert (shown[root.email], shown[ada.email]) == ((True, False), (False, False))
    assert not (await client.get("/auth/me", headers=ada.headers)).json()["is_administrator"]


async def test_administrator_disables_and_enables_an_account_and_the_audit_log_says_who(
    client: httpx2.AsyncClient, ada: Someone, root: Someone, database_urls: DatabaseUrls
) -> None:
    login = await log_in(client, ada.email)
    key = (await client.post("/api-keys", headers=ada.headers, json={"name": "ci"})).json()["secret"]
    url = f"/users/{ada.id}"

    disabled = await client.patch(url, headers=root.headers, json={"is_disabled": True})
    while_disabled = [
        (await client.get("/auth/me", headers=bearer(one))).status_code
        for one in (ada.token, login["access_token"], key)
    ]
    refused = await status_of(client, ada.email, PASSWORD)
    reset = await client.post(f"{url}/password-reset", headers=root.headers)
    enabled = await client.patch(url, headers=root.headers, json={"is_disabled": False})

    assert (disabled.json()["is_disabled"], enabled.json()["is_disabled"]) == (True, False)
    assert (while_disabled, refused) == ([401] * 3, 401)
    assert code_of(reset) == (409, "CONFLICT")
    assert await status_of(client, ada.email, PASSWORD) == 200
    assert not await can_continue(client, login)
    assert (await client.get("/auth/me", headers=bearer(key))).status_code == 401
    assert [(tool, change["after"]["disabled"]) for tool, change in audited(database_urls, root, ada)] == [
        ("user.changed", True),
        ("user.changed", False),
    ]


async def test_reset_link_sets_a_new_password_once(
    client: httpx2.AsyncClient, ada: Someone, root: Someone, database_urls: DatabaseUrls
) -> None:
    login = await log_in(client, ada.email)
    url = f"/users/{ada.id}/password-reset"

    first, second = [(await client.post(url, headers=root.headers)).json()["link"] for _ in range(2)]
    before = await status_of(client, ada.email, PASSWORD)
    replaced = await client.post("/auth/password/reset", json={"token": token_of(first), "password": NEW})
    used = await client.post("/auth/password/reset", json={"token": token_of(second), "password": NEW})
    client.cookies.clear()
    again = await client.post("/auth/password/reset", json={"token": token_of(second), "password": PASSWORD})

    assert before == 200
    assert code_of(replaced) == (403, "FORBIDDEN")
    assert used.status_code == 200
    assert (await client.get("/auth/me", headers=bearer(used.json()["access_token"]))).json()["email"] == ada.email
    assert code_of(again) == (403, "FORBIDDEN")
    assert not await can_continue(client, login)
    assert [await status_of(client, ada.email, one) for one in (PASSWORD, NEW)] == [401, 200]
    changes = audited(database_urls, root, ada)
    assert [tool for tool, _ in changes] == ["user.changed"] * 2
    assert all(change["after"]["password_reset_until"] for _, change in changes)
    assert token_of(second) not in str(changes)
    (own,) = audited(database_urls, ada, ada)
    assert own[1]["after"]["password"] == "changed"


async def test_reset_link_of_a_disabled_account_and_an_expired_one_are_rejected(
    client: httpx2.AsyncClient, newcomer: Newcomer, root: Someone, database_urls: DatabaseUrls
) -> None:
    disabled, late = await newcomer(), await newcomer()
    links = [
        (await client.post(f"/users/{one.id}/password-reset", headers=root.headers)).json()["link"]
        for one in (disabled, late)
    ]
    await client.patch(f"/users/{disabled.id}", headers=root.headers, json={"is_disabled": True})
    await client.patch(f"/users/{disabled.id}", headers=root.headers, json={"is_disabled": False})
    with psycopg.connect(database_urls.owner, autocommit=True) as owner:
        owner.execute("update toolcrib.users set reset_expires_at = now() where id = %s", (late.id,))

    answers = [
        code_of(await client.post("/auth/password/reset", json={"token": token_of(link), "password": NEW}))
        for link in (*links, f"#reset=tcp_{secrets.token_urlsafe(32)}")
    ]

    assert answers == [(403, "FORBIDDEN")] * 3


async def test_an_administrator_always_remains(
    client: httpx2.AsyncClient, root: Someone, newcomer: Newcomer, services: ApiServices
) -> None:
    other = await newcomer()
    await services.user_admin.change(other.id, administrator=True)

    own = [
        code_of(await client.patch(f"/users/{root.id}", headers=root.headers, json=body))
        for body in ({"is_disabled": True}, {"is_administrator": False})
    ]
    each_other = await asyncio.gather(
        client.patch(f"/users/{other.id}", headers=root.headers, json={"is_administrator": False}),
        client.patch(f"/users/{root.id}", headers=other.headers, json={"is_administrator": False}),
    )

    assert own == [(409, "CONFLICT")] * 2
    assert sorted(one.status_code for one in each_other) == [200, 403]


async def test_retried_reset_shows_no_second_link(client: httpx2.AsyncClient, ada: Someone, root: Someone) -> None:
    headers = keyed(root)

    first = await client.post(f"/users/{ada.id}/password-reset", headers=headers)
    second = await client.post(f"/users/{ada.id}/password-reset", headers=headers)

    assert first.status_code == 201
    assert second.status_code == 409
    used = await client.post("/auth/password/reset", json={"token": token_of(first.json()["link"]), "password": NEW})
    assert used.status_code == 200


@pytest.mark.usefixtures("root")
async def test_server_role_cannot_make_an_administrator(database_urls: DatabaseUrls, ada: Someone) -> None:
    with psycopg.connect(database_urls.app) as connection:
        connection.execute("select toolcrib.set_current_user(%s)", (ada.id,))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("update toolcrib.users set is_administrator = true where id = %s", (ada.id,))
    with psycopg.connect(database_urls.app) as connection:
        connection.execute("select toolcrib.set_current_user(%s)", (ada.id,))
        # Only the very first account: there are others here.
        connection.execute("select toolcrib.make_first_administrator(%s)", (ada.id,))
        assert connection.execute("select is_administrator from toolcrib.users").fetchall() == [(False,)]


def token_of(link: str) -> str:
    return urlsplit(link).fragment.removeprefix("reset=")


def audited(urls: DatabaseUrls, by: Someone, about: Someone) -> list[tuple[str, dict[str, Any]]]:
    """Return the administrative records of one person about another, oldest first."""
    with psycopg.connect(urls.owner) as connection:
        return connection.execute(
            "select tool, arguments from toolcrib.audit_records where user_id = %s and arguments ->> 'subject' = %s "
            "order by position",
            (by.id, str(about.id)),
        ).fetchall()
