"""Passwords: hashed slowly, verified, and verified even for an unknown user; attempts are limited."""

import pytest
from pwdlib.hashers.argon2 import Argon2Hasher
from starlette.exceptions import HTTPException

from toolcrib.api.passwords import Backoff, Passwords, RateWindow


class CountingHasher(Argon2Hasher):
    """A cheap hasher that counts its calls."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.verified = 0

    def verify(self, password: str | bytes, hash: str | bytes) -> bool:
        self.verified += 1
        return super().verify(password, hash)


@pytest.fixture
def hasher() -> CountingHasher:
    return CountingHasher()


async def test_only_the_right_password_matches(hasher: CountingHasher) -> None:
    passwords = Passwords(hasher)
    stored = await passwords.hash("correct horse battery staple")

    assert stored.startswith("$argon2id$")
    assert await passwords.matches("correct horse battery staple", stored)
    assert not await passwords.matches("correct horse battery stable", stored)


@pytest.mark.req("AP-2")
async def test_an_unknown_user_costs_as_much_as_a_known_one(hasher: CountingHasher) -> None:
    passwords = Passwords(hasher)

    assert not await passwords.matches("anything", None)
    assert hasher.verified == 1


async def test_a_damaged_hash_matches_nothing(hasher: CountingHasher) -> None:
    assert not await Passwords(hasher).matches("anything", "spoiled")


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
