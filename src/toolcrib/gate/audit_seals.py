"""Seals the audit log. A seal is a keyed hash over the previous seal and the records that it covers.

The key is outside the database: an attacker who can rewrite rows cannot rewrite seals. Records that are not sealed yet
are not protected; ``verify`` reports how many. The newest seal is also written to a file, the anchor: a chain that does
not contain that seal was cut off, rolled back or sealed anew. Such a chain is not sealed any further until an operator
confirms that the database was restored.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import structlog

from toolcrib.core.audit import AuditRecord
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Conflict
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.gate.audit_checkpoints import (
    AnchorNote,
    CheckpointSigner,
    UnreadableCheckpoint,
    canonical_json,
    read_anchor,
    write_anchor,
)
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.audit import ADMIN_RULE, SERVER, AuditSeal, AuditSealStore, AuditStore, StoredAuditRecord

log = structlog.get_logger(__name__)

# Small enough that sealing a batch does not delay the calls of a busy server.
_BATCH = 500
_FIELDS = tuple(field.name for field in fields(StoredAuditRecord))
ACCEPT_RESTORE = "audit.accept-restore"
SPOILED = "This node's copy of the last seal is unreadable, so a truncated audit log would not be detected."
REMEDY = (
    "If the database was restored from a backup, run `toolcrib audit accept-restore`, which is recorded; if not, "
    "records were removed. Until then no new seals are made."
)
START = AuditSeal(number=0, positions=(), gaps=(), last_position=0, record_count=0, mac=bytes(32))


class SealingRefused(Conflict):
    """The chain does not contain the seal in this node's anchor. Sealing it would hide that it was cut."""


class AuditSealer:
    """Seals the records that were written since the last seal."""

    def __init__(self, sealing: AuditSealStore, key: bytes, *, anchor: Path | None = None) -> None:
        self._sealing = sealing
        self._key = key
        self._anchor = anchor

    async def run(self, every_seconds: float) -> None:
        """Seal until cancelled, and then once more, so that a stopped server leaves nothing unsealed.

        Failures are logged and retried. Calls continue meanwhile, unsealed.
        """
        try:
            while True:
                await self._seal_all()
                await asyncio.sleep(every_seconds)
        finally:
            await self._seal_all()

    async def _seal_all(self) -> None:
        try:
            while await self.seal() == _BATCH:
                pass
        except SealingRefused as denial:
            log.critical("audit.seal_refused", reason=str(denial))
        except Exception:
            log.exception("audit.seal_failed", remedy="Records are stored and will be sealed at the next attempt.")

    async def seal(self) -> int:
        """Seal one batch and return how many records it covers.

        Raises:
            SealingRefused: The chain does not contain the seal in this node's anchor.
        """
        async with self._sealing.lock() as connection:
            last = await self._sealing.last(connection) or START
            await require_anchor(self._anchor, last, partial(self._sealing.numbered, connection))
            records = await self._sealing.unsealed(connection, after=last.last_position, gaps=last.gaps, limit=_BATCH)
            if not records:
                return 0
            positions = [record.position for record in records]
            last_position = max(last.last_position, positions[-1])
            dead = await self._sealing.old_gaps(connection)
            candidates = set(members((*last.gaps, range(last.last_position + 1, last_position + 1))))
            gaps = candidates - set(positions) - set(members(dead))
            seal = signed_seal(self._key, last, records, runs(positions), runs(sorted(gaps)), last_position)
            await self._sealing.add(connection, seal)
        if self._anchor is not None:
            await in_thread(write_anchor, self._anchor, seal)
        return len(records)


@dataclass(frozen=True, slots=True)
class Restore:
    """An accepted restore: the seal in the anchor before it, and the chain's newest seal after it."""

    before: int | None
    after: int


