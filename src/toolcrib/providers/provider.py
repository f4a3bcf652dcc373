"""The interface of a model provider, its credentials and its errors. Independent of any wire format."""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.messages import Message
from toolcrib.core.model_options import Effort, Wire
from toolcrib.core.model_stream import StreamEvent
from toolcrib.core.provider_credentials import ProviderCredentials

if TYPE_CHECKING:
    from toolcrib.network.outbound import Outbound, Reply


class ToolSpec(Protocol):
    """A tool as it is described to a model."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class ToolChoice(StrEnum):
    """``none``: the tools stay declared, because the conversation mentions them, but the model may not call them."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One turn of a model. Without ``tools`` it is plain chat: calls in the messages become text.

    ``thinking_tokens``: how much the model may think first, where that can be set; 0 leaves it to the model.
    ``context_window``: the context size to request, where the provider lets the client choose (Ollama).
    ``effort``: how much the model thinks, where that can be set; None leaves it to the model.
    ``wire``: the API to use at a server with two of them; None leaves it to the provider.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking_tokens: int = 0
    context_window: int | None = None
    effort: Effort | None = None
    wire: Wire | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known about a model; ``context_window`` in tokens, None if the provider does not say."""

    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None = None


class Provider(ABC):
    """One model provider. All its failures are ProviderErrors.

    The registry finds every subclass with a ``name`` in a module of this package. It imports these modules to list the
    providers, so none of them imports a client for HTTP or a vendor's SDK.

    Attributes:
        name: How agents and credentials name it.
        address: The URL of its API. Empty if everybody has their own server; then credentials need a ``base_url``.
        needs_credentials: False for a local server that works without.
        variable: The environment variable that configures it in local mode. Empty if there is none.
        base_url_variable: The variable with another URL, which is optional if there is an ``address``.
    """

    name: ClassVar[str]
    address: ClassVar[str]
    needs_credentials: ClassVar[bool] = True
    variable: ClassVar[str] = ""
    base_url_variable: ClassVar[str] = ""

    def __init__(self, http: "Outbound") -> None:
        self._http = http

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> ProviderCredentials | None:
        """Return the credentials that environment variables contain, if they do."""
        secret, base_url = variables.get(cls.variable), variables.get(cls.base_url_variable)
        return ProviderCredentials(secret, base_url) if secret and (base_url or cls.address) else None

    @abstractmethod
    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        """Stream one answer of the model. A failure is the last event; closing the generator closes the connection."""

    @abstractmethod
    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        """Return the models that these credentials may use.

        Raises:
            ProviderError: The request failed.
        """

    async def validate_credentials(self, credentials: ProviderCredentials) -> None:
        """Check the credentials.

        Raises:
            ProviderError: The provider does not accept them.
        """
        await self.list_models(credentials)

    def auth_headers(self, credentials: ProviderCredentials) -> Mapping[str, str]:
        """Return the headers that carry the key."""
        return {"Authorization": f"Bearer {credentials.secret}"} if credentials.secret else {}

    @asynccontextmanager
    async def _reply(
        self,
        method: str,
        path: str,
        credentials: ProviderCredentials,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator["Reply"]:
        """Send a request below the provider's URL and wait for a response with success.

        Raises:
            ProviderError: The credentials cannot be sent, or the response is an error.
            OutboundError: There is no response.
        """
        address = validate_endpoint(credentials, self.address) + path
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {**self.auth_headers(credentials), **(headers or {}), **credentials.headers}
        async with self._http.request(method, address, headers=sent, body=body) as reply:
            if not reply.ok:
                text = await reply.excerpt()
                raise response_error(reply.status, text, reply.headers, secret=credentials.secret)
            yield reply


# Valid header values.
_VALUE = re.compile(r"[\x20-\x7e]*")
_NAME = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+")
# They control how the body is sent and to whom, so a user may not set them.
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"})


def validate_endpoint(credentials: ProviderCredentials, default: str) -> str:
    """Return the URL of the provider, without looking up its host.

    Raises:
        ProviderError: The URL is invalid, or the key or the headers cannot be sent.
    """
    if not _VALUE.fullmatch(credentials.secret):
        raise stream_error(
            "The key contains an invalid character, such as a line end. Copy it again.",
            kind=ProviderErrorKind.CREDENTIALS,
        )
    for name, value in credentials.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise stream_error(
                f"The header {name!r} cannot be sent with requests to a model.", kind=ProviderErrorKind.REQUEST
            )
    address = credentials.base_url or default
    if not _is_address(address):
        # Not repeated in the message: it may contain a password.
        raise stream_error(
            "Not the URL of a model server. Use one such as http://127.0.0.1:8000/v1, without a password.",
            kind=ProviderErrorKind.REQUEST,
        )
    return address.rstrip("/")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (
        sound and parts.username is None and not parts.query and not parts.fragment and bool(_VALUE.fullmatch(address))
    )


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
    "exceeds the maximum number of tokens",
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
    "is not found for api version",
)
# In the body of Google's errors.
_RETRY_DELAY = re.compile(r'"retrydelay": ?"(\d{1,6}(?:\.\d{1,9})?)s"', re.IGNORECASE)


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
        retry_after=_retry_after(headers or {}, body, time.time() if now is None else now),
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
            # Google mentions billing at every limit, and says when it ends.
            is_quota = _says(body, _NO_CREDIT) and not _RETRY_DELAY.search(body)
            return ProviderErrorKind.QUOTA if is_quota else ProviderErrorKind.RATE_LIMIT
        case 400 if _says(body, ("api_key_invalid", "api key not valid")):
            return ProviderErrorKind.CREDENTIALS
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


def _retry_after(headers: Mapping[str, str], body: str, now: float) -> float | None:
    """Return the seconds of `retry-after-ms` or `retry-after` (a number or a date), or of Google's `retryDelay`."""
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
        delay = _RETRY_DELAY.search(body)
        return float(delay[1]) if delay else None
