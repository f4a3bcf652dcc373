"""The interface of search engines, the fallback from one to the next, and their requests: bounded, no redirects.

A new engine is one more class with this interface, added in ``wiring``.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import structlog
from pydantic_core import from_json
from yarl import URL

from toolcrib.core.errors import ToolFailed
from toolcrib.network.network_policy import OPERATOR_URLS, OutboundError, OutboundFailure
from toolcrib.websearch.text_sanitizer import to_plain_text, web_address

MOST_BYTES = 2_000_000
MOST_TITLE = 300
MOST_SNIPPET = 1_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page that was found. Its texts are single lines without markup or control characters."""

    title: str
    address: str
    snippet: str


class EngineFailed(Exception):
    """A search failed. The message says why and what to do, and contains no secret."""


class SearchEngine(Protocol):
    """Finds pages."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str:
        """The host that a search contacts."""

    async def search(self, query: str, *, most: int, seconds: float) -> list[SearchResult]:
        """Return at most ``most`` pages, best first.

        Raises:
            EngineFailed: The search failed.
        """


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results and their engine, and why other engines failed."""

    provider: str
    pages: Sequence[SearchResult]
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FallbackSearch:
    """The engines of this server in their order: the next one is used when one fails or finds nothing.

    ``seconds`` is the limit of each.
    """

    engines: tuple[SearchEngine, ...] = ()
    seconds: float = 10.0

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that a search may contact."""
        return tuple(engine.host for engine in self.engines)

    def preferring(self, engine: SearchEngine | None) -> "FallbackSearch":
        """Return the same engines with this one first, replacing one of the same name."""
        if engine is None:
            return self
        return replace(self, engines=(engine, *(other for other in self.engines if other.name != engine.name)))

    async def search(self, query: str, *, most: int, deadline: float, tell: Callable[[str], None]) -> SearchResults:
        """Return the results of the first engine that finds any.

        Raises:
            ToolFailed: No engine could search.
        """
        if not self.engines:
            raise ToolFailed(
                "No search engine is configured on this server. "
                "Its operator can set TOOLCRIB_SEARXNG_URL, TOOLCRIB_BRAVE_API_KEY or both, "
                "and you can store a key of your own with PUT /api/v1/credentials/brave."
            )
        failures: dict[str, str] = {}
        nothing: str | None = None
        for number, engine in enumerate(self.engines):
            # A share of the remaining time, so that a hanging engine leaves time for the next ones.
            share = max(0.0, min(self.seconds, 0.9 * (deadline - monotonic()) / (len(self.engines) - number)))
            tell(f"Searching with {engine.name} ({engine.host}).\n")
            try:
                found = await engine.search(query, most=most, seconds=share)
            except EngineFailed as failure:
                failures[engine.name] = str(failure)
                log.warning("web_search.engine_failed", engine=engine.name, host=engine.host, reason=str(failure))
                continue
            if found:
                return SearchResults(engine.name, found, failures)
            nothing = nothing or engine.name
        if nothing is None:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise ToolFailed(f"The web search failed. {reasons}.")
        return SearchResults(nothing, (), failures)


def parsed(url: str) -> URL | None:
    """Return the URL without its fragment, if it is an HTTP URL."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return None
        return URL(parts._replace(fragment="").geturl())
    except ValueError:
        return None


def is_loopback(url: URL) -> bool:
    """Return whether the URL is on this machine."""
    try:
        return ipaddress.ip_address(url.host or "").is_loopback
    except ValueError:
        return url.host == "localhost"


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """The response; at most ``MOST_BYTES`` after decompression."""

    status: int
    body: bytes
    location: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the engine reported success."""
        return self.status == 200

    def json_object(self) -> dict[str, Any]:
        """Return the body.

        Raises:
            EngineFailed: It is not a JSON object.
        """
        try:
            value = from_json(self.body)
        except ValueError:
            raise EngineFailed("the response is not JSON") from None
        if not isinstance(value, dict):
            raise EngineFailed("the response is JSON, but not an object")
        return value

    @property
    def refusal(self) -> str:
        """Return why the response is not a success."""
        if 300 <= self.status < 400:
            target = to_plain_text(self.location or "nowhere", most=200)
            return f"it redirected to {target} (HTTP {self.status}); redirects are not followed"
        return f"it returned HTTP {self.status}"


async def ask(url: URL, *, params: Mapping[str, str], headers: Mapping[str, str], seconds: float) -> EngineResponse:
    """Send one request. ``seconds`` limit all of it, so that a slow response does not hold the call."""
    # Imported by a search only: processes that list the tools do not need it.
    from toolcrib.network.outbound import Outbound, OutboundLimits

    sent = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "toolcrib", **headers}
    try:
        async with (
            asyncio.timeout(seconds),
            Outbound(OPERATOR_URLS, limits=OutboundLimits(body=MOST_BYTES)) as http,
            http.request("GET", url.update_query(params), headers=sent) as reply,
        ):
            return EngineResponse(reply.status, await reply.read(), reply.headers.get("Location"))
    except TimeoutError:
        raise EngineFailed(f"no response within {seconds:.3g} s") from None
    except OutboundError as error:
        # Not its text, which may contain what was sent.
        raise EngineFailed(_FAILURES.get(error.failure, "the connection failed, or the response is invalid")) from None


_FAILURES: Final = {
    OutboundFailure.TIMEOUT: "it stopped responding",
    OutboundFailure.CERTIFICATE: "its certificate is not trusted; install its issuer's on this machine",
    OutboundFailure.UNREACHABLE: "it cannot be reached; check that it runs and that its address is right",
    OutboundFailure.TOO_LARGE: f"the response is larger than {MOST_BYTES:,} bytes",
}


def pages(results: Any, *, title: str, address: str, snippet: str, most: int) -> list[SearchResult]:
    """Return the first ``most`` valid pages. The keywords are the engine's field names; broken entries are skipped."""
    if not isinstance(results, list):
        raise EngineFailed("the response contains no list of results")
    found: list[SearchResult] = []
    # More than any engine returns on a page; a hostile list must not keep the server busy.
    for result in results[:500]:
        if len(found) == most:
            break
        where = web_address(result.get(address)) if isinstance(result, dict) else None
        if where is not None:
            name = to_plain_text(result.get(title), most=MOST_TITLE) or where
            found.append(SearchResult(name, where, to_plain_text(result.get(snippet), most=MOST_SNIPPET)))
    return found
