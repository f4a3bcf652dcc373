"""Signed checkpoints of the audit chain for storage outside the database, and this node's own anchor file.

A checkpoint names a seal by number and keyed hash. It is signed by Ed25519 with a key derived from the audit key. A
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
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolcrib.storage.audit import AuditSeal

_PURPOSE = b"toolcrib audit checkpoint"
# Domain separation: a signed statement names its kind, so that no signature is valid for another kind.
_CHECKPOINT, _RESTORE = "toolcrib-audit-checkpoint", "toolcrib-audit-restore"


class UnreadableCheckpoint(ValueError):
    """The text is not a checkpoint, or it is not signed with this key."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest seal of the chain at one moment."""

    number: int
    mac: bytes
    top: int
    at: datetime

    @classmethod
    def of(cls, seal: AuditSeal) -> Self:
        """Return the checkpoint of a seal."""
        return cls(seal.number, seal.mac, seal.last_position, datetime.now(UTC))


class CheckpointSigner:
    """Signs checkpoints and reads those that it has signed."""

    def __init__(self, audit_seal_key: bytes) -> None:
        seed = HKDF(SHA256(), length=32, salt=None, info=_PURPOSE).derive(audit_seal_key)
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public_key(self) -> str:
        """The public key, as hexadecimal text."""
        return self._key.public_key().public_bytes_raw().hex()

    def signed(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the checkpoint as it is exported. The public key is enough to verify it."""
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
        """Return the signed record of a restore: the seal that this node had, and the restored chain's last one."""
        return self._sign({"kind": _RESTORE, "version": 1, "before": dict(given_up), "after": dict(chain)})

    def is_restore(self, note: Any) -> bool:
        """Return whether this is a restore record signed with this key."""
        return isinstance(note, dict) and note.get("kind") == _RESTORE and is_signed(note, self.public_key)

    def read(self, text: str) -> Checkpoint:
        """Parse a checkpoint.

        Raises:
            UnreadableCheckpoint: The text is not a checkpoint that this key has signed.
        """
        note = _parsed(text)
        if note.get("kind") != _CHECKPOINT:
            raise UnreadableCheckpoint("not an audit checkpoint.")
        if not is_signed(note, self.public_key):
            raise UnreadableCheckpoint(
                "the signature does not match this server's audit key, or the checkpoint was changed."
            )
        try:
            return Checkpoint(
                int(note["number"]), bytes.fromhex(note["mac"]), int(note["top"]), datetime.fromisoformat(note["at"])
            )
        except (KeyError, TypeError, ValueError):
            raise UnreadableCheckpoint("a field is missing.") from None

    def read_all(self, text: str) -> Iterable[Checkpoint]:
        """Parse one checkpoint, or one per line, as ``CheckpointExporter`` appends them."""
        stripped = text.strip()
        if not stripped:
            raise UnreadableCheckpoint("the file is empty.")
        return [self.read(line) for line in stripped.splitlines() if line.strip()]

    def _sign(self, note: dict[str, Any]) -> dict[str, Any]:
        signed = {**note, "public_key": self.public_key}
        return {**signed, "signature": self._key.sign(canonical_json(signed)).hex()}


def is_signed(note: Mapping[str, Any], public_key: str) -> bool:
    """Return whether a statement is signed with this key. Needs no secret."""
    unsigned = {name: value for name, value in note.items() if name != "signature"}
    if unsigned.get("public_key") != public_key:
        return False
    try:
        signature = bytes.fromhex(str(note.get("signature")))
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, canonical_json(unsigned))
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class AnchorNote:
    """The newest seal that this node has made or accepted, as its anchor file says."""

    number: int
    mac: str


def read_anchor(anchor: Path | None) -> AnchorNote | None:
    """Read the anchor file; None if it does not exist.

    Raises:
        UnreadableCheckpoint: The file is damaged.
    """
    if anchor is None or not anchor.exists():
        return None
    note = _parsed(anchor.read_text())
    if not isinstance(note.get("number"), int) or not isinstance(note.get("mac"), str):
        raise UnreadableCheckpoint("a field is missing.")
    return AnchorNote(note["number"], note["mac"])


def write_anchor(anchor: Path, seal: AuditSeal) -> None:
    """Write the anchor file."""
    replace_file(anchor, json.dumps({"number": seal.number, "mac": seal.mac.hex()}))


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, readable by its owner only: a crash or power cut leaves the old file or the new one.

    Of two concurrent writers the last one wins; neither damages the other's file.
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
        note = json.loads(text)
    except ValueError:
        raise UnreadableCheckpoint("not JSON.") from None
    if not isinstance(note, dict):
        raise UnreadableCheckpoint("not a JSON object.")
    return note


def canonical_json(value: Any) -> bytes:
    """Encode a value as it is signed and hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    assert isinstance(value, UUID)
    return str(value)
