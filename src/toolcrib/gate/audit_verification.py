"""Verifies the audit log: recomputes its seals and compares them with the anchor and checkpoints outside the database.

Verification starts where the last one ended, which a signed mark records. Earlier records are only counted, unless a
full verification is requested. Checkpoints are exported periodically, to a file or a URL outside the database.
"""

import asyncio
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from toolcrib.gate.audit_checkpoints import (
    AnchorNote,
    Checkpoint,
    CheckpointSigner,
    UnreadableCheckpoint,
    read_anchor,
    replace_file,
)
from toolcrib.gate.audit_seals import (
    ACCEPT_RESTORE,
    SPOILED,
    START,
    SealingRefused,
    contradiction,
    members,
    require_anchor,
    runs,
    signed_seal,
)
from toolcrib.network.network_policy import OPERATOR_URLS, OutboundError, OutboundFailure
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.audit import AuditSeal, AuditSealStore

# How many seals, or records under them, one step verifies.
_STRETCH = 5_000
# A receiver that does not answer in time is tried again in the next round.
_POST_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """The result of ``verify``. ``problems`` is empty if the audit log is intact.

    An earlier verification recomputed the records under the seals up to ``since``; this one only counted them.
    """

    seals: int
    sealed_records: int
    unsealed_records: int
    problems: tuple[str, ...]
    since: int = 0
    restores: tuple[str, ...] = ()


async def verify(
    sealing: AuditSealStore,
    key: bytes,
    *,
    anchor: Path | None = None,
    mark: Path | None = None,
    full: bool = False,
    checkpoints: Iterable[Checkpoint] = (),
) -> AuditVerification:
    """Recompute the chain from where the last verification ended, or from its beginning.

    Args:
        anchor: The file with the newest seal of this node.
        mark: The signed file that records where the last verification ended. Updated if no problem was found.
        full: Recompute everything, whatever ``mark`` says.
        checkpoints: Exported checkpoints that the chain must contain.
    """
    signer = CheckpointSigner(key)
    # Read before the chain: a seal added while we read must not look as if it had been cut off.
    problems, claims = _claims(signer, anchor, mark, checkpoints)
    start = None if full else await _verified_before(sealing, signer, mark)
    last = start or START
    since, sealed = last.number, 0
    while seals := await sealing.seals_after(last.number, limit=100):
        for seal in seals:
            problems += await _seal_problems(sealing, key, last, seal)
            sealed += seal.record_count
            last = seal
    outside = await sealing.unsealed_below()
    slipped_in = _among_sealed(outside, last)
    problems += _slipped_in(outside, last)
    if since and (missing := await sealing.missing()):
        problems.append(f"{missing} sealed records are missing. `--full` lists them.")
    problems += [problem for claim in claims if (problem := await _contradicts(sealing, claim, last))]
    restores, forged = await _restores(sealing, signer)
    problems += forged
    if mark is not None and not problems and last.number:
        await in_thread(replace_file, mark, json.dumps(signer.signed(Checkpoint.of(last))))
    unsealed = len(outside) - len(slipped_in)
    return AuditVerification(last.number, sealed, unsealed, tuple(problems), since, restores)


@dataclass(frozen=True, slots=True)
class VerifiedRange:
    """The result for one part of the chain: the seals after ``first`` up to ``verified_to``, of ``last_seal``."""

    first: int
    verified_to: int
    last_seal: int
    last_position: int
    sealed_records: int
    problems: tuple[str, ...]
    first_mac: bytes = bytes(32)


