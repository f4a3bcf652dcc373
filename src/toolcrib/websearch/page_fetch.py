"""Fetches web pages: public addresses only, bounded, and each redirect is judged again."""

import asyncio
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec
from time import monotonic
from typing import Final

from yarl import URL

from toolcrib.core.errors import ToolFailed
from toolcrib.network.network_policy import NetworkPolicy, OutboundError, OutboundFailure
from toolcrib.policy.permissions import host_flaw
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.websearch.page_text import HTML_TYPES, page_text
from toolcrib.websearch.text_sanitizer import to_plain_text, web_address

MOST_BYTES: Final = 5_000_000
_MOST_REDIRECTS: Final = 5
_SECONDS: Final = 30.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_WEB_PORTS: Final = (80, 443)
_TEXT_TYPES: Final = frozenset(
    {
        *("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml"),
        *("application/javascript", "application/x-javascript", "application/x-ndjson", "application/sql"),
    }
)
_HEADERS: Final = {
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "toolcrib",
}
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_.:-]{1,40})", re.IGNORECASE)
SETTING: Final = "TOOLCRIB_ALLOWED_PRIVATE_WEB_HOSTS"
REMEDY: Final = "Install the extra: pip install 'toolcrib[web]'"


@dataclass(frozen=True, slots=True)
class WebPage:
    """The readable text of a page, without terminal escapes or invisible characters; ``url`` after redirects."""

    url: str
    content_type: str
    title: str
    text: str


class PageFetcher:
    """Fetches pages of hosts with public addresses, and of private ``host:port`` that the operator permits."""

    def __init__(self, private_hosts: Collection[str]) -> None:
        self._network = NetworkPolicy(private_hosts, setting=SETTING)
        self._is_available = find_spec("trafilatura") is not None

    def is_available(self) -> bool:
        """Whether the library that extracts text is installed."""
        return self._is_available

    async def fetch(self, url: URL, *, may_contact: Callable[[str], bool], deadline: float) -> WebPage:
        """Return the text of a page.

        Args:
            may_contact: Decides about each host to which the page redirects, before it is contacted.

        Raises:
            ToolFailed: The page cannot be fetched or read; the message says why.
        """
        if not self._is_available:
            raise ToolFailed(f"This server cannot read web pages. {REMEDY}")
        seconds = min(_SECONDS, deadline - monotonic())
        try:
            async with asyncio.timeout(seconds):
                where, content_type, charset, body = await self._download(url, may_contact)
        except TimeoutError:
            raise ToolFailed(f"{url.host} did not send the page within {seconds:.3g} s.") from None
        title, text = await in_worker(page_text, body, content_type, charset)
        return WebPage(str(where), content_type, title, text)

    async def _download(self, url: URL, may_contact: Callable[[str], bool]) -> tuple[URL, str, str | None, bytes]:
        # Imported by a fetch only: processes that list the tools do not need it.
        from toolcrib.network.outbound import Outbound, OutboundLimits

        limits = OutboundLimits(silence=_SECONDS, body=MOST_BYTES)
        try:
            async with Outbound(self._network, limits=limits) as http:
                for _ in range(_MOST_REDIRECTS + 1):
                    async with http.request("GET", url, headers=_HEADERS) as reply:
                        if reply.status not in _REDIRECTS:
                            _require_success(url, reply.status)
                            content_type, charset = _readable_type(url, reply.headers.get("Content-Type", ""))
                            return url, content_type, charset, await reply.read()
                        location = reply.headers.get("Location", "")
                    url = _redirected(url, location, may_contact)
        except OutboundError as error:
            raise ToolFailed(_failure(error)) from None
        raise ToolFailed(f"The page redirects more than {_MOST_REDIRECTS} times, at last to {shown(url)}.")


def parse_page_url(text: str) -> URL:
    """Parse the URL of a page.

    Raises:
        ValueError: It is not one; the message says why.
    """
    address = web_address(text)
    if address is None:
        raise ValueError("Not the URL of a web page. Use one such as https://example.com/page, without a password.")
    url = URL(address).with_fragment(None)
    if flaw := host_flaw(page_host(url)):
        raise ValueError(f"{flaw} IP addresses are not supported.")
    return url


def page_host(url: URL) -> str:
    """Return the host as a permission or a grant names it: with its port, unless that is a usual one."""
    host = (url.raw_host or "").lower()
    return host if url.port in _WEB_PORTS else f"{host}:{url.port}"


def shown(url: URL) -> str:
    """Return the URL for a message, which a person or a model reads."""
    return to_plain_text(str(url), most=500)


def _redirected(url: URL, location: str, may_contact: Callable[[str], bool]) -> URL:
    try:
        target = parse_page_url(str(url.join(URL(location))))
    except ValueError:
        where = to_plain_text(location, most=500) or "nowhere"
        raise ToolFailed(f"{shown(url)} redirects to {where}, which is not followed.") from None
    if page_host(target) != page_host(url) and not may_contact(page_host(target)):
        raise ToolFailed(
            f"{shown(url)} redirects to {shown(target)}, a host that is not approved yet. "
            "If you need that page, call `web_fetch` with its URL; a person is asked to approve the host."
        )
    return target


def _require_success(url: URL, status: int) -> None:
    if not 200 <= status < 300:
        raise ToolFailed(f"{shown(url)} answered with HTTP {status}.")


def _readable_type(url: URL, header: str) -> tuple[str, str | None]:
    """Return the media type and the charset, if the content is text."""
    kind = header.partition(";")[0].strip().lower() or "text/html"
    is_text = kind.startswith("text/") or kind.endswith(("+json", "+xml", "+yaml"))
    if not is_text and kind not in _TEXT_TYPES | HTML_TYPES:
        raise ToolFailed(
            f"{shown(url)} is {to_plain_text(kind, most=100)}. `web_fetch` reads web pages and text; "
            "download other files with `bash` and `hosts`, if you have it."
        )
    charset = _CHARSET.search(header)
    return kind, charset[1] if charset else None


def _failure(error: OutboundError) -> str:
    if error.failure is OutboundFailure.TOO_LARGE:
        return f"The page is larger than {MOST_BYTES:,} bytes, the limit."
    return f"The page cannot be fetched: {to_plain_text(str(error), most=500)}."