async def accept_restore(
    sealing: AuditSealStore, audit: AuditStore, key: bytes, *, anchor: Path, mark: Path, by: str
) -> Restore:
    """Record in the audit log that the database was restored from a backup, and anchor the current chain.

    Raises:
        Conflict: There is no restore to accept. The log must only record what happened.
    """
    signer = CheckpointSigner(key)
    newest = await sealing.newest() or START
    try:
        noted = read_anchor(anchor)
    except UnreadableCheckpoint:
        noted, is_broken = None, True
    else:
        is_broken = noted is not None and await contradiction(noted, newest, sealing.seal) is not None
    if not is_broken:
        raise Conflict("The audit log contains the last seal of this node: there is no restore to accept.")
    given_up = {"number": noted.number, "mac": noted.mac} if noted else {"number": None, "mac": None}
    restore = signer.signed_restore(given_up=given_up, chain={"number": newest.number, "mac": newest.mac.hex()})
    await audit.append([server_record(ACCEPT_RESTORE, {**restore, "by": by})])
    await in_thread(write_anchor, anchor, newest)
    await in_thread(partial(mark.unlink, missing_ok=True))
    return Restore(noted.number if noted else None, newest.number)


def server_record(action: str, given: Mapping[str, Any]) -> AuditRecord:
    """Return the audit record of an operator's action on the server as a whole."""
    caller = Caller(WorkspaceId(SERVER), UserId(SERVER), via="cli")
    return AuditRecord(caller, action, "allow", ADMIN_RULE, given, "done", datetime.now(UTC), 0)


async def require_anchor(anchor: Path | None, last: AuditSeal, find: "FindSeal") -> None:
    """Raise SealingRefused unless a chain that ends at ``last`` contains the seal in this node's anchor."""
    try:
        noted = read_anchor(anchor)
    except UnreadableCheckpoint as error:
        raise SealingRefused(f"{SPOILED} Reason: {error} {REMEDY}") from None
    if noted and noted.number and (problem := await contradiction(noted, last, find)):
        raise SealingRefused(f"{problem} {REMEDY}")


# Returns the seal with a number, if the chain has it.
FindSeal = Callable[[int], Awaitable[AuditSeal | None]]


async def contradiction(noted: AnchorNote, last: AuditSeal, find: FindSeal) -> str | None:
    """Return how a chain that ends at ``last`` contradicts the noted seal, or None if it contains it."""
    if noted.number > last.number:
        return f"The audit log ends at seal {last.number}, but there was a seal {noted.number}: it was truncated."
    found = last if noted.number == last.number else await find(noted.number)
    if found is None:
        return f"Seal {noted.number} is missing."
    if not hmac.compare_digest(noted.mac, found.mac.hex()):
        return f"Seal {noted.number} differs from the stored copy: the audit log was rolled back and sealed again."
    return None


def signed_seal(
    key: bytes,
    last: AuditSeal,
    records: Sequence[StoredAuditRecord],
    positions: tuple[range, ...],
    gaps: tuple[range, ...],
    last_position: int,
) -> AuditSeal:
    """Return the seal that follows ``last`` and covers ``records``."""
    mac = hmac.new(key, digestmod=sha256)
    mac.update(last.mac)
    head = [last.number + 1, [[r.start, r.stop] for r in positions], [[r.start, r.stop] for r in gaps], last_position]
    mac.update(canonical_json(head))
    for record in records:
        mac.update(canonical_json([getattr(record, name) for name in _FIELDS]))
    return AuditSeal(last.number + 1, positions, gaps, last_position, len(records), mac.digest())


def runs(positions: Sequence[int]) -> tuple[range, ...]:
    """Group ascending positions into ranges of consecutive numbers."""
    found: list[range] = []
    for position in positions:
        if found and found[-1].stop == position:
            found[-1] = range(found[-1].start, position + 1)
        else:
            found.append(range(position, position + 1))
    return tuple(found)


def members(ranges: Iterable[range]) -> Iterable[int]:
    """Iterate over the positions of all ranges."""
    return (position for part in ranges for position in part)
