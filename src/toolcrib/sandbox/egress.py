"""The way out for a command that was granted hosts: a proxy that pins addresses and refuses private ones.

The sandbox has no network. The proxy listens on a socket file that stands in the view, and a small bridge inside
(see bridge.py) offers it as an ordinary HTTP proxy. What is contacted, or was refused, is written down.
"""

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from toolcrib.sandbox.command import Contact

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

SOCKET: Final = "egress.sock"
PORTS: Final = (80, 443)
_HOST = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]\Z")
# Ways to say an IPv4 address in IPv6; some of them count as global.
_TRANSLATIONS: Final = tuple(
    ipaddress.IPv6Network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
)
_LONGEST_HEAD: Final = 16_384
_HEAD_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 15.0
_MOST_CONNECTIONS: Final = 64
_MOST_NOTED: Final = 1_000
_PIECE: Final = 1 << 16


def is_public(address: IpAddress) -> bool:
    """Whether an address is on the open internet, also when it hides another."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if any(address in net for net in _TRANSLATIONS):
            return False
    return address.is_global and not address.is_multicast


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


@dataclass(frozen=True, slots=True)
class Network:
    """How names become addresses, and which addresses may be contacted."""

    resolve: Resolve = resolve_by_system
    allows: Callable[[IpAddress], bool] = is_public


class Egress:
    """The proxy of one call."""

    def __init__(self, hosts: Sequence[str], network: Network) -> None:
        self._hosts = tuple(host.lower() for host in hosts)
        self._network = network
        self._noted: dict[Contact, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def contacted(self) -> tuple[Contact, ...]:
        return tuple(self._noted)

    @asynccontextmanager
    async def listening(self, folder: Path) -> AsyncIterator[None]:
        """Listen on a socket file in ``folder`` until left; then every connection is cut."""
        # By descriptor: the path of a socket may have 108 bytes only.
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"/proc/self/fd/{here}/{SOCKET}")
        finally:
            os.close(here)
        server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LONGEST_HEAD)
        try:
            yield
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def refusal(self, host: str, port: int) -> str | None:
        """Why a host may not be contacted by its name; None if it may."""
        if not _HOST.match(host):
            return "not a host name"
        for granted in self._hosts:
            name, _, granted_port = granted.partition(":")
            if granted_port and int(granted_port) != port:
                continue
            if not granted_port and port not in PORTS:
                continue
            if host == name or (name.startswith("*.") and host.endswith(name[1:])):
                return None
        return "not granted"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _MOST_CONNECTIONS:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # a peer that went away, or that does not speak HTTP
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        tunnel = method == "CONNECT"
        host, port, path = _parsed(target, tunnel=tunnel)
        upstream = await self._reach(host, port)
        if isinstance(upstream, str):
            body = f"{host}:{port} was not contacted: {upstream}. Ask for the host to be granted.\n".encode()
            writer.write(
                b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            await writer.drain()
            return
        far_reader, far_writer = upstream
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(f"{method} {path} {version}\r\n".encode() + _closing(rest))
            await _both_ways((reader, far_writer), (far_reader, writer))
        finally:
            far_writer.close()

    async def _reach(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | str:
        """A connection to the one address that was judged, or why there is none."""
        refused = self.refusal(host, port)
        addresses: list[str] = []
        if refused is None:
            try:
                found = await self._network.resolve(host, port)
            except OSError:
                found = []
            addresses = [
                found_ for found_ in found if self._network.allows(ipaddress.ip_address(found_.partition("%")[0]))
            ]
            if not addresses:
                refused = "its address is private" if found else "its name has no address"
        self._note(Contact(host[:255], port, refused))
        if refused:
            return refused
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(addresses[0], port)

    def _note(self, contact: Contact) -> None:
        if len(self._noted) < _MOST_NOTED:
            self._noted[contact] = None


def _parsed(target: str, *, tunnel: bool) -> tuple[str, int, str]:
    """Host, port and path of a request. What is odd about a host is left in it, and then refused."""
    if tunnel:
        host, _, port = target.rpartition(":")
        return host.lower().removesuffix("."), int(port), ""
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"no address of a plain request: {target[:100]}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.hostname.lower().removesuffix("."), parts.port or 80, path


def _closing(headers: bytes) -> bytes:
    """One request per connection: a second one could be for another host."""
    kept = [
        line
        for line in headers.split(b"\r\n")
        if line and not line.lower().startswith((b"connection:", b"proxy-", b"keep-alive:"))
    ]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


async def _both_ways(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    async with asyncio.TaskGroup() as group:
        for reader, writer in ways:
            group.create_task(_one_way(reader, writer))


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()
