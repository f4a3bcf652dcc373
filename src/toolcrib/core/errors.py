"""The errors of Toolcrib. Each has a stable code and a message with the fact, the value and the remedy.

ToolcribError
├── ToolFailed                 the call ran, or could have; the caller learns why it failed
│   ├── BadArguments           a field is wrong; `fields` names it and what was expected
│   ├── NotFound
│   ├── Conflict               the current state prevents the call
│   │   ├── BaseChanged        the tree changed since the change was planned; plan again
│   │   └── PreconditionFailed  the file is not what the caller last read
│   ├── SymlinkNotFollowed     a symbolic link inside the tree
│   ├── InvalidFrontmatter     the YAML at the start of a document cannot be parsed
│   ├── SchemaMismatch         a document does not match its schema
│   ├── InvalidTransition      the workflow has no such transition
│   ├── TooLarge
│   │   ├── WriteLimitExceeded  more than this caller may write at once
│   │   └── TooCostly          more work than one call may cause
│   │       ├── TimeLimitExceeded    it computes for too long
│   │       └── MemoryLimitExceeded  it needs too much memory
│   ├── WorkerFailed           a process of this server failed; it says nothing about the call
│   │   ├── WorkerDied         it ended in the middle of its work
│   │   └── WorkerAnswerLost   what it computed could not be sent; a defect
│   ├── OutOfResources         this server has no disk space, descriptors or memory left
│   ├── Overloaded             too many calls wait already; retry in a moment
│   │   └── DatabaseBusy       a lock in the database was not free in time
│   ├── MayHaveBegun           the call began, and could not end because of overload or a quarantine
│   ├── Quarantined            the workspace cannot be used until its recovery after a crash succeeds
│   ├── TimedOut
│   └── Interrupted            the call was cancelled, or its server stopped
├── CallDenied                 the gate denied the call
│   ├── PermissionDenied       no rule allows it
│   ├── ApprovalRequired       a person must approve, and none can be asked here
│   ├── ApprovalRejected       a person rejected it
│   ├── NotDecided             no person decided in time, or the call was withdrawn
│   ├── GivenUp                running it ended the server too often, so it is not retried
│   └── SandboxViolation       the call left the sandbox's bounds; counted against a run
│       ├── PathOutsideMount
│       ├── ProtectedPath
│       └── ReadOnlyMount
├── ProviderError              a model provider rejected the request, failed or disconnected; see `kind`
├── UnfinishedAnswer           what the model sent is no answer
│   ├── OutputLimit            it ended at the limit of its output
│   ├── AnswerRefused          the provider or the model refused to answer
│   └── EmptyAnswer            it has neither text nor calls
├── Unauthenticated            the caller's identity is unknown
├── Forbidden                  the caller is known and has no access
├── Superseded                 another node or a later epoch owns this now
│   └── HomeMoved              another node has the workspace's files
├── DatabaseUnavailable        the database does not answer; retry in a moment
├── HomeUnavailable            the node with the workspace's files does not answer; retry in a moment
├── ApplyFailed                committed, but not yet written to disk
├── IdempotencyConflict        the request's `Idempotency-Key` was used before
│   ├── KeyReused              for another request
│   ├── KeyInUse               its first request is being answered
│   ├── AnswerNotKept          it took effect, and the answer is lost
│   └── EffectUnknown          its server stopped, and whether it took effect is not known
├── NotReady                   this server does not take requests now; `fields` has the state of each check
└── Misconfigured              the operator must fix the configuration before the server starts
"""

from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Final

# A request with thousands of wrong fields does not get thousands of messages.
MOST_FIELDS: Final = 20
_MOST_OF_A_NAME: Final = 200
_MOST_WORDS: Final = 1_000
_LONGEST_MESSAGE: Final = 20_000


class ToolcribError(Exception):
    """Base of all Toolcrib errors."""

    code = "INTERNAL_ERROR"
    # Seconds after which the same request may succeed, where that is known.
    retry_after: float | None = None

    def __init__(self, message: str, *, fields: Mapping[str, str] | None = None) -> None:
        message = _short(message, _LONGEST_MESSAGE)
        super().__init__(message)
        self.message = message
        self.fields = few(fields or {})


