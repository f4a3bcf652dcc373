"""The connections to models: which are open, which of them are free, and to which addresses new ones may be made."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
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
        # Those that can serve again, the latest last, each with the timer that ends it.
        self._free: dict[Connection, tuple[Origin, asyncio.TimerHandle]] = {}
        self._is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = _origin(request.url)
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        await self._wait_for_room(limits.get("pool"))
        with ExitStack() as lent:
            lent.callback(self._room.release)
            connection = self._kept(origin) or await self._connected(origin, limits.get("connect"))
            lent.callback(self._keep_or_close, origin, connection)
            response = await connection.ask(request)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Lent(response.stream, lent.pop_all())
        return response

    async def aclose(self) -> None:
        self._is_closed = True
        for connection in list(self._free):
            self._end(connection)

    async def _wait_for_room(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._room.acquire()
        except TimeoutError:
            raise httpx2.PoolTimeout(f"{_MOST} connections are in use") from None

    def _kept(self, origin: Origin) -> Connection | None:
        for connection in [one for one, (whose, _) in reversed(self._free.items()) if whose == origin]:
            if connection.is_free:
                self._free.pop(connection)[1].cancel()
                return connection
            self._end(connection)
        return None

    def _end(self, connection: Connection) -> None:
        self._free.pop(connection)[1].cancel()
        connection.close()

    async def _connected(self, origin: Origin, seconds: float | None) -> Connection:
        _, host, port = origin
        try:
            async with asyncio.timeout(seconds):
                addresses = await self._network.addresses(host, port)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"{host} could not be looked up in time") from None
        failed: OSError | None = None
        for address in addresses:
            try:
                # An address that swallows everything leaves time for the next.
                async with asyncio.timeout(seconds and seconds / len(addresses)):
                    return await self._connected_to(address, origin)
            except OSError as error:
                failed = error
        if isinstance(failed, TimeoutError):
            raise httpx2.ConnectTimeout(f"{host}:{port} does not answer")
        raise httpx2.ConnectError(str(failed or f"{host} has no address"))

    async def _connected_to(self, address: str, origin: Origin) -> Connection:
        scheme, host, port = origin
        tls = self._tls if scheme == "https" else None
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection, address, port, ssl=tls, server_hostname=host if tls else None
        )
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = httpx2.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _keep_or_close(self, origin: Origin, connection: Connection) -> None:
        if connection.is_free and len(self._free) < _MOST_KEPT and not self._is_closed:
            timer = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._end, connection)
            self._free[connection] = (origin, timer)
        else:
            connection.close()


class _Lent(httpx2.AsyncByteStream):
    """A body whose connection is given back when it is closed."""

    def __init__(self, inner: httpx2.AsyncByteStream, lent: ExitStack) -> None:
        self._inner = inner
        self._lent = lent

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        self._lent.close()


def _origin(url: httpx2.URL) -> Origin:
    if url.scheme not in ("http", "https"):
        raise httpx2.UnsupportedProtocol(f"{url.scheme}: is not spoken here")
    # The host as it is written on the wire: names of other scripts have more than one way to be written so.
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)
