"""Credentials are stored so that the database alone does not give them away."""

import secrets
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.domain.errors import Misconfigured, ProviderError, ProviderFault
from toolcrib.storage.credentials import Lock, Locked

KEY, OTHER = secrets.token_urlsafe(48), secrets.token_urlsafe(48)
OWNER = "user 1, anthropic"


@pytest.mark.req("PR-4", part="credentials are stored encrypted")
@given(st.text())
def test_what_is_locked_can_be_opened_and_not_read(text: str) -> None:
    lock = Lock(KEY)
    locked = lock.lock(text, owner=OWNER)

    assert lock.unlock(locked, owner=OWNER) == text
    assert len(text) < 4 or text.encode() not in locked.data
    assert lock.lock(text, owner=OWNER).data != locked.data


def test_another_owner_cannot_open_it() -> None:
    locked = Lock(KEY).lock("sk-1", owner=OWNER)

    with pytest.raises(ProviderError) as caught:
        Lock(KEY).unlock(locked, owner="user 2, anthropic")
    assert caught.value.fault is ProviderFault.CREDENTIALS


@pytest.mark.parametrize("data", [b"", b"short", bytes(100)])
def test_what_was_changed_cannot_be_opened(data: bytes) -> None:
    locked = Lock(KEY).lock("sk-1", owner=OWNER)
    with pytest.raises(ProviderError):
        Lock(KEY).unlock(replace(locked, data=data), owner=OWNER)
    for position in range(len(locked.data)):
        flipped = bytearray(locked.data)
        flipped[position] ^= 1
        with pytest.raises(ProviderError):
            Lock(KEY).unlock(Locked(locked.key_id, bytes(flipped)), owner=OWNER)


@pytest.mark.req("PR-4", part="the key can be changed")
def test_a_changed_key_opens_what_the_one_before_it_locked() -> None:
    old = Lock(KEY).lock("sk-1", owner=OWNER)
    new = Lock(OTHER, previous=KEY)

    assert new.unlock(old, owner=OWNER) == "sk-1"
    assert new.is_outdated(old)
    assert not new.is_outdated(new.lock("sk-1", owner=OWNER))


def test_a_key_that_is_missing_is_named() -> None:
    old = Lock(KEY).lock("sk-1", owner=OWNER)
    with pytest.raises(Misconfigured, match=old.key_id):
        Lock(OTHER).unlock(old, owner=OWNER)
    assert KEY not in old.key_id
