"""Registration, login, refresh and logout."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import API, PASSWORD, Someone, bearer, code_of, new_email
from toolcrib.api.access_tokens import LoginLinks
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.settings import Settings

SAME_PAGE = {"Origin": "http://localhost"}


async def logged_in(client: httpx2.AsyncClient, email: str) -> dict[str, Any]:
    response = await client.post("/auth/login", json={"email": email, "password": PASSWORD})
    assert response.status_code == 200, response.text
    client.cookies.clear()
    tokens: dict[str, Any] = response.json()
    return tokens


async def test_person_registers_logs_in_and_reads_their_account(client: httpx2.AsyncClient) -> None:
    email = new_email()

    registered = await client.post(
        "/auth/register", json={"email": email.upper(), "password": PASSWORD, "full_name": "Ada Lovelace"}
    )
    tokens = await logged_in(client, email)
    me = await client.get("/auth/me", headers=bearer(tokens["access_token"]))

    assert registered.status_code == 201
    assert tokens["expires_in"] == 15 * 60
    assert me.status_code == 200
    assert me.json() == registered.json()
    assert (me.json()["email"], me.json()["full_name"]) == (email, "Ada Lovelace")


async def test_address_can_be_registered_once(client: httpx2.AsyncClient, ada: Someone) -> None:
    response = await client.post("/auth/register", json={"email": ada.email, "password": PASSWORD})

    assert code_of(response) == (409, "CONFLICT")


async def test_registration_can_be_closed(services: ApiServices, settings: Settings) -> None:
    closed = create_app(replace(services, settings=settings.model_copy(update={"open_registration": False})))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(closed), base_url=API) as client:
        response = await client.post("/auth/register", json={"email": new_email(), "password": PASSWORD})

    assert code_of(response) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"email": "nobody"}, "email"),
        ({"email": "a b@example.com"}, "email"),
        ({"password": "too short"}, "password"),
        ({"password": "x" * 1025}, "password"),
        ({"full_name": "nul\x00"}, "full_name"),
        ({"is_admin": True}, "is_admin"),
        ({"password": 12}, "password"),
    ],
)
async def test_validation_error_names_the_field_and_does_not_repeat_its_value(
    client: httpx2.AsyncClient, wrong: dict[str, object], field: str
) -> None:
    response = await client.post("/auth/register", json={"email": new_email(), "password": PASSWORD} | wrong)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert list(response.json()["fields"]) == [field]
    assert PASSWORD not in response.text


async def test_wrong_password_and_unknown_address_get_the_same_response(
    client: httpx2.AsyncClient, ada: Someone
) -> None:
    wrong = await client.post("/auth/login", json={"email": ada.email, "password": "not the password"})
    unknown = await client.post("/auth/login", json={"email": new_email(), "password": PASSWORD})

    assert code_of(wrong) == (401, "INVALID_TOKEN")
    assert wrong.json() == unknown.json()


# Cookies


async def test_login_sets_cookies_that_scripts_cannot_read(client: httpx2.AsyncClient, ada: Someone) -> None:
    response = await client.post("/auth/login", json={"email": ada.email, "password": PASSWORD})

    access, refresh = response.headers.get_list("set-cookie")
    assert all("HttpOnly" in cookie and "SameSite=lax" in cookie for cookie in (access, refresh))
    assert access.startswith("access_token=eyJ")
    assert "Path=/;" in access
    assert refresh.startswith("refresh_token=tcr_")
    assert "Path=/api/v1/auth;" in refresh


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ({}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "http://localhost:8080"}, 403),
        ({"Referer": "http://evil.example/http://localhost/"}, 403),
        ({"Referer": "http://[broken"}, 403),
        ({"Origin": "http://localhost"}, 201),
        ({"Referer": "http://localhost/workspaces?new"}, 201),
        ({"Origin": "https://friend.example"}, 201),
    ],
)
async def test_cookie_login_accepts_requests_from_our_own_pages_only(
    services: ApiServices, settings: Settings, ada: Someone, page: dict[str, str], status: int
) -> None:
    friendly = settings.model_copy(update={"allowed_origins": ("https://friend.example",)})
    app = create_app(replace(services, settings=friendly))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=API) as client:
        response = await client.post("/workspaces", headers=ada.cookie | page, json={"name": "website"})

    assert response.status_code == status


async def test_bearer_token_accepts_requests_from_any_page(client: httpx2.AsyncClient, ada: Someone) -> None:
    strange = {"Origin": "http://elsewhere.example"}

    response = await client.post("/workspaces", headers=ada.headers | strange, json={"name": "website"})

    assert response.status_code == 201


# Refresh


async def test_refresh_token_is_exchanged_for_the_next(client: httpx2.AsyncClient, ada: Someone) -> None:
    first = await logged_in(client, ada.email)

    second = (await client.post("/auth/refresh", json={"refresh_token": first["refresh_token"]})).json()
    third = await client.post("/auth/refresh", json={"refresh_token": second["refresh_token"]})
    me = await client.get("/auth/me", headers=bearer(second["access_token"]))

    assert len({first["refresh_token"], second["refresh_token"], third.json()["refresh_token"]}) == 3
    assert (third.status_code, me.status_code) == (200, 200)


async def test_reused_refresh_token_revokes_its_family_and_no_other(client: httpx2.AsyncClient, ada: Someone) -> None:
    stolen = await logged_in(client, ada.email)
    elsewhere = await logged_in(client, ada.email)
    successor = (await client.post("/auth/refresh", json={"refresh_token": stolen["refresh_token"]})).json()

    reused = await client.post("/auth/refresh", json={"refresh_token": stolen["refresh_token"]})
    after = await client.post("/auth/refresh", json={"refresh_token": successor["refresh_token"]})
    other = await client.post("/auth/refresh", json={"refresh_token": elsewhere["refresh_token"]})

    assert code_of(reused) == code_of(after) == (401, "INVALID_TOKEN")
    assert other.status_code == 200


async def test_browser_refreshes_with_its_cookie(client: httpx2.AsyncClient, ada: Someone) -> None:
    tokens = await logged_in(client, ada.email)
    cookie = {"Cookie": f"refresh_token={tokens['refresh_token']}"}

    from_elsewhere = await client.post("/auth/refresh", headers=cookie)
    from_here = await client.post("/auth/refresh", headers=cookie | SAME_PAGE)

    assert code_of(from_elsewhere) == (403, "FORBIDDEN")
    assert from_here.status_code == 200
    assert len(from_here.headers.get_list("set-cookie")) == 2


async def test_two_tabs_that_refresh_at_once_stay_logged_in(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone
) -> None:
    tokens = await logged_in(client, ada.email)

    def shared(token: str) -> dict[str, str]:
        return {"Cookie": f"refresh_token={token}"} | SAME_PAGE

    tabs = await asyncio.gather(
        *(client.post("/auth/refresh", headers=shared(tokens["refresh_token"])) for _ in range(3))
    )
    [winner] = [tab for tab in tabs if tab.status_code == 200]
    after = await client.post("/auth/refresh", headers=shared(winner.json()["refresh_token"]))

    assert sorted(tab.status_code for tab in tabs) == [200, 409, 409]
    assert not any("set-cookie" in tab.headers for tab in tabs if tab is not winner)
    assert after.status_code == 200

    # A later reuse can only be theft, and revokes the login.
    async with services.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.refresh_tokens set used_at = used_at - interval '1 minute' where user_id = %s", (ada.id,)
        )
    late = await client.post("/auth/refresh", headers=shared(tokens["refresh_token"]))
    ended = await client.post("/auth/refresh", headers=shared(after.json()["refresh_token"]))
    assert code_of(late) == code_of(ended) == (401, "INVALID_TOKEN")


@pytest.mark.parametrize("body", [None, {}, {"refresh_token": "tcr_unknown"}])
async def test_refresh_requires_a_valid_refresh_token(client: httpx2.AsyncClient, body: object) -> None:
    assert code_of(await client.post("/auth/refresh", json=body)) == (401, "INVALID_TOKEN")


# Logout


async def test_logout_revokes_the_refresh_token_and_clears_the_cookies(
    client: httpx2.AsyncClient, ada: Someone
) -> None:
    tokens = await logged_in(client, ada.email)

    out = await client.post("/auth/logout", json={"refresh_token": tokens["refresh_token"]})
    after = await client.post("/auth/refresh", json={"refresh_token": tokens["refresh_token"]})

    assert out.status_code == 204
    assert all("Max-Age=0" in cookie for cookie in out.headers.get_list("set-cookie"))
    assert code_of(after) == (401, "INVALID_TOKEN")


async def test_logout_everywhere_revokes_every_token_at_once(client: httpx2.AsyncClient, ada: Someone) -> None:
    here, there = await logged_in(client, ada.email), await logged_in(client, ada.email)

    out = await client.post("/auth/logout", headers=ada.headers, json={"everywhere": True})

    assert out.status_code == 204
    for tokens in (here, there):
        headers = bearer(tokens["access_token"])
        refreshed = await client.post("/auth/refresh", json={"refresh_token": tokens["refresh_token"]})
        assert code_of(await client.get("/auth/me", headers=headers)) == (401, "INVALID_TOKEN")
        assert code_of(await client.get("/workspaces", headers=headers)) == (401, "INVALID_TOKEN")
        assert code_of(refreshed) == (401, "INVALID_TOKEN")


async def test_logout_without_a_token_is_rejected(client: httpx2.AsyncClient) -> None:
    assert code_of(await client.post("/auth/logout")) == (401, "INVALID_TOKEN")


# Password guessing


async def test_password_guessing_is_rate_limited(client: httpx2.AsyncClient, ada: Someone) -> None:
    guess = {"email": ada.email, "password": "a wrong password"}
    guesses = [code_of(await client.post("/auth/login", json=guess)) for _ in range(10)]

    eleventh = await client.post("/auth/login", json={"email": ada.email, "password": PASSWORD})
    other = await client.post("/auth/login", json={"email": new_email(), "password": PASSWORD})

    assert set(guesses) == {(401, "INVALID_TOKEN")}
    assert code_of(eleventh) == (429, "RATE_LIMITED")
    assert 0 < int(eleventh.headers["retry-after"]) <= 15 * 60
    assert code_of(other) == (401, "INVALID_TOKEN")


async def test_password_guessing_does_not_lock_out_others_at_the_same_address(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices
) -> None:
    guesses = [
        await client.post("/auth/login", json={"email": f"{number % 40}@example.com", "password": "wrong"})
        for number in range(500)
    ]

    by_link = await client.post("/auth/link", json={"link": link_for(ada, services)})
    by_password = await client.post("/auth/login", json={"email": ada.email, "password": PASSWORD})

    assert {one.status_code for one in guesses} == {401, 429}
    assert sum(one.status_code == 401 for one in guesses) == 40 * 10
    assert (by_link.status_code, by_password.status_code) == (200, 200)


# Login links


def link_for(someone: Someone, services: ApiServices, *, version: int = 0) -> str:
    return services.login_links.issue(services.tokens.verify(someone.token).user_id, version)


async def test_login_link_works_once(client: httpx2.AsyncClient, ada: Someone, services: ApiServices) -> None:
    link = link_for(ada, services)

    first = await client.post("/auth/link", json={"link": link})
    by_cookie = await client.get("/auth/me")
    client.cookies.clear()
    by_token = await client.get("/auth/me", headers=bearer(first.json()["access_token"]))
    again = await client.post("/auth/link", json={"link": link})
    another = await client.post("/auth/link", json={"link": link_for(ada, services)})

    assert (first.status_code, by_cookie.status_code) == (200, 200)
    assert by_cookie.json() == by_token.json()
    assert by_token.json()["email"] == ada.email
    assert code_of(again) == (401, "INVALID_TOKEN")
    assert another.status_code == 200


async def test_only_a_current_login_link_is_accepted(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices
) -> None:
    secret = services.settings.jwt_secret.get_secret_value()
    ada_id = services.tokens.verify(ada.token).user_id
    refused = {
        "an access token": ada.token,
        "too old": LoginLinks(secret, node=services.settings.node_name, clock=lambda: time.time() - 200).issue(
            ada_id, 0
        ),
        "of another server": LoginLinks("x" * 48, node=services.settings.node_name).issue(ada_id, 0),
        "of logins that were ended": link_for(ada, services, version=7),
        "nonsense": "a.b.c",
    }

    answers = {what: code_of(await client.post("/auth/link", json={"link": link})) for what, link in refused.items()}
    as_a_token = await client.get("/auth/me", headers=bearer(link_for(ada, services)))

    assert answers == dict.fromkeys(refused, (401, "INVALID_TOKEN"))
    assert code_of(as_a_token) == (401, "INVALID_TOKEN")
    assert client.cookies.get("access_token") is None
