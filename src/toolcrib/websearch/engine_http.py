"""One question to an engine over HTTP, and its bounded answer. Follows no redirect and keeps no connection."""

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

# The addresses of engines, as an operator configures them.


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


MOST_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """What came back, no larger than ``MOST_BYTES`` when unpacked."""

    status: int
    body: bytes
    location: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == 200

    def json_object(self) -> dict[str, Any]:
        """The body; EngineFailed if it is anything but a JSON object."""
        try:
            value = from_json(self.body)
        except ValueError:
            raise EngineFailed("the answer is not JSON") from None
        if not isinstance(value, dict):
            raise EngineFailed("the answer is JSON, but not an object")
        return value

    @property
    def refusal(self) -> str:
        """Why an answer that is not ok is none."""
        if 300 <= self.status < 400:
            target = to_plain_text(self.location or "nowhere", most=200)
            return f"it answered HTTP {self.status} and points to {target}; redirects are not followed"
        return f"it answered HTTP {self.status}"


async def ask(
    url: httpx2.URL, *, params: Mapping[str, str], headers: Mapping[str, str], seconds: float
) -> EngineResponse:
    """Asks once. ``seconds`` bound the whole of it, so an answer that drips in does not hold the call."""
    sent = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "toolcrib", **headers}
    trusted = await asyncio.to_thread(_trusted)
    # The environment may name a proxy. It is not asked for what runs on this machine.
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
        raise EngineFailed(f"no answer within {seconds:.3g} s") from None
    except httpx2.ConnectError as error:
        if "certificate" in str(error).lower():
            raise EngineFailed("its certificate is not trusted; install its issuer's on this machine") from None
        raise EngineFailed("it cannot be reached; check that it runs and that its address is right") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        # Only its kind: the words of some of these errors hold what was sent.
        raise EngineFailed(f"the connection failed ({type(error).__name__})") from None


async def _bounded(response: httpx2.Response) -> bytes:
    """The body, unpacked here: a client that unpacks by itself has made a gigabyte before anyone can count it."""
    unpack = _unpacking(response.headers.get("content-encoding", "identity"))
    body = bytearray()
    async for piece in response.aiter_raw():
        try:
            body += unpack.decompress(piece, MOST_BYTES + 1 - len(body)) if unpack else piece
        except zlib.error:
            raise EngineFailed("the answer is packed and cannot be unpacked") from None
        if len(body) > MOST_BYTES:
            raise EngineFailed(f"the answer is larger than {MOST_BYTES:,} bytes")
    return bytes(body)


def _unpacking(encoding: str) -> "zlib._Decompress | None":
    match encoding.strip().lower():
        case "identity" | "":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        case _:
            raise EngineFailed("the answer is packed in a way that was not asked for")


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted; reading them takes a tenth of a second, so it is done once."""
    return httpx2.create_ssl_context()
