"""Which machines providers are reached at. A user's address must not lead into the server's own network."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import anyio
import httpcore2

from toolcrib.providers.alarm import Alarm

ANYWHERE = "*"
_FOR_EVER = 365 * 86_400.0
# Addresses that carry another within them, which may be anyone's.
_CARRIERS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))


class GuardedNetwork(httpcore2.AnyIOBackend):
    """Connects to public addresses, and to those private ``host:port`` that the operator allows; ``*`` allows all.

    The address that was looked up and judged is the one that is connected to, so that a name cannot change its mind.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__()
        self._allowed = frozenset(allowed)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as httpcore2 calls it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if self._allowed & {ANYWHERE, f"{host}:{port}"}:
            return _QuickStream(await super().connect_tcp(host, port, timeout, local_address, socket_options))
        failed: Exception | None = None
        for address in await _looked_up(host, port, timeout):
            if not is_public(address):
                raise httpcore2.UnsupportedProtocol(
                    f"{host}:{port} lies inside the server's network. If users may reach it, the operator sets "
                    f"TOOLCRIB_PRIVATE_MODEL_HOSTS={host}:{port}"
                )
            try:
                return _QuickStream(await super().connect_tcp(address, port, timeout, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore2.ConnectError(f"{host} has no address")


class _QuickStream(httpcore2.AsyncNetworkStream):
    """A connection of anyio's that is read without a scope around each read: words come many thousands a second."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        # httpcore2 does not show it.
        self._receive: Callable[[int], Awaitable[bytes]] = inner._stream.receive  # type: ignore[attr-defined]
        self._silence = Alarm()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as it is called
        try:
            with self._silence.after(_FOR_EVER if timeout is None else timeout):
                return await self._receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as it is called
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as it is called
    ) -> httpcore2.AsyncNetworkStream:
        return _QuickStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def is_public(address: str) -> bool:
    """Whether anybody on the internet could reach it; an address that carries another is not taken for public."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    carried = any(found in network for network in _CARRIERS if network.version == found.version)
    return found.is_global and not found.is_multicast and not carried


async def _looked_up(host: str, port: int, seconds: float | None) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise httpcore2.ConnectTimeout(f"{host} could not be looked up in time") from None
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} cannot be looked up: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
