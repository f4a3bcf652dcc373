"""The connection pool for model servers, the network policy for new connections, and the shared HTTP client."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack
from functools import cached_property
from typing import Final

import httpx2

from toolcrib.core.ip_addresses import is_public
from toolcrib.providers.http_connection import HttpConnection, ResponseBody

ANY_HOST = "*"


class NetworkPolicy:
    """Allows public addresses, and private ``host:port`` that the operator permits by a setting; ``*`` permits all.

    A user's URL must not lead into the server's own network.
    """

    def __init__(self, allowed: Collection[str], *, setting: str) -> None:
        self._allowed = frozenset(allowed)
        self._setting = setting

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host and return its permitted addresses.

        These are used to connect, so that DNS cannot change in between.
        """
        try:
            known = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"Cannot resolve {host}: {error}") from error
        found = list(dict.fromkeys(str(entry[4][0]) for entry in known))
        if self._allowed.isdisjoint((ANY_HOST, f"{host}:{port}")) and not all(map(_is_public, found)):
            raise httpx2.UnsupportedProtocol(
                f"{host}:{port} is in the server's private network. To allow it, the operator sets "
                f"{self._setting}={host}:{port}"
            )
        return found


def _is_public(address: str) -> bool:
    return is_public(ipaddress.ip_address(address.partition("%")[0]))


_MOST: Final = 1_000
_MOST_KEPT: Final = 100
_KEPT_SECONDS: Final = 30.0

Origin = tuple[str, str, int]


class HttpPool(httpx2.AsyncBaseTransport):
    """An HTTP/1.1 transport for httpx2, whose own costs four times as much per token of a model.

    It supports only what model requests need: bodies of known length, and responses that are read to the end or
    dropped.
    """

    def __init__(self, network: NetworkPolicy) -> None:
        self._network = network
        self._room = asyncio.Semaphore(_MOST)
        # Idle connections, the latest last, each with the timer that closes it.
        self._free: dict[HttpConnection, tuple[Origin, asyncio.TimerHandle]] = {}
        self._is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = _origin(request.url)
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        await self._wait_for_room(limits.get("pool"))
        with ExitStack() as in_use:
            in_use.callback(self._room.release)
            connection = self._kept(origin) or await self._connected(origin, limits.get("connect"))
            in_use.callback(self._keep_or_close, origin, connection)
            response = await connection.ask(request)
            assert isinstance(response.stream, ResponseBody)
            response.stream.in_use = in_use.pop_all()
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

    def _kept(self, origin: Origin) -> HttpConnection | None:
        for connection in [one for one, (whose, _) in reversed(self._free.items()) if whose == origin]:
            if connection.is_free:
                self._free.pop(connection)[1].cancel()
                return connection
            self._end(connection)
        return None

    def _end(self, connection: HttpConnection) -> None:
        self._free.pop(connection)[1].cancel()
        connection.close()

    async def _connected(self, origin: Origin, seconds: float | None) -> HttpConnection:
        scheme, host, port = origin
        tls = self._tls if scheme == "https" else None
        try:
            async with asyncio.timeout(seconds):
                addresses = await self._network.addresses(host, port)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"Resolving {host} timed out") from None
        failed: OSError | None = None
        for address in addresses:
            try:
                # An address that never answers must leave time for the next one.
                async with asyncio.timeout(seconds and seconds / len(addresses)):
                    _, connection = await asyncio.get_running_loop().create_connection(
                        HttpConnection, address, port, ssl=tls, server_hostname=host if tls else None
                    )
                    return connection
            except OSError as error:
                failed = error
        if isinstance(failed, TimeoutError):
            raise httpx2.ConnectTimeout(f"{host}:{port} does not respond")
        raise httpx2.ConnectError(str(failed or f"{host} has no address"))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = httpx2.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _keep_or_close(self, origin: Origin, connection: HttpConnection) -> None:
        if connection.is_free and len(self._free) < _MOST_KEPT and not self._is_closed:
            timer = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._end, connection)
            self._free[connection] = (origin, timer)
        else:
            connection.close()


def _origin(url: httpx2.URL) -> Origin:
    if url.scheme not in ("http", "https"):
        raise httpx2.UnsupportedProtocol(f"The scheme {url.scheme}: is not supported")
    # The host in its ASCII form, because internationalized names can be written in several ways.
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


# How long connecting may take, and how long an answer may be silent; a turn has its own limit.
TIMEOUT = httpx2.Timeout(connect=10, read=120, write=30, pool=10)
# Only with a proxy; otherwise the pool has its own limits.
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=30)
MAX_REFUSAL = 64 * 1024
MAX_ANSWER = 64 * 1024 * 1024


def new_client(*, private_hosts: Collection[str], proxy: str | None = None) -> httpx2.AsyncClient:
    """Return a client without redirects, because a key must not be forwarded, and without compression.

    It reads bodies up to a limit only, and error bodies up to a lower one.
    """
    # With a proxy, the proxy decides what can be reached.
    network = NetworkPolicy(private_hosts, setting="TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS")
    transport = HttpPool(network) if proxy is None else httpx2.AsyncHTTPTransport(proxy=proxy, limits=_LIMITS)
    return httpx2.AsyncClient(
        transport=LimitedTransport(transport, most=MAX_ANSWER, most_of_errors=MAX_REFUSAL),
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=False,
        # No passwords from the .netrc of the server's user.
        trust_env=False,
    )


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Limits the size of bodies, separately for errors. What exceeds it is cut or, if ``strict``, an error."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, *, most: int, most_of_errors: int | None = None, strict: bool = False
    ) -> None:
        self._inner = inner
        self._most = most
        self._most_of_errors = most_of_errors or most
        self._strict = strict

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        most = self._most if response.status_code < 300 else self._most_of_errors
        response.stream = _LimitedStream(response.stream, most, strict=self._strict)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most: int, *, strict: bool) -> None:
        self._inner = inner
        self._most = most
        self._strict = strict

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for chunk in self._inner:
            if self._strict and len(chunk) > left:
                raise httpx2.ReadError(f"The response has more than {self._most:,} bytes, the limit.")
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0 and not self._strict:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()
