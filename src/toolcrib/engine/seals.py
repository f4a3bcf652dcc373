"""Seals the book and verifies it. A seal is a keyed hash over the seal before it and the records it covers.

The key lies outside the database: who can rewrite rows cannot rewrite seals. What is not sealed yet is not
protected by it, and ``verify`` says how much that is. The newest seal is noted in a file too, so that cutting
off the end of the chain is found.
"""

import asyncio
import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from toolcrib.storage.audit import BookedRecord, Seal, Sealing

log = structlog.get_logger(__name__)

# Small enough that sealing a batch does not hold up the calls of a busy server.
_BATCH = 500
# How many seals, or records under them, are verified at one asking.
_STRETCH = 5_000
_FIELDS = tuple(field.name for field in fields(BookedRecord))
_START = Seal(number=0, covered=(), open=(), top=0, records=0, mac=bytes(32))


class Sealer:
    """Closes what was written since the last seal."""

    def __init__(self, sealing: Sealing, key: bytes, *, anchor: Path | None = None) -> None:
        self._sealing = sealing
        self._key = key
        self._anchor = anchor

    async def run(self, every_seconds: float) -> None:
        """Seals until it is cancelled, and then once more, so that a server that was stopped leaves nothing unsealed.

        A failure is logged and tried again: calls go on meanwhile, unsealed.
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
        except Exception:
            log.exception("audit.sealing_failed", remedy="Records are kept and will be sealed at the next try.")

    async def seal(self) -> int:
        """Seals one batch and returns how many records are in it."""
        async with self._sealing.exclusively() as connection:
            last = await self._sealing.last(connection) or _START
            records = await self._sealing.unsealed(connection, top=last.top, open=last.open, limit=_BATCH)
            if not records:
                return 0
            positions = [record.position for record in records]
            top = max(last.top, positions[-1])
            dead = await self._sealing.open_for_long(connection)
            still_open = (
                set(_members((*last.open, range(last.top + 1, top + 1)))) - set(positions) - set(_members(dead))
            )
            seal = _signed(self._key, last, records, runs(positions), runs(sorted(still_open)), top)
            await self._sealing.add(connection, seal)
        if self._anchor is not None:
            self._anchor.parent.mkdir(parents=True, exist_ok=True)
            note = self._anchor.with_suffix(".tmp")
            note.write_text(json.dumps({"number": seal.number, "mac": seal.mac.hex()}))
            note.replace(self._anchor)
        return len(records)


@dataclass(frozen=True, slots=True)
class Verification:
    """What ``verify`` found. ``problems`` is empty when the book is whole."""

    seals: int
    sealed: int
    unsealed: int
    problems: tuple[str, ...]


async def verify(sealing: Sealing, key: bytes, *, anchor: Path | None = None) -> Verification:
    """Recomputes the chain from its beginning."""
    problems: list[str] = []
    # Read first: a seal that is made while we read the chain must not look as if it had been cut off.
    noted = _noted(anchor)
    last, sealed = _START, 0
    while seals := await sealing.seals_after(last.number, limit=100):
        for seal in seals:
            problems += await _faults(sealing, key, last, seal)
            sealed += seal.records
            last = seal
    outside = await sealing.outside_seals()
    slipped_in = _among_sealed(outside, last)
    problems += _slipped_in(outside, last)
    problems += _cut_off(noted, last)
    return Verification(last.number, sealed, len(outside) - len(slipped_in), tuple(problems))


@dataclass(frozen=True, slots=True)
class Stretch:
    """What ``Verifier`` found in a part of the chain: from the seal after ``first`` to ``last``, of ``newest``."""

    first: int
    last: int
    newest: int
    top: int
    sealed: int
    problems: tuple[str, ...]


class Verifier:
    """Recomputes the chain piece by piece, for those who ask while the server serves: one piece at a time."""

    def __init__(self, sealing: Sealing, key: bytes, *, anchor: Path | None = None) -> None:
        self._sealing = sealing
        self._key = key
        self._anchor = anchor
        self._busy = asyncio.Lock()

    async def stretch(self, after: int) -> Stretch:
        """The next few seals; ``_STRETCH`` records or a little more, so that the work has a bound."""
        async with self._busy:
            noted = _noted(self._anchor)
            newest = await self._sealing.newest() or _START
            start = _START if after == 0 else await self._sealing.seal(after)
            if start is None:
                problem = f"Seal {after} is missing."
                return Stretch(after, after, newest.number, newest.top, 0, (problem,))
            return await self._from(start, newest, noted)

    async def _from(self, start: Seal, newest: Seal, noted: str | None) -> Stretch:
        problems: list[str] = []
        last, sealed = start, 0
        for seal in await self._sealing.seals_after(start.number, limit=_STRETCH):
            problems += await _faults(self._sealing, self._key, last, seal)
            sealed += seal.records
            last = seal
            if sealed >= _STRETCH:
                break
        # Someone may have put a record before the first.
        above = start.top if start.number else None
        outside = await self._sealing.outside_seals_between(above, last.top)
        problems += _slipped_in(outside, newest if newest.number > last.number else last)
        if last.number >= newest.number:
            problems += _cut_off(noted, last)
        return Stretch(start.number, last.number, max(newest.number, last.number), last.top, sealed, tuple(problems))


async def _faults(sealing: Sealing, key: bytes, last: Seal, seal: Seal) -> Iterable[str]:
    if seal.number != last.number + 1:
        return [f"Seal {last.number + 1} is missing; the next one is {seal.number}."]
    records = await sealing.records_in(seal.covered)
    missing = sorted(set(_members(seal.covered)) - {record.position for record in records})
    if missing:
        return [f"Seal {seal.number}: records are missing: {_listed(runs(missing))}."]
    if seal.records != len(records):
        return [f"Seal {seal.number} says that it covers {seal.records} records; there are {len(records)}."]
    expected = _signed(key, last, records, seal.covered, seal.open, seal.top)
    if not hmac.compare_digest(expected.mac, seal.mac):
        return [
            f"Seal {seal.number} does not fit: a record in {_listed(seal.covered)}, the seal itself or the one before "
            "it was changed, or the key is not the one it was sealed with."
        ]
    return []


def _among_sealed(outside: Iterable[int], newest: Seal) -> list[int]:
    waiting = {*_members(newest.open)}
    return [position for position in outside if position <= newest.top and position not in waiting]


def _slipped_in(outside: Iterable[int], newest: Seal) -> Iterable[str]:
    found = _among_sealed(outside, newest)
    return [f"Records that no seal covers stand among sealed ones: {_listed(runs(found))}."] if found else []


def _noted(anchor: Path | None) -> str | None:
    return anchor.read_text() if anchor and anchor.exists() else None


def _cut_off(note: str | None, last: Seal) -> Iterable[str]:
    if note is None:
        return []
    try:
        noted = json.loads(note)
    except ValueError:
        return ["This node's note of the newest seal cannot be read, so a cut at the chain's end would not be seen."]
    if noted["number"] > last.number:
        return [f"The chain ends at seal {last.number}, but this node has sealed up to {noted['number']}."]
    if noted["number"] == last.number and noted["mac"] != last.mac.hex():
        return [f"Seal {last.number} is not the one that this node has noted."]
    return []


def _signed(
    key: bytes,
    last: Seal,
    records: Sequence[BookedRecord],
    covered: tuple[range, ...],
    open: tuple[range, ...],
    top: int,
) -> Seal:
    mac = hmac.new(key, digestmod=sha256)
    mac.update(last.mac)
    head = [last.number + 1, [[r.start, r.stop] for r in covered], [[r.start, r.stop] for r in open], top]
    mac.update(_canonical(head))
    for record in records:
        mac.update(_canonical([getattr(record, name) for name in _FIELDS]))
    return Seal(last.number + 1, covered, open, top, len(records), mac.digest())


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    assert isinstance(value, UUID)
    return str(value)


def runs(positions: Sequence[int]) -> tuple[range, ...]:
    """Ascending positions as ranges of neighbours."""
    found: list[range] = []
    for position in positions:
        if found and found[-1].stop == position:
            found[-1] = range(found[-1].start, position + 1)
        else:
            found.append(range(position, position + 1))
    return tuple(found)


def _members(ranges: Iterable[range]) -> Iterable[int]:
    return (position for part in ranges for position in part)


def _listed(ranges: Iterable[range]) -> str:
    return ", ".join(str(r.start) if len(r) == 1 else f"{r.start}–{r.stop - 1}" for r in ranges)
