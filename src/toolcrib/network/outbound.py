"""The client for outgoing HTTP requests. Every connection is judged by its address when it is made.

It follows no redirects, because a key must not be forwarded, and reads neither proxies nor passwords from the
environment.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Final, Self

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.connector import Connection
from yarl import URL

from toolcrib.network.network_policy import (
    AddressDenied,
    NetworkPolicy,
    OutboundError,
    OutboundFailure,
    require_public,
)
from toolcrib.runtime.reusable_timeout import ReusableTimeout

_MOST_CONNECTIONS: Final = 1_000
_KEPT_SECONDS: Final = 30.0
_MOST_TRIED: Final = 3
_HEADERS: Final = {"User-Agent": "toolcrib", "Accept-Encoding": "identity"}

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class OutboundLimits:
    """Seconds for a connection, seconds in which no content arrives, and bytes of a response's body.

    ``error_body``: how much is read of a response that is not a success.
    """

    connect: float = 10.0
    silence: float = 120.0
    body: int = 64 * 1024 * 1024
    error_body: int = 64 * 1024


class Outbound:
    """Sends requests while its context lasts. Without a proxy, connections to private addresses are not made.

    With a proxy the target's address is judged before the request; a name that only the proxy can resolve is left to
    the proxy.
    """

    def __init__(
        self, network: NetworkPolicy, *, limits: OutboundLimits | None = None, proxy: str | None = None
    ) -> None:
        self._network = network
        self._limits = limits or OutboundLimits()
        self._proxy = proxy
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        guarded = _Connector(
            limit=_MOST_CONNECTIONS,
            keepalive_timeout=_KEPT_SECONDS,
            resolver=_PublicResolver(),
            socket_factory=_public_socket,
        )
        free = _Connector(limit=_MOST_CONNECTIONS, keepalive_timeout=_KEPT_SECONDS, resolver=aiohttp.ThreadedResolver())
        self._guarded = await self._opened.enter_async_context(self._session(guarded))
        self._free = await self._opened.enter_async_context(self._session(free))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    @asynccontextmanager
    async def request(
        self, method: str, url: str | URL, *, headers: Headers = (), body: bytes | None = None
    ) -> AsyncIterator["Reply"]:
        """Send a request and wait for the head of its response. Leaving the context before its end disconnects.

        Raises:
            OutboundError: There is no response. Reading the body raises the same error.
        """
        target = _parsed(url)
        host, port = target.raw_host or "", target.port or 0
        session = self._guarded
        if self._network.permits(host, port):
            session = self._free
        elif self._proxy is not None:
            await self._judge(host, port)
            session = self._free
        tls = await _trusted(target, self._proxy)
        try:
            # Also limits a server that does not read, or that sends only interim responses.
            async with asyncio.timeout(self._limits.connect + self._limits.silence):
                response = await session.request(
                    method,
                    target,
                    headers=headers,
                    # As a file, which is sent in pieces: a long conversation must not hold the event loop.
                    data=BytesIO(body) if body is not None else None,
                    proxy=self._proxy,
                    ssl=tls,
                    allow_redirects=False,
                )
        except _FAILURES as error:
            raise self._error(error, host, port) from error
        reply = Reply(response, self._limits)
        try:
            yield reply
        finally:
            reply.close()

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        limits = self._limits
        return aiohttp.ClientSession(
            connector=connector,
            # Silence is measured by the reader: frames without content are not a sign of life.
            timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect, sock_connect=limits.connect),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def _judge(self, host: str, port: int) -> None:
        try:
            # Without the dot of an absolute name, which the machine's own names lack.
            found = await asyncio.get_running_loop().getaddrinfo(host.rstrip("."), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        try:
            for entry in found:
                require_public(str(entry[4][0]))
        except AddressDenied:
            raise self._network.denial(host, port) from None

    def _error(self, error: Exception, host: str, port: int) -> OutboundError:
        match error:
            case aiohttp.ClientConnectorError(os_error=AddressDenied()):
                return self._network.denial(host, port)
            case aiohttp.ClientConnectorDNSError():
                return OutboundError(OutboundFailure.UNREACHABLE, f"Cannot resolve {host}: {error.os_error}")
            case aiohttp.ClientConnectorCertificateError():
                return OutboundError(OutboundFailure.CERTIFICATE, f"{host}:{port}: {error.certificate_error}")
            case aiohttp.ClientConnectorError():
                return OutboundError(OutboundFailure.UNREACHABLE, f"{host}:{port}: {error.os_error}")
            case aiohttp.ConnectionTimeoutError():
                return OutboundError(OutboundFailure.UNREACHABLE, f"{host}:{port} does not respond")
            case aiohttp.ClientHttpProxyError():
                return OutboundError(OutboundFailure.UNREACHABLE, f"The proxy answered with HTTP {error.status}")
        return _broken(error)


class Reply:
    """A response whose body is read once: iterated as it arrives, or as a whole."""

    def __init__(self, response: aiohttp.ClientResponse, limits: OutboundLimits) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._content = response.content
        self._alarm = ReusableTimeout()
        self._limits = limits
        self._left = limits.body

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return everything that arrived since the last read: a busy process has less work per byte, not more."""
        try:
            with self._alarm.after(self._limits.silence):
                piece = await self._content.readany()
        except _FAILURES as error:
            raise _broken(error) from error
        if not piece:
            raise StopAsyncIteration
        self._left -= len(piece)
        if self._left < 0:
            limit = f"{self._limits.body:,} bytes"
            raise OutboundError(OutboundFailure.TOO_LARGE, f"The response is larger than {limit}, the limit")
        return piece

    def close(self) -> None:
        """End the response. Its connection is kept only if the body was read to its end."""
        self._alarm.close()
        self._response.release()

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self])

    async def excerpt(self) -> str:
        """Return the beginning of the body of an error."""
        text = bytearray()
        async for piece in self:
            text += piece
            if len(text) >= self._limits.error_body:
                break
        return text[: self._limits.error_body].decode(errors="replace")


