"""Authenticates nodes to each other: a token for each request, and a seal on each frame of its answer.

The keys are derived from the installation's secret for this purpose only. A token names the node that sends, the
process that may accept it, the operation and the hash of the body; it expires after seconds and is accepted once. The
seal of a frame covers the token's nonce and the frame's number, so no frame can be forged, changed, repeated or left
out.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolcrib.core.errors import Unauthenticated

# A constant, never the token's own ``alg``.
_ALGORITHM: Final = "HS256"
_REQUIRED: Final = ["exp", "iat", "iss", "aud", "jti", "op", "sha256"]
# A request that waited longer in the buffers of a node that did not run must not begin any more.
LIFETIME_SECONDS: Final = 10
# Allowed difference between what two nodes take for the time.
_LEEWAY_SECONDS: Final = 5
_MOST_NONCES: Final = 500_000
SEAL_BYTES: Final = 32


class FrameSealer:
    """Seals the frames of one answer, or checks them, in their order."""

    def __init__(self, key: bytes, nonce: str) -> None:
        self._key = key
        self._nonce = nonce.encode()
        self._count = 0

    def next_seal(self, kind: bytes, payload: bytes) -> bytes:
        """Return the seal of the next frame."""
        digest = hmac.new(self._key, self._nonce + self._count.to_bytes(8) + kind, sha256)
        digest.update(payload)
        self._count += 1
        return digest.digest()

    def accepts(self, seal: bytes, kind: bytes, payload: bytes) -> bool:
        """Return whether this is the seal of the next frame."""
        return hmac.compare_digest(seal, self.next_seal(kind, payload))


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """A valid token: who sends, the hash of the body that it covers, and the sealer of the answer."""

    issuer: str
    body_sha256: str
    sealer: FrameSealer


class NodeTokens:
    """Issues tokens for other nodes, and accepts those for this process."""

    def __init__(
        self,
        secret: str,
        *,
        node: str,
        address: str,
        previous: str | None = None,
        clock: Callable[[], float],
    ) -> None:
        """Create it.

        Args:
            address: The URL that this process advertises. Tokens for another process of this node are not accepted.
            previous: The previous secret, for rotation. Tokens signed with it are accepted too.
            clock: The time that all nodes agree on: the database's. Those of the machines may differ.
        """
        self._keys = tuple(_derived(one) for one in (secret, previous) if one)
        self._node = node
        self._audience = _audience(node, address)
        self._clock = clock
        self._began = clock()
        self._jwt = jwt.PyJWT(
            options={
                "require": _REQUIRED,
                "strict_aud": True,
                "enforce_minimum_key_length": True,
                # Checked by the clock of this class.
                "verify_exp": False,
                "verify_iat": False,
            }
        )
        # Accepted nonces, oldest first, with the time until which each must be remembered.
        self._accepted: dict[str, float] = {}

    def issue(self, node: str, address: str, operation: str, body_sha256: str) -> tuple[str, FrameSealer]:
        """Return a token for one request to another node, and the sealer that checks its answer."""
        key, now, nonce = self._keys[0], self._clock(), token_hex(16)
        claims = {
            "iss": self._node,
            "aud": _audience(node, address),
            "iat": now,
            "exp": now + LIFETIME_SECONDS,
            "jti": nonce,
            "op": operation,
            "sha256": body_sha256,
        }
        return self._jwt.encode(claims, key.requests, algorithm=_ALGORITHM), FrameSealer(key.answers, nonce)

    def accept(self, token: str, operation: str) -> AcceptedToken:
        """Return what a token says. It is accepted once.

        Raises:
            Unauthenticated: It is forged, expired, used before, for another process or for another operation.
        """
        key, claims = self._decode(token)
        nonce, issued, expires, now = claims["jti"], float(claims["iat"]), float(claims["exp"]), self._clock()
        is_current = issued - _LEEWAY_SECONDS <= now < expires + _LEEWAY_SECONDS
        # A process that restarted does not know which tokens it accepted before.
        is_ours = claims["op"] == operation and issued >= self._began and expires <= issued + LIFETIME_SECONDS
        if not (is_current and is_ours):
            raise Unauthenticated(_REFUSED)
        self._use(nonce, expires + _LEEWAY_SECONDS)
        return AcceptedToken(claims["iss"], claims["sha256"], FrameSealer(key.answers, nonce))

    def _decode(self, token: str) -> tuple["_Keys", dict[str, Any]]:
        for key in self._keys:
            try:
                return key, self._jwt.decode(token, key.requests, algorithms=[_ALGORITHM], audience=self._audience)
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError:
                break
        raise Unauthenticated(_REFUSED)

    def _use(self, nonce: str, until: float) -> None:
        now = self._clock()
        while self._accepted and next(iter(self._accepted.values())) < now:
            del self._accepted[next(iter(self._accepted))]
        # Rather refuse a valid token than forget one that could be used again.
        if nonce in self._accepted or len(self._accepted) >= _MOST_NONCES:
            raise Unauthenticated(_REFUSED)
        self._accepted[nonce] = until


_REFUSED: Final = "This request is not from a node of this installation."


@dataclass(frozen=True, slots=True)
class _Keys:
    """Two keys, so that no answer can be taken for a request."""

    requests: bytes
    answers: bytes


def _derived(secret: str) -> _Keys:
    def derive(purpose: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret.encode())

    return _Keys(derive(b"toolcrib node requests"), derive(b"toolcrib node answers"))


def _audience(node: str, address: str) -> str:
    return f"{node} {address}"
