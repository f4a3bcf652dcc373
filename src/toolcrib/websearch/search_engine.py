"""What a search engine is, and what it gives. Another engine is one more class of this form, added in wiring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Protocol

import structlog

from toolcrib.core.errors import ToolFailed


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page that was found. Its words are one line each and plain: nothing in them draws or commands."""

    title: str
    address: str
    snippet: str


class EngineFailed(Exception):
    """An engine did not search. The message says why and what to do, and holds no secret."""


class SearchEngine(Protocol):
    """Finds pages."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str:
        """Whom a search contacts."""

    async def search(self, query: str, *, most: int, seconds: float) -> list[SearchResult]:
        """At most ``most`` pages, the best first, none if there are none; EngineFailed if it did not search."""


# Engines in the order in which they are asked: the next one when one fails or finds nothing.

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What was found and by whom, and why the others that were asked did not search."""

    provider: str
    pages: Sequence[SearchResult]
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FallbackSearch:
    """The engines of this server. ``seconds`` is what each may take."""

    engines: tuple[SearchEngine, ...] = ()
    seconds: float = 10.0

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(engine.host for engine in self.engines)

    def preferring(self, engine: SearchEngine | None) -> "FallbackSearch":
        """The same with this engine first, and in place of one of its name."""
        if engine is None:
            return self
        return replace(self, engines=(engine, *(other for other in self.engines if other.name != engine.name)))

    async def search(self, query: str, *, most: int, deadline: float, tell: Callable[[str], None]) -> SearchResults:
        """What the first engine found that found any; ToolFailed if none of them searched."""
        if not self.engines:
            raise ToolFailed(
                "No search engine is configured on this server. "
                "Its operator can set TOOLCRIB_SEARXNG_URL, TOOLCRIB_BRAVE_API_KEY or both, "
                "and you can store a key of your own with PUT /api/v1/credentials/brave."
            )
        failures: dict[str, str] = {}
        nothing: str | None = None
        for number, engine in enumerate(self.engines):
            # A share of what is left, so that one that hangs leaves time for those after it.
            share = max(0.0, min(self.seconds, 0.9 * (deadline - monotonic()) / (len(self.engines) - number)))
            tell(f"Searching with {engine.name} ({engine.host}).\n")
            try:
                found = await engine.search(query, most=most, seconds=share)
            except EngineFailed as failure:
                failures[engine.name] = str(failure)
                log.warning("search engine failed", engine=engine.name, host=engine.host, reason=str(failure))
                continue
            if found:
                return SearchResults(engine.name, found, failures)
            nothing = nothing or engine.name
        if nothing is None:
            said = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise ToolFailed(f"The web could not be searched. {said}.")
        return SearchResults(nothing, (), failures)
