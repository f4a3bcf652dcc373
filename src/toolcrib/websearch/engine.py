"""What a search engine is, and what it gives. Another engine is one more class of this form, added in wiring."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Page:
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

    async def search(self, query: str, *, most: int, seconds: float) -> list[Page]:
        """At most ``most`` pages, the best first, none if there are none; EngineFailed if it did not search."""
