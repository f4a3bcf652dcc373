"""One tree of errors. Each has a stable code, says the fact, the value and the remedy, and knows no HTTP.

ToolcribError
├── ToolFailed                 the call ran, or could have, and the caller should know why it failed
│   ├── BadArguments           a field is wrong; `fields` says which and what was expected
│   ├── NotFound
│   ├── Conflict               someone or something is in the way
│   │   ├── BaseChanged        the tree moved on since the change was planned; plan again
│   │   └── PreconditionFailed  the file is not what the caller last read
│   ├── SymlinkNotFollowed     a symbolic link inside the tree
│   ├── InvalidFrontmatter     the YAML at the head of a document cannot be read
│   ├── SchemaMismatch         a document does not fit its schema
│   ├── InvalidTransition      a workflow does not lead from where it is to there
│   ├── TooLarge
│   │   ├── WriteLimitExceeded  more than this caller may write at once
│   │   └── TooCostly          more work than is done for one call
│   ├── Overloaded             too many wait already; come back in a moment
│   ├── TimedOut
│   └── Interrupted            the call was cancelled, or its server stopped under it
├── CallDenied                 the gate said no
│   ├── PermissionDenied       no rule allows it
│   ├── ApprovalRequired       a person must be asked, and nobody can be here
│   ├── ApprovalRejected       a person was asked and said no
│   ├── NotDecided             a person was asked and nobody decided in time, or it was withdrawn
│   ├── GivenUp                carrying it out ended the server so often that it is not tried again
│   └── SandboxViolation       the sandbox's border was touched; counted against a run
│       ├── PathOutsideMount
│       ├── ProtectedPath
│       └── ReadOnlyMount
├── ProviderError              a model provider refused, failed or broke off; `fault` says which
├── Unauthenticated            we do not know who this is
├── Forbidden                  we know, and they do not belong here
├── Superseded                 another node or a later epoch owns this now
├── ApplyFailed                committed, and the disk did not take it yet
└── Misconfigured              the operator must mend something before we start
"""

from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Final

# Whoever sends thousands of wrong fields does not get thousands back.
MOST_FIELDS: Final = 20
_MOST_OF_A_NAME: Final = 200
_MOST_WORDS: Final = 1_000
_LONGEST_MESSAGE: Final = 20_000


class ToolcribError(Exception):
    """Base of all our errors."""

    code = "INTERNAL_ERROR"

    def __init__(self, message: str, *, fields: Mapping[str, str] | None = None) -> None:
        message = _short(message, _LONGEST_MESSAGE)
        super().__init__(message)
        self.message = message
        self.fields = few(fields or {})


class ToolFailed(ToolcribError):
    """A tool could not do what it was asked; the model is told why, in words that it can act on."""

    code = "TOOL_FAILED"


class BadArguments(ToolFailed):
    code = "VALIDATION_ERROR"

    def __init__(self, fields: Mapping[str, str], message: str = "Validation failed") -> None:
        super().__init__(message, fields=fields)


class NotFound(ToolFailed):
    code = "NOT_FOUND"


class Conflict(ToolFailed):
    code = "CONFLICT"


class BaseChanged(Conflict):
    """Raised at commit; whoever planned the change may plan it again on the new base.

    ``drifted``: it was the disk that moved on, not the history; what happened there is to be booked first.
    ``unlike_shown``: a content is not the one that a person was shown; this very set can never be committed.
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
    """``allowed`` are the steps that may follow instead."""

    code = "VALIDATION_ERROR"
    allowed: tuple[str, ...] = ()


class TooLarge(ToolFailed):
    code = "TOO_LARGE"


class WriteLimitExceeded(TooLarge):
    pass


class TooCostly(TooLarge):
    pass


class Overloaded(ToolFailed):
    code = "UNAVAILABLE"


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
            f"Given up after {attempts} attempts that ended the server. It is not tried again: find out what it does "
            "to the server before asking for it anew."
        )


class SandboxViolation(CallDenied):
    """A call touched the sandbox's border. ``VALIDATION_ERROR`` is its form in the workspace toolset."""

    code = "VALIDATION_ERROR"


class PathOutsideMount(SandboxViolation):
    pass


class ProtectedPath(SandboxViolation):
    pass


class ReadOnlyMount(SandboxViolation):
    pass


class ProviderErrorKind(StrEnum):
    """What kind of failure a provider had, as far as it decides what can be done about it."""

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
    """``status`` and ``body`` are what the provider answered; status 0 if it did not answer in HTTP."""

    code = "PROVIDER_ERROR"

    def __init__(
        self,
        status: int,
        body: str,
        *,
        fault: ProviderErrorKind = ProviderErrorKind.REQUEST,
        remedy: str = "",
        retry_after: float | None = None,
    ) -> None:
        answered = f" ({status})" if status else ""
        super().__init__(f"Provider error{answered}: {body}{' ' if remedy else ''}{remedy}")
        self.status = status
        self.body = body
        self.fault = fault
        self.retry_after = retry_after


class Unauthenticated(ToolcribError):
    code = "INVALID_TOKEN"


class Forbidden(ToolcribError):
    code = "FORBIDDEN"


class Superseded(ToolcribError):
    code = "SUPERSEDED"


class ApplyFailed(ToolcribError):
    code = "NOT_ON_DISK"


class Misconfigured(ToolcribError):
    code = "MISCONFIGURED"


def error_text(error: ToolcribError) -> str:
    """The error as one line for a reader who sees no fields."""
    return error.message if not error.fields else "; ".join(error.fields.values())


def few(fields: Mapping[str, str]) -> dict[str, str]:
    """The first of wrong fields, none of them endless, and how many more there are."""
    told = {_short(name, _MOST_OF_A_NAME): _short(fields[name], _MOST_WORDS) for name in islice(fields, MOST_FIELDS)}
    if len(fields) > MOST_FIELDS:
        told["…"] = f"{len(fields) - MOST_FIELDS:,} more fields are wrong."
    return told


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
