"""Requests with an ``Idempotency-Key``: claimed by one attempt at a time, and kept with their answers for a day."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from toolcrib.core.idempotency import EffectKind, RequestClaim
from toolcrib.core.ids import ProcessId, UserId, new_id
from toolcrib.storage.database import Database

# Of one API key, or of one user who is logged in: an agent cannot use up those of its owner.
MOST_KEYS: Final = 10_000


class ClaimState(StrEnum):
    """What was known of a key when it was claimed."""

    NEW = "new"
    # An earlier attempt is lost. It committed nothing, or something.
    RETRY = "retry"
    COMMITTED = "committed"
    RUNNING = "running"
    DONE = "done"
    REUSED = "reused"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ClaimedKey:
    """A claim, what was known before it, and the stored answer if there is one."""

    claim: RequestClaim
    state: ClaimState
    answer: bytes | None


class IdempotencyKeyStore:
    """Queries on idempotency keys. Each is one statement, outside the transactions of the request itself."""

    def __init__(self, database: Database, *, process_id: ProcessId, lease: float, most: int = MOST_KEYS) -> None:
        self._database = database
        self._process_id = process_id
        self._lease = lease
        self._most = most

    async def claim(
        self,
        user_id: UserId,
        caller_id: UUID,
        *,
        token_version: int | None,
        key_hash: bytes,
        request_hashes: Sequence[bytes],
        kind: EffectKind,
        at_work: bool,
    ) -> ClaimedKey:
        """Claim a key for this process.

        Args:
            request_hashes: The first is stored. The request is the same as before if any of them was.
            at_work: Another attempt is at work in this process.

        Raises:
            Unauthenticated: The token was revoked.
        """
        async with self._database.connection() as connection:
            state, effect_id, attempt, answer = await connection.returned_row(
                "select * from toolcrib.claim_idempotency_key(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    user_id,
                    token_version,
                    caller_id,
                    key_hash,
                    list(request_hashes),
                    new_id(),
                    self._process_id,
                    self._lease,
                    self._most,
                    at_work,
                ),
            )
        state = ClaimState(state)
        claim = RequestClaim(
            user_id,
            caller_id,
            key_hash,
            kind,
            effect_id,
            attempt,
            is_retry=state in (ClaimState.RETRY, ClaimState.COMMITTED, ClaimState.DONE),
            was_answered=state is ClaimState.DONE,
        )
        return ClaimedKey(claim, state, answer)

    async def save(self, claim: RequestClaim, answer: bytes | None) -> bool:
        """Store the answer of an attempt; None if it is too large. Returns False if another attempt has begun."""
        return await self._end(claim, "save", answer=answer)

    async def release(self, claim: RequestClaim) -> bool:
        """Forget a key whose request took no effect. Returns False, and keeps it, if something was committed."""
        return await self._end(claim, "release")

    async def abandon(self, claim: RequestClaim) -> bool:
        """Let the next attempt find out what became of this one. Returns False if it has begun."""
        return await self._end(claim, "abandon")

    async def renew(self, claim: RequestClaim) -> bool:
        """Give the effect another id, after an attempt that ended without one. Returns False if another has begun."""
        next_effect = new_id()
        if not await self._end(claim, "renew", next_effect=next_effect):
            return False
        claim.effect_id = next_effect
        return True

    async def _end(
        self, claim: RequestClaim, action: str, *, answer: bytes | None = None, next_effect: UUID | None = None
    ) -> bool:
        async with self._database.connection() as connection:
            row = await connection.returned_row(
                "select toolcrib.end_idempotency_attempt(%s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    claim.user_id,
                    claim.caller_id,
                    claim.key_hash,
                    claim.effect_id,
                    claim.attempt,
                    action,
                    answer,
                    next_effect,
                ),
            )
        return bool(row[0])
