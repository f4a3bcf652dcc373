"""What a provider's refusal means, and what can be done about it. Knows no SDK."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from toolcrib.domain.errors import ProviderError, ProviderFault

MAX_BODY = 2_000

# Worth another try: nothing is wrong with the request itself.
PASSING: Final = frozenset(
    {ProviderFault.RATE_LIMIT, ProviderFault.OVERLOADED, ProviderFault.UNAVAILABLE, ProviderFault.BROKEN_STREAM}
)

_REMEDIES: Final[Mapping[ProviderFault, str]] = {
    ProviderFault.CREDENTIALS: "Check the key that is stored for this provider, and whether it may use this model.",
    ProviderFault.QUOTA: "The account has no credit left; add some at the provider.",
    ProviderFault.RATE_LIMIT: "Wait a little, then try again.",
    ProviderFault.OVERLOADED: "The provider is overloaded; try again later or use another model.",
    ProviderFault.UNAVAILABLE: "The provider cannot be reached or has a fault; try again later.",
    ProviderFault.BROKEN_STREAM: "Try again.",
    ProviderFault.TIMEOUT: "Try again, or allow a turn more time.",
    ProviderFault.CONTEXT_TOO_LONG: "Shorten the conversation or use a model with a larger context window.",
    ProviderFault.TOOLS_UNSUPPORTED: "Use this model without tools, or another model.",
    ProviderFault.UNKNOWN_MODEL: "Choose one of the models that the provider lists.",
    ProviderFault.REQUEST: "",
}

# As the providers and the servers that imitate them word it; all lower case.
_TOO_LONG: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "context size",
    "exceed_context_size",
    "prompt is too long",
    "model_max_prompt_tokens_exceeded",
    "request_too_large",
)
_NO_TOOLS: Final = ("not support tools", "not support tool", "support tool use", "support function calling")
_NO_CREDIT: Final = ("insufficient_quota", "credit balance is too low", "billing")
_NO_MODEL: Final = (
    "model_not_found",
    "model not found",
    "model_not_supported",
    "model:",
    "does not exist",
    "try pulling",
)


def refused(
    status: int, body: str, headers: Mapping[str, str] | None = None, *, secret: str = "", now: float | None = None
) -> ProviderError:
    """The error for an HTTP answer that is no success. A secret that the answer repeats is blotted out."""
    # Long enough not to blot out ordinary words.
    shown = body.replace(secret, "…") if len(secret) >= 8 else body
    fault = _fault(status, body.lower())
    return ProviderError(
        status,
        shown if len(shown) <= MAX_BODY else shown[:MAX_BODY] + "…",
        fault=fault,
        remedy=_REMEDIES[fault],
        retry_after=_retry_after(headers or {}, time.time() if now is None else now),
    )


def broken(what: str, *, fault: ProviderFault = ProviderFault.BROKEN_STREAM) -> ProviderError:
    """The error for an answer that did not come, or not whole."""
    return ProviderError(0, what, fault=fault, remedy=_REMEDIES[fault])


def _fault(status: int, body: str) -> ProviderFault:
    match status:
        case 401 | 403:
            return ProviderFault.CREDENTIALS
        case 402:
            return ProviderFault.QUOTA
        case 429:
            return ProviderFault.QUOTA if _says(body, _NO_CREDIT) else ProviderFault.RATE_LIMIT
        case 404 if _says(body, _NO_MODEL):
            return ProviderFault.UNKNOWN_MODEL
        case 503 | 529:
            return ProviderFault.OVERLOADED
        case 408 | 409 | 425:
            return ProviderFault.UNAVAILABLE
        case 413:
            return ProviderFault.CONTEXT_TOO_LONG
    # Servers that imitate the great ones tell a full context as 400, 422 or even 500.
    if _says(body, _TOO_LONG):
        return ProviderFault.CONTEXT_TOO_LONG
    if status >= 500:
        return ProviderFault.UNAVAILABLE
    if _says(body, _NO_TOOLS):
        return ProviderFault.TOOLS_UNSUPPORTED
    if _says(body, _NO_CREDIT):
        return ProviderFault.QUOTA
    if _says(body, ("model_not_found", "model_not_supported")):
        return ProviderFault.UNKNOWN_MODEL
    return ProviderFault.REQUEST


def _says(body: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in body for phrase in phrases)


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds, from `retry-after-ms` or `retry-after` as a number or a date; None if it says nothing sensible."""
    found = {name.lower(): value for name, value in headers.items() if name.lower().startswith("retry-after")}
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(found[name]) * scale
        except (KeyError, ValueError):
            continue
        # Also refuses NaN.
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(found["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, OverflowError):
        return None
