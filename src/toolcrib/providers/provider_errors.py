"""Classifies the errors of providers and says what to do about them. Independent of the SDKs."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from toolcrib.core.errors import ProviderError, ProviderErrorKind

MAX_BODY = 2_000

# A retry may succeed: nothing is wrong with the request itself.
PASSING: Final = frozenset(
    {
        ProviderErrorKind.RATE_LIMIT,
        ProviderErrorKind.OVERLOADED,
        ProviderErrorKind.UNAVAILABLE,
        ProviderErrorKind.BROKEN_STREAM,
    }
)

_REMEDIES: Final[Mapping[ProviderErrorKind, str]] = {
    ProviderErrorKind.CREDENTIALS: "Check the stored API key and whether it has access to this model.",
    ProviderErrorKind.QUOTA: "The account has no credit left; add credit at the provider.",
    ProviderErrorKind.RATE_LIMIT: "Wait a little, then try again.",
    ProviderErrorKind.OVERLOADED: "The provider is overloaded; try again later or use another model.",
    ProviderErrorKind.UNAVAILABLE: "The provider is unavailable; try again later.",
    ProviderErrorKind.BROKEN_STREAM: "Try again.",
    ProviderErrorKind.TIMEOUT: "Try again, or increase the turn timeout.",
    ProviderErrorKind.CONTEXT_TOO_LONG: "Shorten the conversation or use a model with a larger context window.",
    ProviderErrorKind.TOOLS_UNSUPPORTED: "Use this model without tools, or another model.",
    ProviderErrorKind.UNKNOWN_MODEL: "Choose one of the models that the provider lists.",
    ProviderErrorKind.REQUEST: "",
}

# The wording of providers and of servers that imitate them; lower case.
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


def response_error(
    status: int, body: str, headers: Mapping[str, str] | None = None, *, secret: str = "", now: float | None = None
) -> ProviderError:
    """Return the error for an HTTP response without success. A secret that the response repeats is masked."""
    # Long enough not to mask ordinary words.
    shown = body.replace(secret, "…") if len(secret) >= 8 else body
    kind = _error_kind(status, body.lower())
    return ProviderError(
        status,
        shown if len(shown) <= MAX_BODY else shown[:MAX_BODY] + "…",
        kind=kind,
        remedy=_REMEDIES[kind],
        retry_after=_retry_after(headers or {}, time.time() if now is None else now),
    )


def stream_error(what: str, *, kind: ProviderErrorKind = ProviderErrorKind.BROKEN_STREAM) -> ProviderError:
    """Return the error for an answer that did not arrive, or not completely."""
    return ProviderError(0, what, kind=kind, remedy=_REMEDIES[kind])


def _error_kind(status: int, body: str) -> ProviderErrorKind:
    match status:
        case 401 | 403:
            return ProviderErrorKind.CREDENTIALS
        case 402:
            return ProviderErrorKind.QUOTA
        case 429:
            return ProviderErrorKind.QUOTA if _says(body, _NO_CREDIT) else ProviderErrorKind.RATE_LIMIT
        case 404 if _says(body, _NO_MODEL):
            return ProviderErrorKind.UNKNOWN_MODEL
        case 503 | 529:
            return ProviderErrorKind.OVERLOADED
        case 408 | 409 | 425:
            return ProviderErrorKind.UNAVAILABLE
        case 413:
            return ProviderErrorKind.CONTEXT_TOO_LONG
    # Servers that imitate the large providers report a full context as 400, 422 or even 500.
    if _says(body, _TOO_LONG):
        return ProviderErrorKind.CONTEXT_TOO_LONG
    if status >= 500:
        return ProviderErrorKind.UNAVAILABLE
    if _says(body, _NO_TOOLS):
        return ProviderErrorKind.TOOLS_UNSUPPORTED
    if _says(body, _NO_CREDIT):
        return ProviderErrorKind.QUOTA
    if _says(body, ("model_not_found", "model_not_supported")):
        return ProviderErrorKind.UNKNOWN_MODEL
    return ProviderErrorKind.REQUEST


def _says(body: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in body for phrase in phrases)


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds of `retry-after-ms` or `retry-after` (a number or a date); None without a valid value."""
    found = {name.lower(): value for name, value in headers.items() if name.lower().startswith("retry-after")}
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(found[name]) * scale
        except (KeyError, ValueError):
            continue
        # Also excludes NaN.
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(found["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, OverflowError):
        return None
