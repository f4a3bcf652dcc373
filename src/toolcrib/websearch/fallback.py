"""Engines in the order in which they are asked: the next one when one fails or finds nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import structlog

from toolcrib.domain.errors import ToolFailed
from toolcrib.websearch.engine import EngineFailed, Page, SearchEngine

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found and by whom, and why the others that were asked did not search."""

    provider: str
    pages: Sequence[Page]
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fallback:
    """The engines of this server. ``seconds`` is what each may take."""

    engines: tuple[SearchEngine, ...] = ()
    seconds: float = 10.0

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(engine.host for engine in self.engines)

    async def search(self, query: str, *, most: int, deadline: float, tell: Callable[[str], None]) -> Findings:
        """What the first engine found that found any; ToolFailed if none of them searched."""
        if not self.engines:
            raise ToolFailed(
                "No search engine is configured on this server. "
                "Its operator can set TOOLCRIB_SEARXNG_URL, TOOLCRIB_BRAVE_API_KEY or both."
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
                return Findings(engine.name, found, failures)
            nothing = nothing or engine.name
        if nothing is None:
            said = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise ToolFailed(f"The web could not be searched. {said}.")
        return Findings(nothing, (), failures)
