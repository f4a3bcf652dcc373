"""Passwords: hashed slowly, verified, and verified even for an unknown user."""

import pytest
from pwdlib.hashers.argon2 import Argon2Hasher

from toolcrib.api.passwords import Passwords


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
