"""The HTTP client that all providers share. Answers that are no success are read up to a bound only."""

from collections.abc import AsyncIterator, Collection

import httpx2

from toolcrib.providers.network import Network
from toolcrib.providers.pool import Pool

# How long a connection may take, and how long an answer may be silent; a turn has a limit of its own.
TIMEOUT = httpx2.Timeout(connect=10, read=120, write=30, pool=10)
# With a proxy; without one, they are the pool's.
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=30)
MAX_REFUSAL = 64 * 1024
MAX_ANSWER = 64 * 1024 * 1024


def new_client(*, private_hosts: Collection[str], proxy: str | None = None) -> httpx2.AsyncClient:
    """A client that follows no redirects, since a key must not travel on, and asks for no compression."""
    # With a proxy, it is the proxy that decides what can be reached.
    network = Network(private_hosts, setting="TOOLCRIB_PRIVATE_MODEL_HOSTS")
    transport = Pool(network) if proxy is None else httpx2.AsyncHTTPTransport(proxy=proxy, limits=_LIMITS)
    return httpx2.AsyncClient(
        transport=_Bounded(transport),
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        # No passwords from the files of whoever runs the server.
        trust_env=False,
    )


class _Bounded(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Cut(response.stream, MAX_REFUSAL if response.status_code >= 300 else MAX_ANSWER)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    """A body of which no more than so many bytes are read."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            yield chunk[: self._left]
            self._left -= len(chunk)
            if self._left <= 0:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()
