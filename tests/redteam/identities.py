"""Identities of attackers: none, a forged one, an expired or revoked one, and another tenant's."""

import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jwt

from tests.redteam.target import Login, Target, bearer, furnish, made

Headers = dict[str, str]
LOGGED_OUT = "logged out everywhere"
DISABLED = "someone disabled"


@dataclass(frozen=True)
class Identity:
    """What an attacker sends to authenticate, and the expected status of every guarded route."""

    name: str
    headers: Headers
    # 401: not authenticated. 403: authenticated, and denied.
    status: int


def identities(target: Target) -> list[Identity]:
    """Return every identity that must have no access to Ada's workspace."""
    unknown = [*_without_a_token(target), *_forged(target), *_ended(target)]
    known = [*_other_tenants(target), *_former_members(target)]
    return [Identity(name, headers, 401) for name, headers in unknown] + [
        Identity(name, headers, 403) for name, headers in known
    ]


def _without_a_token(target: Target) -> Iterator[tuple[str, Headers]]:
    ada = target.ada.owner
    yield "nobody", {}
    yield "an empty token", {"Authorization": "Bearer"}
    yield "garbage", bearer("garbage")
    yield "10,000 characters", bearer("x" * 10_000)
    yield "another scheme", {"Authorization": f"Basic {ada.token}"}
    yield "two schemes", {"Authorization": f"Bearer Bearer {ada.token}"}
    yield "the token in another header", {"X-Authorization": f"Bearer {ada.token}", "X-Api-Key": target.ada.key}
    yield "a refresh token", bearer(ada.refresh_token)
    yield "a made-up key", bearer(f"tck_{secrets.token_urlsafe(32)}")
    yield "a key cut short", bearer(target.ada.key[:-1])
    yield "a key in other case", bearer(target.ada.key.swapcase())
    yield "the hint of a key", bearer(target.ada.key[:10])
    ticket = made(target.http.post(f"{target.ada.workspace}/tickets", headers=ada.headers))
    yield "a ticket of the WebSocket", bearer(ticket["ticket"])
    yield "an id for a token", bearer(ada.id)
    yield "an e-mail address for a token", bearer(ada.email)


def _forged(target: Target) -> Iterator[tuple[str, Headers]]:
    key = target.server.jwt_secret
    claims = jwt.decode(target.ada.owner.token, options={"verify_signature": False})
    now = int(time.time())
    yield "alg none", bearer(_unsigned(claims, "none"))
    yield "alg None", bearer(_unsigned(claims, "None"))
    yield "an empty signature", bearer(target.ada.owner.token.rpartition(".")[0] + ".")
    yield "another key", bearer(jwt.encode(claims, secrets.token_urlsafe(48), "HS256"))
    yield "an empty key", bearer(_signed_empty(claims))
    yield "another algorithm", bearer(jwt.encode(claims, key * 2, "HS512"))
    changed: dict[str, dict[str, Any]] = {
        "expired": {"exp": now - 60, "iat": now - 3600},
        "not issued yet": {"iat": now + 3600},
        "another issuer": {"iss": "elsewhere"},
        "another audience": {"aud": "elsewhere"},
        "several audiences": {"aud": [claims["aud"], "elsewhere"]},
        "a text for a version": {"ver": "0"},
        "no version": {"ver": None},
        "truth for a version": {"ver": False},
        "nobody's id": {"sub": "nobody"},
    }
    for name, change in changed.items():
        yield f"signed, {name}", bearer(jwt.encode(claims | change, key, "HS256"))
    for claim in claims:
        less = {name: value for name, value in claims.items() if name != claim}
        yield f"signed, without {claim}", bearer(jwt.encode(less, key, "HS256"))


def _ended(target: Target) -> Iterator[tuple[str, Headers]]:
    """Identities that were valid once. Each belonged to a member of Ada's workspace."""
    gone = _member(target, "logged-out")
    key = made(target.http.post("/api-keys", json={"name": "k"}, headers=gone.headers))
    made(target.http.delete(f"/api-keys/{key['key']['id']}", headers=gone.headers))
    yield "a revoked key", bearer(key["secret"])
    made(target.http.post("/auth/logout", json={"everywhere": True}, headers=gone.headers))
    yield LOGGED_OUT, gone.headers

    disabled = _member(target, "disabled")
    key = made(target.http.post("/api-keys", json={"name": "k"}, headers=disabled.headers))
    ended = target.server.command("user", "disable", disabled.email)
    assert ended.returncode == 0, ended.stderr
    yield DISABLED, disabled.headers
    yield "the key of someone disabled", bearer(key["secret"])

    owner = target.ada.owner.headers
    agent = made(
        target.http.post(
            f"{target.ada.workspace}/agents",
            json={"name": "short-lived", "definition": "trust: guided\n"},
            headers=owner,
        )
    )["id"]
    agent_key = made(target.http.post(f"{target.ada.workspace}/agents/{agent}/keys", json={"name": "k"}, headers=owner))
    made(target.http.delete(f"{target.ada.workspace}/agents/{agent}", headers=owner))
    yield "the key of a deleted agent", bearer(agent_key["secret"])


def _other_tenants(target: Target) -> Iterator[tuple[str, Headers]]:
    stranger = target.register("stranger")
    yield "an account without a workspace", stranger.headers
    # Their own keys: other attacks may have revoked Mallory's.
    other = furnish(target.http, target.register("other"), "other")
    yield "another tenant's owner", other.owner.headers
    yield "another tenant's key", bearer(other.key)
    yield "another tenant's agent", bearer(other.agent_key)
    yield (
        "another tenant by cookie",
        {
            "Cookie": f"access_token={other.owner.token}",
            "Origin": target.server.origin,
        },
    )


def _former_members(target: Target) -> Iterator[tuple[str, Headers]]:
    former = _member(target, "former")
    made(target.http.delete(f"{target.ada.workspace}/members/{former.id}", headers=target.ada.owner.headers))
    yield "a former member", former.headers


def _member(target: Target, name: str) -> Login:
    person = target.register(name)
    member = {"email": person.email, "role": "owner"}
    made(target.http.post(f"{target.ada.workspace}/members", json=member, headers=target.ada.owner.headers))
    return person


def _unsigned(claims: dict[str, Any], algorithm: str) -> str:
    return f"{_part({'alg': algorithm, 'typ': 'JWT'})}.{_part(claims)}."


def _signed_empty(claims: dict[str, Any]) -> str:
    head = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
    return f"{head}.{_encoded(hmac.new(b'', head.encode(), hashlib.sha256).digest())}"


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
