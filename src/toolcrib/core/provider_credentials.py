"""A user's credentials for a model provider or a search engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many model requests with one credential may run at once, and how many may start within a minute."""

    at_once: int | None = None
    per_minute: int | None = None

    def __bool__(self) -> bool:
        return self.at_once is not None or self.per_minute is not None

    def within(self, other: "RequestLimits") -> "RequestLimits":
        """Return the lower one of each."""
        return RequestLimits(_lower(self.at_once, other.at_once), _lower(self.per_minute, other.per_minute))


def _lower(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


@dataclass(frozen=True, slots=True)
class ProviderCredentials:
    """What a request is sent with. The representation shows neither secret nor headers."""

    secret: str = field(default="", repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: RequestLimits = RequestLimits()
