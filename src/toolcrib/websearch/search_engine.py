"""The interface of search engines, their results, and the fallback from one engine to the next.

A new engine is one more class with this interface, added in ``wiring``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Protocol

import structlog

from toolcrib.core.errors import ToolFailed


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


log = structlog.get_logger(__name__)


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