class ToolFailed(ToolcribError):
    """A tool could not do what was requested. The message explains to the model why, and what to do."""

    code = "TOOL_FAILED"


class BadArguments(ToolFailed):
    """Arguments are wrong. ``fields`` says for each what was expected."""

    code = "VALIDATION_ERROR"

    def __init__(self, fields: Mapping[str, str], message: str = "Validation failed") -> None:
        super().__init__(message, fields=fields)


class NotFound(ToolFailed):
    code = "NOT_FOUND"


class Conflict(ToolFailed):
    code = "CONFLICT"


class BaseChanged(Conflict):
    """Raised at commit. The change can be planned again on the new base.

    Attributes:
        drifted: The disk changed, not the history. Reconcile before planning again.
        unlike_shown: A content differs from what a person approved. This change set can never be committed.
    """

    drifted = False
    unlike_shown = False


class PreconditionFailed(Conflict):
    pass


class SymlinkNotFollowed(ToolFailed):
    code = "VALIDATION_ERROR"


class InvalidFrontmatter(ToolFailed):
    code = "VALIDATION_ERROR"


class SchemaMismatch(ToolFailed):
    code = "VALIDATION_ERROR"


class InvalidTransition(ToolFailed):
    """The workflow has no such transition. ``allowed`` are the possible next steps."""

    code = "VALIDATION_ERROR"
    allowed: tuple[str, ...] = ()


class TooLarge(ToolFailed):
    code = "TOO_LARGE"


class WriteLimitExceeded(TooLarge):
    pass


class TooCostly(TooLarge):
    pass


class TimeLimitExceeded(TooCostly):
    pass


class MemoryLimitExceeded(TooCostly):
    pass


class WorkerFailed(ToolFailed):
    """Our own machinery failed. Never shown as a fact about a file: nothing is known about it."""

    code = "UNAVAILABLE"


class WorkerDied(WorkerFailed):
    pass


class WorkerAnswerLost(WorkerFailed):
    code = "INTERNAL_ERROR"


class OutOfResources(ToolFailed):
    """Our own machine failed. Never shown as a fact about a file."""

    code = "UNAVAILABLE"


class Overloaded(ToolFailed):
    """Nothing was begun, so that the same call can be repeated."""

    code = "OVERLOADED"
    retry_after = 1.0


class DatabaseBusy(Overloaded):
    """A lock was not free in time. The statement's transaction did nothing."""


class MayHaveBegun(ToolFailed):
    """Clients repeat a call after ``Overloaded`` or ``Quarantined`` by themselves, and never after this."""

    code = "UNAVAILABLE"


class Quarantined(ToolFailed):
    """The recovery of a workspace failed. ``reason`` is for a person, without paths of the server's machine."""

    code = "QUARANTINED"

    def __init__(self, reason: str, *, retry_after: float) -> None:
        super().__init__(
            "This workspace is quarantined: the server stopped in the middle of a change, and cannot finish it on disk "
            f"({reason}). Ask the operator to make the workspace's directory writable, with enough free space. It is "
            f"tried again in {retry_after:.0f} s."
        )
        self.retry_after = retry_after


class TimedOut(ToolFailed):
    code = "TIMED_OUT"


class Interrupted(ToolFailed):
    code = "INTERRUPTED"


class CallDenied(ToolcribError):
    code = "NOT_PERMITTED"


class PermissionDenied(CallDenied):
    code = "NOT_PERMITTED"


class ApprovalRequired(CallDenied):
    code = "APPROVAL_REQUIRED"


class ApprovalRejected(CallDenied):
    code = "APPROVAL_DENIED"


class NotDecided(CallDenied):
    code = "APPROVAL_EXPIRED"


class GivenUp(CallDenied):
    code = "GIVEN_UP"

    @classmethod
    def after(cls, attempts: int) -> "GivenUp":
        return cls(
            f"Failed after {attempts} attempts, each of which stopped the server. It is not retried. Check the server "
            "log before you repeat it."
        )


