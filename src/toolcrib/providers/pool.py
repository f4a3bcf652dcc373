"""The connections to models: which are open, which of them are free, and to which addresses new ones may be made."""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from functools import cached_property
from typing import Final

import httpx2

from toolcrib.providers.connection import Connection
from toolcrib.providers.network import Network

_MOST: Final = 1_000
_MOST_KEPT: Final = 100
_KEPT_SECONDS: Final = 30.0

Origin = tuple[str, str, int]


class Pool(httpx2.AsyncBaseTransport):
    """Speaks HTTP/1.1 for httpx2, whose own way costs four times as much for each word of a model.

    Only what models are asked: questions whose length is known, and answers that are read to their end or not at all.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._room = asyncio.Semaphore(_MOST)
        self._free: dict[Origin, list[tuple[float, Connection]]] = defaultdict(list)
        self._is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = _origin(request.url)
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        await self._wait_for_room(limits.get("pool"))
        connection: Connection | None = None
        try:
            connection = self._kept(origin) or await self._connected(origin, limits.get("connect"))
            response = await connection.ask(request)
        except BaseException:
            self._done_with(origin, connection)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Lent(response.stream, lambda: self._done_with(origin, connection))
        return response

    async def aclose(self) -> None:
        self._is_closed = True
        for kept in self._free.values():
            for _, connection in kept:
                connection.close()
        self._free.clear()

    async def _wait_for_room(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._room.acquire()
        except TimeoutError:
            raise httpx2.PoolTimeout(f"{_MOST} connections are in use") from None

    def _kept(self, origin: Origin) -> Connection | None:
        kept, now = self._free[origin], asyncio.get_running_loop().time()
        while kept:
            since, connection = kept.pop()
            if connection.is_free and now - since < _KEPT_SECONDS:
                return connection
            connection.close()
        return None

    async def _connected(self, origin: Origin, seconds: float | None) -> Connection:
        scheme, host, port = origin
        secure = self._tls if scheme == "https" else None
        failed: Exception | None = None
        try:
            async with asyncio.timeout(seconds):
                for address in await self._network.addresses(host, port):
                    try:
                        _, connection = await asyncio.get_running_loop().create_connection(
                            Connection, address, port, ssl=secure, server_hostname=host if secure else None
                        )
                    except OSError as error:
                        failed = error
                    else:
                        return connection
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"{host}:{port} does not answer") from None
        raise httpx2.ConnectError(str(failed or f"{host} has no address"))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = httpx2.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _done_with(self, origin: Origin, connection: Connection | None) -> None:
        self._room.release()
        if connection is None:
            return
        kept = self._free[origin]
        if connection.is_free and len(kept) < _MOST_KEPT and not self._is_closed:
            kept.append((asyncio.get_running_loop().time(), connection))
        else:
            connection.close()


class _Lent(httpx2.AsyncByteStream):
    """A body whose connection is given back when it is closed."""

    def __init__(self, inner: httpx2.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._inner = inner
        self._give_back: Callable[[], None] | None = give_back

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


def _origin(url: httpx2.URL) -> Origin:
    if url.scheme not in ("http", "https"):
        raise httpx2.UnsupportedProtocol(f"{url.scheme}: is not spoken here")
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
