"""One tree of errors. Each has a stable code, says the fact, the value and the remedy, and knows no HTTP.

ToolcribError
├── ToolFailed                 the call ran, or could have, and the caller should know why it failed
│   ├── BadArguments           a field is wrong; `fields` says which and what was expected
│   ├── NotFound
│   ├── Conflict               someone or something is in the way
│   │   ├── BaseChanged        the tree moved on since the change was planned; plan again
│   │   └── Outdated           the file is not what the caller last read
│   ├── LinkInTheWay           a symbolic link inside the tree
│   ├── BadFrontmatter         the YAML at the head of a document cannot be read
│   ├── TooLarge
│   │   └── OverWriteLimit     more than this caller may write at once
│   ├── TimedOut
│   └── Interrupted            the call was cancelled, or its server stopped under it
├── Refused                    the gate said no
│   ├── NotPermitted           no rule allows it
│   ├── ApprovalRequired       a person must be asked, and nobody can be here
│   ├── Denied                 a person was asked and said no
│   ├── NotDecided             a person was asked and nobody decided in time, or it was withdrawn
│   └── Violation              the sandbox's border was touched; counted against a run
│       ├── OutsideMount
│       ├── ProtectedName
│       └── ReadOnlyMount
├── ProviderError              a model provider refused, failed or broke off; `fault` says which
├── Unauthenticated            we do not know who this is
├── Forbidden                  we know, and they do not belong here
├── Superseded                 another node or a later epoch owns this now
├── NotOnDisk                  committed, and the disk did not take it yet
└── Misconfigured              the operator must mend something before we start
"""

from collections.abc import Mapping
from enum import StrEnum


class ToolcribError(Exception):
    """Base of all our errors."""

    code = "INTERNAL_ERROR"

    def __init__(self, message: str, *, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fields = dict(fields or {})


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
    """

    drifted = False


class Outdated(Conflict):
    pass


class LinkInTheWay(ToolFailed):
    code = "VALIDATION_ERROR"


class BadFrontmatter(ToolFailed):
    code = "VALIDATION_ERROR"


class TooLarge(ToolFailed):
    code = "TOO_LARGE"


class OverWriteLimit(TooLarge):
    pass


class TimedOut(ToolFailed):
    code = "TIMED_OUT"


class Interrupted(ToolFailed):
    code = "INTERRUPTED"


class Refused(ToolcribError):
    code = "NOT_PERMITTED"


class NotPermitted(Refused):
    code = "NOT_PERMITTED"


class ApprovalRequired(Refused):
    code = "APPROVAL_REQUIRED"


class Denied(Refused):
    code = "APPROVAL_DENIED"


class NotDecided(Refused):
    code = "APPROVAL_EXPIRED"


class Violation(Refused):
    """A call touched the sandbox's border. ``VALIDATION_ERROR`` is its form in the workspace toolset."""

    code = "VALIDATION_ERROR"


class OutsideMount(Violation):
    pass


class ProtectedName(Violation):
    pass


class ReadOnlyMount(Violation):
    pass


class ProviderFault(StrEnum):
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
        fault: ProviderFault = ProviderFault.REQUEST,
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


class NotOnDisk(ToolcribError):
    code = "NOT_ON_DISK"


class Misconfigured(ToolcribError):
    code = "MISCONFIGURED"


def described(error: ToolcribError) -> str:
    """The error as one line for a reader who sees no fields."""
    return error.message if not error.fields else "; ".join(error.fields.values())