class _Connector(aiohttp.TCPConnector):
    """Uses no connection on which data arrived without a request: it would be taken for the next response."""

    async def connect(self, *args: Any, **kwargs: Any) -> Connection:
        for _ in range(_MOST_TRIED):
            connection = await super().connect(*args, **kwargs)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ClientConnectionError("The server sent data without a request")


class _PublicResolver(aiohttp.ThreadedResolver):
    """Refuses a name as soon as one of its addresses is private, before any is tried."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        for entry in found:
            require_public(entry["host"])
        return found


def _public_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create the socket of a connection, if its address is public. An IP address in a URL is judged only here."""
    family, kind, protocol, _, where = address
    require_public(str(where[0]))
    return socket.socket(family, kind, protocol)


_FAILURES: Final = (aiohttp.ClientError, TimeoutError, ValueError)


def _broken(error: Exception) -> OutboundError:
    match error:
        case TimeoutError():
            return OutboundError(OutboundFailure.TIMEOUT, "The server stopped sending data")
        case aiohttp.ClientResponseError():
            return OutboundError(OutboundFailure.BROKEN, f"The server does not speak HTTP: {error.message}")
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            text = "The server closed the connection before the response was complete, or sent an invalid one"
            return OutboundError(OutboundFailure.BROKEN, text)
        case aiohttp.ClientConnectionError():
            return OutboundError(OutboundFailure.BROKEN, f"The connection failed: {error}")
        case aiohttp.InvalidURL():
            return OutboundError(OutboundFailure.INVALID, "Not a URL: its host is not written in the usual way")
    # What the client refuses to send: a header with a line end.
    return OutboundError(OutboundFailure.INVALID, "The request is invalid")


def _parsed(url: str | URL) -> URL:
    try:
        target = URL(url)
        sound = target.scheme in ("http", "https") and bool(target.raw_host) and bool(target.port)
    except ValueError as error:
        raise OutboundError(OutboundFailure.INVALID, f"Not a URL: {error}") from None
    if not sound:
        raise OutboundError(OutboundFailure.INVALID, "Only http:// and https:// with a host are supported in URLs")
    return target


async def _trusted(target: URL, proxy: str | None) -> ssl.SSLContext | bool:
    if target.scheme == "http" and not (proxy or "").startswith("https:"):
        return True
    return await asyncio.to_thread(trusted_certificates)


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Return the machine's certificates. Loading them takes a tenth of a second, so it happens once."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
