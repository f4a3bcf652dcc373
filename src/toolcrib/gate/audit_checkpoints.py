"""Signed statements of where the audit chain ends, for witnesses outside the database, and this node's own anchor.

A checkpoint names a seal by number and keyed hash, signed by Ed25519 with a key that is derived from the audit key. A
chain that does not contain that seal any more was truncated, rolled back or sealed anew.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolcrib.storage.audit import AuditSeal

_PURPOSE = b"toolcrib audit checkpoint"
# What is signed says what it is, so that no signature serves for something else.
_CHECKPOINT, _RESTORE = "toolcrib-audit-checkpoint", "toolcrib-audit-restore"


class UnreadableCheckpoint(ValueError):
    """What should be a checkpoint is none, or nobody with our key has signed it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The seal at which the chain ended at some moment."""

    number: int
    mac: bytes
    top: int
    at: datetime

    @classmethod
    def of(cls, seal: AuditSeal) -> Self:
        return cls(seal.number, seal.mac, seal.top, datetime.now(UTC))


class CheckpointSigner:
    """Signs checkpoints and reads those that it has signed."""

    def __init__(self, audit_key: bytes) -> None:
        seed = HKDF(SHA256(), length=32, salt=None, info=_PURPOSE).derive(audit_key)
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public_key(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def signed(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """As it is exported. Whoever has the public key can check it without the audit key."""
        return self._sign(
            {
                "kind": _CHECKPOINT,
                "version": 1,
                "number": checkpoint.number,
                "mac": checkpoint.mac.hex(),
                "top": checkpoint.top,
                "at": checkpoint.at.astimezone(UTC).isoformat(),
            }
        )

    def signed_restore(self, *, given_up: Mapping[str, Any], chain: Mapping[str, Any]) -> dict[str, Any]:
        """That a restore was accepted: which seal this node had, and which one the restored chain ends with."""
        return self._sign({"kind": _RESTORE, "version": 1, "before": dict(given_up), "after": dict(chain)})

    def is_restore(self, told: Any) -> bool:
        return isinstance(told, dict) and told.get("kind") == _RESTORE and is_signed(told, self.public_key)

    def read(self, text: str) -> Checkpoint:
        """Raises UnreadableCheckpoint unless the text is a checkpoint that this key has signed."""
        told = _parsed(text)
        if told.get("kind") != _CHECKPOINT:
            raise UnreadableCheckpoint("It is not an audit checkpoint.")
        if not is_signed(told, self.public_key):
            raise UnreadableCheckpoint("Its signature is not by this server's audit key, or it was changed.")
        try:
            return Checkpoint(
                int(told["number"]), bytes.fromhex(told["mac"]), int(told["top"]), datetime.fromisoformat(told["at"])
            )
        except (KeyError, TypeError, ValueError):
            raise UnreadableCheckpoint("It lacks a part.") from None

    def read_all(self, text: str) -> Iterable[Checkpoint]:
        """One checkpoint, or one in each line, as a server that exports them appends them."""
        stripped = text.strip()
        if not stripped:
            raise UnreadableCheckpoint("It is empty.")
        return [self.read(line) for line in stripped.splitlines() if line.strip()]

    def _sign(self, told: dict[str, Any]) -> dict[str, Any]:
        signed = {**told, "public_key": self.public_key}
        return {**signed, "signature": self._key.sign(_canonical(signed)).hex()}


def is_signed(told: Mapping[str, Any], public_key: str) -> bool:
    """Whether a statement bears the signature of this key; needs nothing secret."""
    unsigned = {name: value for name, value in told.items() if name != "signature"}
    if unsigned.get("public_key") != public_key:
        return False
    try:
        signature = bytes.fromhex(str(told.get("signature")))
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, _canonical(unsigned))
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class AnchorNote:
    """The newest seal that this node has made or accepted, as its anchor says."""

    number: int
    mac: str


def read_anchor(anchor: Path | None) -> AnchorNote | None:
    """The node's note, or none if it never made one; UnreadableCheckpoint if it was spoiled."""
    if anchor is None or not anchor.exists():
        return None
    told = _parsed(anchor.read_text())
    if not isinstance(told.get("number"), int) or not isinstance(told.get("mac"), str):
        raise UnreadableCheckpoint("It lacks a part.")
    return AnchorNote(told["number"], told["mac"])


def write_anchor(anchor: Path, seal: AuditSeal) -> None:
    replace_file(anchor, json.dumps({"number": seal.number, "mac": seal.mac.hex()}))


def replace_file(path: Path, text: str) -> None:
    """Replaces a file whole, for its owner's eyes: a kill or a power cut leaves the old one or the new one.

    Of two who write at once one comes last, and neither spoils what the other wrote.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _parsed(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        raise UnreadableCheckpoint("It is not JSON.") from None
    if not isinstance(told, dict):
        raise UnreadableCheckpoint("It is not a JSON object.")
    return told


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
