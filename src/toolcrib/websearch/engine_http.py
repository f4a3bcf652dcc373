"""One HTTP request to a search engine, with a bounded response. No redirects, no connection reuse."""

import asyncio
import ipaddress
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic_core import from_json

from toolcrib.websearch.search_engine import EngineFailed
from toolcrib.websearch.text_sanitizer import to_plain_text


def parsed(url: str) -> httpx2.URL | None:
    """Return the URL without its fragment, if it is an HTTP URL."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return None
        return httpx2.URL(parts._replace(fragment="").geturl())
    except (ValueError, httpx2.InvalidURL):
        return None


def is_loopback(url: httpx2.URL) -> bool:
    """Return whether the URL is on this machine."""
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return url.host == "localhost"


MOST_BYTES = 2_000_000


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


async def ask(
    url: httpx2.URL, *, params: Mapping[str, str], headers: Mapping[str, str], seconds: float
) -> EngineResponse:
    """Send one request. ``seconds`` limit all of it, so that a slow response does not hold the call."""
    sent = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "toolcrib", **headers}
    trusted = await asyncio.to_thread(_trusted)
    # The environment may name a proxy. It is not used for servers on this machine.
    outside = not is_loopback(url)
    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(verify=trusted, timeout=seconds, follow_redirects=False, trust_env=outside) as client,
            client.stream("GET", url.copy_merge_params(params), headers=sent) as response,
        ):
            body = await _bounded(response)
            return EngineResponse(response.status_code, body, response.headers.get("location"))
    except (TimeoutError, httpx2.TimeoutException):
        raise EngineFailed(f"no response within {seconds:.3g} s") from None
    except httpx2.ConnectError as error:
        if "certificate" in str(error).lower():
            raise EngineFailed("its certificate is not trusted; install its issuer's on this machine") from None
        raise EngineFailed("it cannot be reached; check that it runs and that its address is right") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        # Only the type: the text of some of these errors contains what was sent.
        raise EngineFailed(f"the connection failed ({type(error).__name__})") from None


async def _bounded(response: httpx2.Response) -> bytes:
    """Return the body, decompressed here: a client that does it itself may produce a gigabyte before any check."""
    unpack = _unpacking(response.headers.get("content-encoding", "identity"))
    body = bytearray()
    async for piece in response.aiter_raw():
        try:
            body += unpack.decompress(piece, MOST_BYTES + 1 - len(body)) if unpack else piece
        except zlib.error:
            raise EngineFailed("the response cannot be decompressed") from None
        if len(body) > MOST_BYTES:
            raise EngineFailed(f"the response is larger than {MOST_BYTES:,} bytes")
    return bytes(body)


def _unpacking(encoding: str) -> "zlib._Decompress | None":
    match encoding.strip().lower():
        case "identity" | "":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        case _:
            raise EngineFailed("the response has an unsupported content encoding")


@cache
def _trusted() -> ssl.SSLContext:
    """Return the trusted certificates. Loading them takes a tenth of a second, so it happens once."""
    return httpx2.create_ssl_context()
