"""Which tokens authenticate, and which do not."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import jwt
import pytest

from tests.integration.api.accounts import Newcomer, Someone, bearer, code_of
from toolcrib.settings import Settings

Signer = Callable[..., str]


@pytest.fixture
def signed(ada: Someone, settings: Settings) -> Signer:
    """Return Ada's token with some claims or header fields changed, signed with our secret."""
    claims = jwt.decode(ada.token, options={"verify_signature": False})

    def sign(
        *,
        secret: str | None = None,
        algorithm: str = "HS256",
        headers: Any = None,
        lacking: str = "",
        **changes: Any,
    ) -> str:
        said = {name: value for name, value in (claims | changes).items() if name != lacking}
        key: Any = None if algorithm == "none" else secret or settings.jwt_secret.get_secret_value()
        return jwt.encode(said, key, algorithm=algorithm, headers=headers)

    return sign


@pytest.mark.filterwarnings("ignore:The HMAC key is")
async def test_only_our_own_valid_tokens_are_accepted(client: httpx2.AsyncClient, ada: Someone, signed: Signer) -> None:
    now = int(time.time())
    forged = {
        "no signature": signed(algorithm="none"),
        "another algorithm": signed(algorithm="HS512"),
        "another key": signed(secret="x" * 40),
        "expired": signed(exp=now - 60),
        "from the future": signed(iat=now + 600),
        "for another API": signed(aud="other"),
        "for several APIs": signed(aud=["toolcrib-api", "other"]),
        "by someone else": signed(iss="other"),
        "not a user": signed(sub="root"),
        "unknown user": signed(sub=str(uuid4())),
        "version is no number": signed(ver=True),
        "another version": signed(ver=1),
        "cut short": ada.token[:-1],
        "not a token": "a.b.c",
        "nothing": "",
    } | {f"no {claim}": signed(lacking=claim) for claim in ("exp", "iat", "iss", "aud", "sub", "ver")}

    answers = {what: code_of(await client.get("/auth/me", headers=bearer(token))) for what, token in forged.items()}

    assert answers == dict.fromkeys(forged, (401, "INVALID_TOKEN"))


async def test_header_fields_that_name_a_key_are_ignored(client: httpx2.AsyncClient, signed: Signer) -> None:
    tricky = {"kid": "../../dev/null", "jku": "https://evil.example/keys", "x5u": "https://evil.example/c"}

    ours = await client.get("/auth/me", headers=bearer(signed(headers=tricky)))
    theirs = await client.get("/auth/me", headers=bearer(signed(headers=tricky, secret="y" * 40)))

    assert (ours.status_code, theirs.status_code) == (200, 401)


async def test_missing_token_returns_the_documented_error(client: httpx2.AsyncClient) -> None:
    response = await client.get("/auth/me")

    assert response.status_code == 401
    assert response.json() == {
        "success": False,
        "error": "No valid token found in Authorization header or cookie",
        "code": "INVALID_TOKEN",
    }
    assert response.headers["www-authenticate"] == "Bearer"


async def test_header_takes_precedence_over_cookie(client: httpx2.AsyncClient, ada: Someone) -> None:
    only_cookie = await client.get("/auth/me", headers=ada.cookie)
    bad_cookie = await client.get("/auth/me", headers=ada.headers | {"Cookie": "access_token=spoiled"})
    bad_header = await client.get("/auth/me", headers=ada.cookie | {"Authorization": "Bearer spoiled"})
    other_scheme = await client.get("/auth/me", headers=ada.cookie | {"Authorization": "Basic YTpi"})

    statuses = [r.status_code for r in (only_cookie, bad_cookie, bad_header, other_scheme)]
    assert statuses == [200, 200, 401, 200]


async def test_header_and_cookie_of_two_people_are_rejected(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer
) -> None:
    bob = await newcomer()

    response = await client.get("/auth/me", headers=ada.headers | bob.cookie)

    assert code_of(response) == (401, "INVALID_TOKEN")
