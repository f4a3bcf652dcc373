"""Passwords: hashed slowly, verified, and verified even for an unknown user; attempts are limited."""

import asyncio
from dataclasses import dataclass, field

import pytest
from starlette.exceptions import HTTPException

from tests.wait_until import PATIENCE
from toolcrib.api.passwords import Backoff, PasswordHasher, Passwords, RateWindow
from toolcrib.core.errors import Overloaded


@dataclass(frozen=True, kw_only=True)
class CountingHasher(PasswordHasher):
    """Records what it verifies."""

    verified: list[str] = field(default_factory=list)

    def verify(self, password: str, stored_hash: str) -> bool:
        self.verified.append(password)
        return super().verify(password, stored_hash)


@pytest.fixture
def hasher() -> CountingHasher:
    return CountingHasher(iterations=1, lanes=1, memory_kib=8)


async def test_only_the_right_password_matches(hasher: CountingHasher) -> None:
    passwords = Passwords(hasher)
    stored = await passwords.hash("correct horse battery staple")

    assert stored.startswith("$argon2id$")
    assert await passwords.matches("correct horse battery staple", stored)
    assert not await passwords.matches("correct horse battery stable", stored)


async def test_many_at_once_of_several_servers_in_a_process_all_end() -> None:
    """With the usual cost: OpenSSL's threads for its lanes can wait for each other."""
    servers = [Passwords(), Passwords()]

    async with asyncio.timeout(PATIENCE):
        stored = await asyncio.gather(*(one.hash("correct horse") for one in servers * 3))
        matches = await asyncio.gather(*(servers[0].matches("correct horse", one) for one in stored))

    assert matches == [True] * 6


async def test_many_logins_of_one_address_are_rejected_and_those_of_another_are_checked(hasher: CountingHasher) -> None:
    passwords = Passwords(hasher)
    stored = await passwords.hash("correct horse")

    flood = [asyncio.ensure_future(passwords.matches("guess", stored, address="10.0.0.1")) for _ in range(500)]
    mine = await passwords.matches("correct horse", stored, address="10.0.0.2")
    ended = await asyncio.gather(*flood, return_exceptions=True)

    assert mine
    assert {type(one) for one in ended} == {bool, Overloaded}
    assert sum(isinstance(one, Overloaded) for one in ended) > 300


async def test_an_unknown_user_costs_as_much_as_a_known_one(hasher: CountingHasher) -> None:
    passwords = Passwords(hasher)

    assert not await passwords.matches("anything", None)
    assert hasher.verified == ["anything"]


@pytest.mark.parametrize("damaged", ["", "spoiled", "$argon2id$v=19$m=8,t=1,p=1$AAAA$BBBB", "$argon2id$v=19$m=8$é$"])
async def test_a_damaged_hash_matches_nothing(hasher: CountingHasher, damaged: str) -> None:
    assert not await Passwords(hasher).matches("anything", damaged)


def test_the_usual_cost_is_the_one_that_rfc_9106_recommends() -> None:
    assert PasswordHasher().hash("correct horse battery staple").startswith("$argon2id$v=19$m=65536,t=3,p=4$")


def test_hashes_of_other_programs_and_of_earlier_releases_are_verified() -> None:
    """Made with argon2-cffi, which hashed passwords before, and whose cost may differ."""
    stored = "$argon2id$v=19$m=1024,t=2,p=2$h/2yyL7a6mLLcjm4E6d+lA$wDobgwwtKlRZ4Nco8s0aO3R1WVFDPLtXxXiWMK9cYto"

    assert PasswordHasher().verify("correct horse battery staple", stored)
    assert not PasswordHasher().verify("correct horse battery stable", stored)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def refusal(window: RateWindow, key: str) -> HTTPException | None:
    try:
        window.take(key)
    except HTTPException as error:
        return error
    return None


def test_the_limit_applies_to_any_interval_of_the_window(clock: Clock) -> None:
    window = RateWindow(2, 60, clock=clock)
    allowed = []

    for clock.now in (0, 50, 59, 60, 70, 109, 110, 111):
        allowed.append(refusal(window, "ada") is None)

    assert allowed == [True, True, False, True, False, False, True, False]


def test_a_429_response_has_a_retry_after_header(clock: Clock) -> None:
    window = RateWindow(1, 60, clock=clock)
    window.take("ada")
    clock.now = 12.5

    refused = refusal(window, "ada")

    assert refused is not None
    assert (refused.status_code, refused.headers) == (429, {"Retry-After": "48"})


def test_keys_are_counted_separately_and_cleared_on_success(clock: Clock) -> None:
    window = RateWindow(1, 60, clock=clock)
    window.take("ada")

    assert refusal(window, "bob") is None
    assert refusal(window, "ada") is not None
    window.forget("ada")
    assert refusal(window, "ada") is None


def test_memory_is_bounded(clock: Clock) -> None:
    window = RateWindow(1, 60, clock=clock)

    for number in range(60_000):
        window.take(number)

    assert len(window._tries) <= 50_000


def test_each_wrong_guess_doubles_the_wait_up_to_a_maximum() -> None:
    clock = Clock()
    backoff = Backoff(2, longest=60, clock=clock)
    waits = []
    for _ in range(8):
        while True:
            try:
                backoff.take("ada")
                break
            except HTTPException as refused:
                wait = int((refused.headers or {})["Retry-After"])
                waits.append(wait)
                clock.now += wait

    backoff.take("grace")
    backoff.forget("ada")
    backoff.take("ada")

    assert waits == [5, 10, 20, 40, 60, 60]


def test_backoff_resets_after_a_quiet_period() -> None:
    clock = Clock()
    backoff = Backoff(1, longest=60, clock=clock)
    backoff.take("ada")
    with pytest.raises(HTTPException):
        backoff.take("ada")

    clock.now += 1_000
    backoff.take("ada")
    with pytest.raises(HTTPException) as refused:
        backoff.take("ada")

    assert (refused.value.headers or {})["Retry-After"] == "5"
