"""Access tokens: their secrets and their age. The integration tests cover forged tokens."""

import secrets
import time

import pytest
from pydantic import SecretStr

from toolcrib.api.access_tokens import EXPIRED, AccessTokens
from toolcrib.core.errors import Misconfigured, Unauthenticated
from toolcrib.core.ids import UserId, new_id
from toolcrib.settings import Settings

ADA = UserId(new_id())
STRONG = secrets.token_urlsafe(48)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_token_contains_the_user_and_the_token_version() -> None:
    tokens = AccessTokens(STRONG)

    claims = tokens.verify(tokens.issue(ADA, 3))

    assert (claims.user_id, claims.version) == (ADA, 3)


def test_a_token_expires_after_its_minutes_even_if_cached() -> None:
    clock = Clock(time.time())
    tokens = AccessTokens(STRONG, minutes=15, clock=clock)
    token = tokens.issue(ADA, 0)

    clock.now += 15 * 60 - 1
    assert tokens.verify(token).user_id == ADA

    clock.now += 10
    with pytest.raises(Unauthenticated, match=EXPIRED):
        tokens.verify(token)


def test_an_expired_token_is_rejected_on_first_use() -> None:
    stale = AccessTokens(STRONG, clock=Clock(1_000_000_000)).issue(ADA, 0)

    with pytest.raises(Unauthenticated, match=EXPIRED):
        AccessTokens(STRONG).verify(stale)


def test_a_secret_is_rotated_without_logging_anyone_out() -> None:
    old, new = secrets.token_urlsafe(48), secrets.token_urlsafe(48)
    issued_before = AccessTokens(old).issue(ADA, 0)
    changing = AccessTokens(new, previous=old)

    assert changing.verify(issued_before).user_id == ADA
    assert AccessTokens(new).verify(changing.issue(ADA, 0)).user_id == ADA
    with pytest.raises(Unauthenticated):
        AccessTokens(new).verify(issued_before)


def test_many_tokens_do_not_fill_the_memory() -> None:
    tokens = AccessTokens(STRONG)

    for version in range(5_000):
        tokens.verify(tokens.issue(ADA, version))

    assert len(tokens._verified) <= 4_096


@pytest.mark.parametrize(
    "weak",
    [
        pytest.param("short", id="short"),
        pytest.param("lVjIS03inTQlIP7aQqj_luwLqZOsUe9", id="one byte short"),
        pytest.param("a" * 64, id="one letter"),
        pytest.param("change-me-F2eFiazR1_smfIqEIAQN04BlM84bhuWBlig", id="to be changed"),
        pytest.param("your-secret-key-of-at-least-32-characters", id="sample"),
    ],
)
@pytest.mark.parametrize("name", ["jwt_secret", "audit_seal_key", "jwt_previous_secret"])
def test_a_guessable_secret_is_rejected(name: str, weak: str) -> None:
    given = {"jwt_secret": STRONG, "audit_seal_key": STRONG, "jwt_previous_secret": STRONG} | {name: weak}
    settings = Settings(
        database_url="postgresql://nowhere",
        jwt_secret=SecretStr(given["jwt_secret"]),
        audit_seal_key=SecretStr(given["audit_seal_key"]),
        jwt_previous_secret=SecretStr(given["jwt_previous_secret"]),
    )

    with pytest.raises(Misconfigured, match=f"TOOLCRIB_{name.upper()}"):
        settings.reject_weak_secrets()


def test_random_secrets_are_accepted() -> None:
    strong = SecretStr(STRONG)

    Settings(database_url="postgresql://nowhere", jwt_secret=strong, audit_seal_key=strong).reject_weak_secrets()
