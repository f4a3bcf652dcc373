"""Encrypts what users entrust to us: keys to their providers. Knows neither providers nor tables.

Each text is bound to its owner and place: moved to another row, it cannot be opened. The key lies outside the database,
has an id that is stored beside the text, and can be changed while texts of the key before it can still be opened.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolcrib.domain.errors import Misconfigured, ProviderError, ProviderFault

_NONCE = 12
_PURPOSE = b"toolcrib provider credentials v1"


@dataclass(frozen=True, slots=True)
class Locked:
    """An encrypted text as it is stored."""

    key_id: str
    data: bytes


class Lock:
    """Locks with one key, and opens what it or an earlier one locked."""

    def __init__(self, key: str, *, previous: str | None = None) -> None:
        self._keys: Mapping[str, AESGCM] = dict(_derived(secret) for secret in (previous, key) if secret)
        self._current = _derived(key)[0]

    def lock(self, text: str, *, owner: str) -> Locked:
        """``owner`` says whose text it is and where it stands, and must be said again to open it."""
        nonce = secrets.token_bytes(_NONCE)
        sealed = self._keys[self._current].encrypt(nonce, text.encode(), owner.encode())
        return Locked(self._current, nonce + sealed)

    def unlock(self, locked: Locked, *, owner: str) -> str:
        key = self._keys.get(locked.key_id)
        if key is None:
            raise Misconfigured(
                f"Stored credentials were locked with the key {locked.key_id}, which is not configured. Set "
                "TOOLCRIB_CREDENTIALS_KEY, or TOOLCRIB_CREDENTIALS_PREVIOUS_KEY while keys are being changed, to it."
            )
        try:
            return key.decrypt(locked.data[:_NONCE], locked.data[_NONCE:], owner.encode()).decode()
        except (InvalidTag, ValueError):
            raise ProviderError(
                0,
                "The stored credentials cannot be opened: they were changed, or belong to another.",
                fault=ProviderFault.CREDENTIALS,
                remedy="Enter the key of the provider again.",
            ) from None

    def is_outdated(self, locked: Locked) -> bool:
        """Whether it was locked with an earlier key and should be locked anew."""
        return locked.key_id != self._current


def _derived(secret: str) -> tuple[str, AESGCM]:
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode())
    return sha256(key).hexdigest()[:16], AESGCM(key)
