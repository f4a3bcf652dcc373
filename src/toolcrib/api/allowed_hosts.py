"""Checks of the Host and Origin headers: which hosts this server answers to, and which pages may use cookies."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers

ANY = "*"


class AllowedHosts:
    """The host names of this server. A request for another name comes from DNS that someone pointed at this address."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._names = frozenset(name.lower() for name in allowed)
        self._suffixes = tuple(name[1:].lower() for name in allowed if name.startswith("*."))

    def know(self, host: str) -> bool:
        """Return whether a Host header names this server. The port does not matter."""
        if ANY in self._names:
            return True
        name = _without_port(host.lower())
        return name in self._names or (bool(self._suffixes) and name.endswith(self._suffixes))


def may_use_cookies(headers: Headers, allowed_origins: Sequence[str]) -> bool:
    """Return whether the page that sent this request is same-origin or allowed. Without an origin it is not."""
    origin = headers.get("origin") or _origin_of(headers.get("referer", ""))
    if origin in allowed_origins:
        return True
    scheme, _, host = origin.partition("://")
    return scheme in ("http", "https") and host != "" and host.lower() == headers.get("host", "").lower()


def _origin_of(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]