class AuditVerifier:
    """Recomputes the chain in steps while the server runs, one step at a time."""

    def __init__(
        self, sealing: AuditSealStore, key: bytes, *, anchor: Path | None = None, mark: Path | None = None
    ) -> None:
        self._sealing = sealing
        self._key = key
        self._signer = CheckpointSigner(key)
        self._anchor = anchor
        self._mark = mark
        # The chain was recomputed up to here without a gap and without a problem.
        self._reached = 0
        self._busy = asyncio.Lock()

    async def stretch(self, after: int | None) -> VerifiedRange:
        """Verify the next few seals: about ``_STRETCH`` records, so that the work is bounded.

        Without ``after`` it starts where the last verification ended.
        """
        async with self._busy:
            problems, claims = _claims(self._signer, self._anchor, self._mark, ())
            newest = await self._sealing.newest() or START
            if after is None:
                start = await _verified_before(self._sealing, self._signer, self._mark) or START
                self._reached = max(self._reached, start.number) if self._reached <= newest.number else start.number
            else:
                found = START if after == 0 else await self._sealing.seal(after)
                if found is None:
                    problem = f"Seal {after} is missing."
                    return VerifiedRange(after, after, newest.number, newest.last_position, 0, (problem,))
                start = found
            return await self._from(start, newest, problems, claims)

    async def checkpoint(self) -> dict[str, Any]:
        """Return a signed checkpoint of the chain's end.

        Raises:
            SealingRefused: The chain contradicts this node's anchor.
        """
        newest = await self._sealing.newest() or START
        await require_anchor(self._anchor, newest, self._sealing.seal)
        return self._signer.signed(Checkpoint.of(newest))

    async def _from(
        self, start: AuditSeal, newest: AuditSeal, problems: list[str], claims: list["_Claim"]
    ) -> VerifiedRange:
        last, sealed = start, 0
        for seal in await self._sealing.seals_after(start.number, limit=_STRETCH):
            problems += await _seal_problems(self._sealing, self._key, last, seal)
            sealed += seal.record_count
            last = seal
            if sealed >= _STRETCH:
                break
        # Someone may have inserted a record before the first one.
        above = start.last_position if start.number else None
        outside = await self._sealing.outside_seals_between(above, last.last_position)
        problems += _slipped_in(outside, newest if newest.number > last.number else last)
        if last.number >= newest.number:
            problems += [messages for claim in claims if (messages := await _contradicts(self._sealing, claim, last))]
            if missing := await self._sealing.missing():
                problems.append(f"{missing} sealed records are missing.")
        await self._remember(start, last, problems)
        return VerifiedRange(
            start.number,
            last.number,
            max(newest.number, last.number),
            last.last_position,
            sealed,
            tuple(problems),
            first_mac=start.mac,
        )

    async def _remember(self, start: AuditSeal, last: AuditSeal, problems: list[str]) -> None:
        if problems:
            self._reached = min(self._reached, start.number)
        elif start.number <= self._reached <= last.number:
            self._reached = last.number
            if self._mark is not None and last.number:
                await in_thread(replace_file, self._mark, json.dumps(self._signer.signed(Checkpoint.of(last))))


class CheckpointExporter:
    """Appends each new checkpoint to ``file`` as a line, and posts it to ``url``."""

    def __init__(self, verifier: AuditVerifier, *, file: Path | None, url: str | None) -> None:
        self._verifier = verifier
        self._file = file
        self._url = url
        self._exported = 0

    async def run(self, every_seconds: float) -> None:
        """Export until cancelled. Failures are logged and retried."""
        if self._file is None and self._url is None:
            return
        while True:
            try:
                await self.export()
            except SealingRefused as denial:
                log.critical("audit.checkpoint_refused", reason=str(denial))
            except Exception:
                log.exception("audit.checkpoint_failed", remedy="It will be retried.")
            await asyncio.sleep(every_seconds)

    async def export(self) -> bool:
        """Export one checkpoint if the chain has a new seal. Returns whether it did."""
        checkpoint = await self._verifier.checkpoint()
        if checkpoint["number"] == self._exported:
            return False
        if self._file is not None:
            await in_thread(_append, self._file, checkpoint)
        if self._url is not None:
            await _post(self._url, checkpoint)
        self._exported = checkpoint["number"]
        return True


async def _post(url: str, checkpoint: dict[str, Any]) -> None:
    # Imported by the exporter only; `toolcrib audit verify` does not need it.
    from toolcrib.network.outbound import Outbound

    sent = {"Content-Type": "application/json"}
    body = json.dumps(checkpoint).encode()
    async with (
        asyncio.timeout(_POST_SECONDS),
        Outbound(OPERATOR_URLS) as http,
        http.request("POST", url, headers=sent, body=body) as reply,
    ):
        if not reply.ok:
            raise OutboundError(OutboundFailure.BROKEN, f"It answered with HTTP {reply.status}")


# The source of the claim, and the seal that it says must exist.
_Claim = tuple[str, AnchorNote]


