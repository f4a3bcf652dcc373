"""The claim of a request on its idempotency key: the id that its effect gets, so that a retry finds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import UserId, new_id


class EffectKind(StrEnum):
    """What a request creates under the id of its claim."""

    CALL = "call"
    RUN = "run"
    SESSION = "session"
    WORKSPACE = "workspace"
    AGENT = "agent"
    SCHEDULE = "schedule"
    MCP_SERVER = "mcp_server"
    # Something without such an id, in transactions of this process.
    OTHER = "other"
    # The same, and the answer has a secret that is shown once.
    SHOWN_ONCE = "shown_once"
    # Something that another node may do.
    ELSEWHERE = "elsewhere"


@dataclass(slots=True)
class RequestClaim:
    """A request that is answered under an idempotency key.

    Attributes:
        caller_id: The API key that was used, or the user who is logged in.
        effect_id: The id of what the request creates. All attempts have the same.
        attempt: Fences off the attempts before: they can commit nothing any more.
        is_retry: An earlier attempt was made, and it is not known how it ended.
        was_answered: That attempt was answered, and the answer was too large to keep.
        streamed: The answer of a request that was answered by a stream: its status and its body.
        is_open: The request is being answered.
        role: What the request needed in its workspace, as far as its transactions have asked.
    """

    user_id: UserId
    caller_id: UUID
    key_hash: bytes
    kind: EffectKind
    effect_id: UUID
    attempt: int = 1
    is_retry: bool = False
    was_answered: bool = False
    streamed: tuple[int, bytes] | None = None
    is_open: bool = True
    role: WorkspaceRole = WorkspaceRole.VIEWER
    _is_taken: bool = False

    def take(self) -> UUID:
        """Return the effect's id, and a new one if it was taken already."""
        if self._is_taken:
            return new_id()
        self._is_taken = True
        return self.effect_id

    def note_role(self, needs: WorkspaceRole) -> None:
        """Note a role that a transaction of the request needs."""
        if not self.role.covers(needs):
            self.role = needs

    def part_id(self, number: int, *, interrupted: int = 0) -> UUID:
        """Return the id of one part of the effect, the same for all attempts.

        Args:
            interrupted: How many calls of this part ended without an effect, and have used up their ids.
        """
        return UUID(int=self.effect_id.int ^ (number + 1) ^ (interrupted << 32))


_current: ContextVar[RequestClaim | None] = ContextVar("idempotency_claim", default=None)


@contextmanager
def claimed_by(claim: RequestClaim) -> Iterator[None]:
    """Make this the claim of what runs within."""
    token = _current.set(claim)
    try:
        yield
    finally:
        # Tasks that the request started, and that go on, have a copy of the context.
        claim.is_open = False
        _current.reset(token)


def current_claim() -> RequestClaim | None:
    """Return the claim of the request that is being answered, if it has an idempotency key."""
    claim = _current.get()
    return claim if claim is not None and claim.is_open else None


def effect_id(kind: EffectKind) -> UUID:
    """Return an id for something new: that of the request's claim if it is what the request creates."""
    claim = current_claim()
    return claim.take() if claim is not None and claim.kind is kind else new_id()
