"""The addresses of engines, as an operator configures them."""

import ipaddress
from urllib.parse import urlsplit

import httpx2


def parsed(url: str) -> httpx2.URL | None:
    """The address without its fragment, if it is one of the web."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return None
        return httpx2.URL(parts._replace(fragment="").geturl())
    except (ValueError, httpx2.InvalidURL):
        return None


def is_loopback(url: httpx2.URL) -> bool:
    """Whether what is sent there stays on this machine."""
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return url.host == "localhost"