def _claims(
    signer: CheckpointSigner, anchor: Path | None, mark: Path | None, checkpoints: Iterable[Checkpoint]
) -> tuple[list[str], list[_Claim]]:
    """Return the problems of the outside sources, and the seals that they say the chain must contain."""
    problems: list[str] = []
    claims: list[_Claim] = []
    try:
        noted = read_anchor(anchor)
    except UnreadableCheckpoint as error:
        problems.append(f"{SPOILED} Reason: {error}")
    else:
        claims += [("", noted)] if noted and noted.number else []
    try:
        verified = _read_mark(signer, mark)
    except UnreadableCheckpoint as error:
        problems.append(f"The stored result of the last verification is invalid: {error}")
    else:
        claims += [("The last verification: ", AnchorNote(verified.number, verified.mac.hex()))] if verified else []
    claims += [
        (f"Checkpoint of {point.at:%Y-%m-%d %H:%M:%S}: ", AnchorNote(point.number, point.mac.hex()))
        for point in checkpoints
        if point.number
    ]
    return problems, claims


def _read_mark(signer: CheckpointSigner, mark: Path | None) -> Checkpoint | None:
    return signer.read(mark.read_text()) if mark is not None and mark.exists() else None


async def _verified_before(sealing: AuditSealStore, signer: CheckpointSigner, mark: Path | None) -> AuditSeal | None:
    """Return the seal up to which the chain was verified, or None if everything must be recomputed."""
    try:
        verified = _read_mark(signer, mark)
    except UnreadableCheckpoint:
        return None
    seal = await sealing.seal(verified.number) if verified else None
    return seal if seal and verified and hmac.compare_digest(seal.mac, verified.mac) else None


async def _contradicts(sealing: AuditSealStore, claim: _Claim, last: AuditSeal) -> str | None:
    whose, noted = claim
    problem = await contradiction(noted, last, sealing.seal)
    return f"{whose}{problem}" if problem else None


async def _restores(sealing: AuditSealStore, signer: CheckpointSigner) -> tuple[tuple[str, ...], list[str]]:
    """Return the accepted restores, and the restore records that were not signed with the key."""
    messages: list[str] = []
    forged: list[str] = []
    for at, given in await sealing.server_records(ACCEPT_RESTORE):
        by = given.get("by") if isinstance(given, dict) else None
        statement = {name: value for name, value in given.items() if name != "by"} if isinstance(given, dict) else None
        if statement is None or not signer.is_restore(statement):
            forged.append(f"The restore recorded at {at:%Y-%m-%d %H:%M:%S} is not signed with the audit key.")
            continue
        before, after = statement["before"]["number"], statement["after"]["number"]
        messages.append(f"{at:%Y-%m-%d %H:%M:%S}: {by} accepted a restore, from seal {before} back to seal {after}.")
    return tuple(messages), forged


async def _seal_problems(sealing: AuditSealStore, key: bytes, last: AuditSeal, seal: AuditSeal) -> Iterable[str]:
    if seal.number != last.number + 1:
        return [f"Seal {last.number + 1} is missing; the next one is {seal.number}."]
    records = await sealing.records_in_range(seal.positions)
    missing = sorted(set(members(seal.positions)) - {record.position for record in records})
    if missing:
        return [f"Seal {seal.number}: records are missing: {_listed(runs(missing))}."]
    if seal.record_count != len(records):
        return [f"Seal {seal.number} covers {seal.record_count} records, but {len(records)} exist."]
    # A seal of a busy hour has thousands of records.
    expected = await in_thread(signed_seal, key, last, records, seal.positions, seal.gaps, seal.last_position)
    if not hmac.compare_digest(expected.mac, seal.mac):
        return [
            f"Seal {seal.number} does not match: a record in {_listed(seal.positions)}, the seal or the one before it "
            "was changed, or the audit key differs."
        ]
    return []


def _among_sealed(outside: Iterable[int], newest: AuditSeal) -> list[int]:
    waiting = {*members(newest.gaps)}
    return [position for position in outside if position <= newest.last_position and position not in waiting]


def _slipped_in(outside: Iterable[int], newest: AuditSeal) -> Iterable[str]:
    found = _among_sealed(outside, newest)
    return [f"Unsealed records between sealed ones: {_listed(runs(found))}."] if found else []


def _listed(ranges: Iterable[range]) -> str:
    return ", ".join(str(r.start) if len(r) == 1 else f"{r.start}–{r.stop - 1}" for r in ranges)


def _append(file: Path, checkpoint: dict[str, Any]) -> None:
    with file.open("a") as opened:
        opened.write(json.dumps(checkpoint) + "\n")
