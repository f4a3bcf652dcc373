"""Credentials are encrypted, so that the database alone does not reveal them."""

import secrets
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import Misconfigured, ProviderError, ProviderErrorKind
from toolcrib.storage.provider_credentials import EncryptedText, Encryptor

KEY, OTHER = secrets.token_urlsafe(48), secrets.token_urlsafe(48)
OWNER = "user 1, anthropic"


@given(st.text())
def test_an_encrypted_secret_can_be_decrypted_and_not_read(text: str) -> None:
    lock = Encryptor(KEY)
    locked = lock.encrypt(text, owner=OWNER)

    assert lock.decrypt(locked, owner=OWNER) == text
    assert len(text) < 4 or text.encode() not in locked.data
    assert lock.encrypt(text, owner=OWNER).data != locked.data


def test_another_owner_cannot_decrypt_it() -> None:
    locked = Encryptor(KEY).encrypt("sk-1", owner=OWNER)

    with pytest.raises(ProviderError) as caught:
        Encryptor(KEY).decrypt(locked, owner="user 2, anthropic")
    assert caught.value.kind is ProviderErrorKind.CREDENTIALS


@pytest.mark.parametrize("data", [b"", b"short", bytes(100)])
def test_a_modified_ciphertext_cannot_be_decrypted(data: bytes) -> None:
    locked = Encryptor(KEY).encrypt("sk-1", owner=OWNER)
    with pytest.raises(ProviderError):
        Encryptor(KEY).decrypt(replace(locked, data=data), owner=OWNER)
    for position in range(len(locked.data)):
        flipped = bytearray(locked.data)
        flipped[position] ^= 1
        with pytest.raises(ProviderError):
            Encryptor(KEY).decrypt(EncryptedText(locked.key_id, bytes(flipped)), owner=OWNER)


def test_a_new_key_decrypts_with_the_previous_one() -> None:
    old = Encryptor(KEY).encrypt("sk-1", owner=OWNER)
    new = Encryptor(OTHER, previous=KEY)

    assert new.decrypt(old, owner=OWNER) == "sk-1"
    assert new.needs_rekey(old)
    assert not new.needs_rekey(new.encrypt("sk-1", owner=OWNER))


def test_a_missing_key_is_named() -> None:
    old = Encryptor(KEY).encrypt("sk-1", owner=OWNER)
    with pytest.raises(Misconfigured, match=old.key_id):
        Encryptor(OTHER).decrypt(old, owner=OWNER)
    assert KEY not in old.key_id
