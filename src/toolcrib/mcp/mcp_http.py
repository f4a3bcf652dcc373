"""HTTP transport to MCP servers: public addresses only unless the operator permits more, with size limits."""

from collections.abc import AsyncIterator, Collection
from typing import Final
from urllib.parse import urlsplit

import httpx2

from toolcrib.core.errors import BadArguments
from toolcrib.core.mcp_servers import McpServer
from toolcrib.providers.http_pool import ANY_HOST, HttpPool, NetworkPolicy

# The size limit of one message, and of a whole HTTP response or stream.
MOST_BYTES: Final = 8_000_000
# A stream may be silent for long; a call has its own limit.
_TIMEOUT: Final = httpx2.Timeout(connect=10, read=300, write=30, pool=10)


def client_for(server: McpServer, *, private_hosts: Collection[str]) -> httpx2.AsyncClient:
    """Return a client for one server. It follows no redirects, so that its headers reach no other server."""
    return httpx2.AsyncClient(
        transport=_SizeLimitedTransport(
            HttpPool(NetworkPolicy(private_hosts, setting="TOOLCRIB_ALLOWED_PRIVATE_MCP_HOSTS"))
        ),
        timeout=_TIMEOUT,
        headers={**server.secrets, "Accept-Encoding": "identity"},
        follow_redirects=False,
        trust_env=False,
    )


def checked_url(url: str, *, private_hosts: Collection[str]) -> str:
    """Return the URL of a server.

    Raises:
        BadArguments: It is not a valid URL, or it would send a key unencrypted.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address("Not a URL.") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.fragment:
        raise _no_address("Expected a URL such as https://example.com/mcp, without a password.")
    allowed = ANY_HOST in private_hosts or f"{host}:{port or (443 if parts.scheme == 'https' else 80)}" in private_hosts
    if parts.scheme == "http" and not allowed:
        raise _no_address("Use https, unless the operator lists the host in TOOLCRIB_ALLOWED_PRIVATE_MCP_HOSTS.")
    return url


def _no_address(words: str) -> BadArguments:
    return BadArguments({"url": words})


class _SizeLimitedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _SizeLimitedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _SizeLimitedStream(httpx2.AsyncByteStream):
    """A body that fails when it is too long."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"The response has more than {MOST_BYTES:,} bytes, the limit.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