class SandboxViolation(CallDenied):
    """A call left the sandbox's bounds. ``VALIDATION_ERROR`` is its code in the workspace toolset."""

    code = "VALIDATION_ERROR"


class PathOutsideMount(SandboxViolation):
    pass


class ProtectedPath(SandboxViolation):
    pass


class ReadOnlyMount(SandboxViolation):
    pass


class ProviderErrorKind(StrEnum):
    """The kind of a provider failure, as far as the reaction to it differs."""

    CREDENTIALS = "credentials"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "unavailable"
    BROKEN_STREAM = "broken_stream"
    TIMEOUT = "timeout"
    CONTEXT_TOO_LONG = "context_too_long"
    TOOLS_UNSUPPORTED = "tools_unsupported"
    UNKNOWN_MODEL = "unknown_model"
    REQUEST = "request"


class ProviderError(ToolcribError):
    """A provider failed. ``status`` and ``body`` are its response; status 0 if there was no HTTP response."""

    code = "PROVIDER_ERROR"

    def __init__(
        self,
        status: int,
        body: str,
        *,
        kind: ProviderErrorKind = ProviderErrorKind.REQUEST,
        remedy: str = "",
        retry_after: float | None = None,
    ) -> None:
        answered = f" ({status})" if status else ""
        super().__init__(f"Provider error{answered}: {body}{' ' if remedy else ''}{remedy}")
        self.status = status
        self.body = body
        self.kind = kind
        self.retry_after = retry_after


class UnfinishedAnswer(ToolcribError):
    """The model stopped, and what it has sent is no answer."""

    code = "PROVIDER_ERROR"


class OutputLimit(UnfinishedAnswer):
    code = "OUTPUT_LIMIT"


class AnswerRefused(UnfinishedAnswer):
    code = "ANSWER_REFUSED"


class EmptyAnswer(UnfinishedAnswer):
    code = "EMPTY_ANSWER"


class Unauthenticated(ToolcribError):
    code = "INVALID_TOKEN"


class Forbidden(ToolcribError):
    code = "FORBIDDEN"


class Superseded(ToolcribError):
    code = "SUPERSEDED"


class HomeMoved(Superseded):
    """Another node has the workspace's files. Nothing was committed here.

    Attributes:
        has_begun: The tool ran before this was noticed, so it may have acted outside the workspace.
    """

    has_begun = False


class DatabaseUnavailable(ToolcribError):
    code = "UNAVAILABLE"
    retry_after = 1.0


class HomeUnavailable(ToolcribError):
    code = "UNAVAILABLE"


class ApplyFailed(ToolcribError):
    code = "NOT_ON_DISK"


class IdempotencyConflict(ToolcribError):
    code = "CONFLICT"


class KeyReused(IdempotencyConflict):
    code = "IDEMPOTENCY_KEY_REUSED"


class KeyInUse(IdempotencyConflict):
    code = "IDEMPOTENCY_KEY_IN_USE"
    retry_after = 1.0


class AnswerNotKept(IdempotencyConflict):
    code = "IDEMPOTENCY_ANSWER_LOST"


class EffectUnknown(IdempotencyConflict):
    code = "IDEMPOTENCY_EFFECT_UNKNOWN"


class NotReady(ToolcribError):
    code = "UNAVAILABLE"
    retry_after = 5.0


class Misconfigured(ToolcribError):
    code = "MISCONFIGURED"


def error_text(error: ToolcribError) -> str:
    """Render the error as one line for a reader who does not see fields."""
    return error.message if not error.fields else "; ".join(error.fields.values())


def few(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the first wrong fields, shortened, and the number of the others."""
    shortened = {
        _short(name, _MOST_OF_A_NAME): _short(fields[name], _MOST_WORDS) for name in islice(fields, MOST_FIELDS)
    }
    if len(fields) > MOST_FIELDS:
        shortened["…"] = f"{len(fields) - MOST_FIELDS:,} more fields are invalid."
    return shortened


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
