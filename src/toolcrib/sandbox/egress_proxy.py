"""HTTP proxy for commands with granted hosts. Pins addresses and denies private ones.

A grant is for a name, not for an address that many share: the traffic must name the same host, in the TLS server name
or in the Host header of every plain request. The sandbox has no network. The proxy listens on a socket file in the
view, and ``proxy_bridge`` inside offers it as an ordinary HTTP proxy. Every contact and denial is recorded.
"""

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolcrib.core.ip_addresses import CLOUD_METADATA, IpAddress, is_public
from toolcrib.sandbox.command import HostContact
from toolcrib.sandbox.egress_protocols import (
    HANDSHAKE,
    LONGEST_HELLO,
    LONGEST_RECORD,
    RECORD_HEADER,
    RECORD_TYPES,
    UNRECOGNIZED_NAME,
    NameGuard,
    PlainRequest,
    RejectedHello,
    RequestTarget,
    UnreadableRequest,
    parse,
)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

SOCKET: Final = "egress.sock"
PORTS: Final = (80, 443)
# Why a contact is refused that could be granted.
NOT_GRANTED: Final = "not granted"
# Why one is refused that only the operator can permit.
PRIVATE_ADDRESS: Final = "its address is private"
_HOST = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]\Z")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_LONGEST_HEAD: Final = 16_384
_HEAD_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 15.0
_MOST_CONNECTIONS: Final = 64
_MOST_NOTED: Final = 1_000
_PIECE: Final = 1 << 16


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


@dataclass(frozen=True, slots=True)
class EgressNetwork:
    """How names are resolved, and which addresses may be contacted.

    Attributes:
        permits: Whether a host and port that was granted by its name, not by a wildcard, may have private addresses,
            because the operator permits it. Where clouds offer the credentials of the machine stays denied.
    """

    resolve: Resolve = resolve_by_system
    allows: Callable[[IpAddress], bool] = is_public
    permits: Callable[[str, int], bool] = lambda _, __: False

    def may_connect(self, host: str, port: int, address: IpAddress, *, by_name: bool = True) -> bool:
        """Whether a command may connect to an address of a host that was granted, by this name or by a wildcard."""
        return self.allows(address) or (by_name and self.permits(host, port) and not _may_be_metadata(address))


def _may_be_metadata(address: IpAddress) -> bool:
    """Whether clouds offer the credentials of their machines at such an address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _may_be_metadata(address.ipv4_mapped)
        if address in _NAT64:
            return _may_be_metadata(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return address.is_link_local or address in CLOUD_METADATA


class EgressProxy:
    """The proxy of one command. ``on_contact`` gets every contact and denial."""

    def __init__(
        self,
        hosts: Sequence[str],
        network: EgressNetwork,
        *,
        on_contact: Callable[[HostContact], None] = lambda _: None,
    ) -> None:
        self._hosts = tuple(host.lower() for host in hosts)
        self._network = network
        self._on_contact = on_contact
        self._noted: dict[HostContact, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def contacted(self) -> tuple[HostContact, ...]:
        return tuple(self._noted)

    @asynccontextmanager
    async def listening(self, folder: Path) -> AsyncIterator[None]:
        """Listen on a socket file in ``folder``. At the end of the block, closes every connection."""
        # Bind through a descriptor: a socket path is limited to 108 bytes.
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

    def denial(self, host: str, port: int) -> str | None:
        """Return why a host name is denied; None if it is granted."""
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
        return NOT_GRANTED

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _MOST_CONNECTIONS:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # A peer that disconnected, or that does not use HTTP.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            request = parse(await reader.readuntil(b"\r\n\r\n"))
        target = request.addressed()
        try:
            address = await self._authorize(target)
        except RejectedHello as refused:
            remedy = ". Name the host in the `hosts` of the call" if str(refused) == NOT_GRANTED else ""
            await _deny(writer, target, f"{refused}{remedy}")
            return
        if request.is_tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._tunnel(reader, writer, target, address)
        else:
            await self._send(request, target, address, reader, writer)

    async def _tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: RequestTarget, address: str
    ) -> None:
        """Forward a tunnel. Its content must name the host as well, because many hosts share an address."""
        async with asyncio.timeout(_HEAD_SECONDS):
            first = await reader.readexactly(1)
        if first[0] == HANDSHAKE:
            await self._tunnel_tls(reader, writer, target, address)
            return
        async with asyncio.timeout(_HEAD_SECONDS):
            request = parse(first + await reader.readuntil(b"\r\n\r\n"))
        if not request.target.startswith("/") or request.is_tunnel:
            raise UnreadableRequest("no path")
        await self._send(request, replace(target, path=request.target), address, reader, writer)

    async def _tunnel_tls(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: RequestTarget, address: str
    ) -> None:
        guard, held = NameGuard(target.host), bytearray()
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                held += bytes([HANDSHAKE]) + await _record(reader, guard, HANDSHAKE)
                while not guard.is_satisfied:
                    held += await _record(reader, guard)
                    if len(held) > LONGEST_HELLO:
                        raise RejectedHello("its ClientHello is too long")
        except RejectedHello as refused:
            self._refuse(target, str(refused))
            writer.write(UNRECOGNIZED_NAME)
            await writer.drain()
            return
        far_reader, far_writer = await self._connect(target, address)
        try:
            far_writer.write(held)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._guarded(reader, far_writer, guard, target))
                group.create_task(_one_way(far_reader, writer))
        finally:
            far_writer.close()

    async def _guarded(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guard: NameGuard, target: RequestTarget
    ) -> None:
        """Forward record by record: a server may request a second ClientHello, which must not name another host."""
        try:
            while True:
                writer.write(await _record(reader, guard))
                await writer.drain()
        except RejectedHello as refused:
            self._refuse(target, str(refused))
            writer.close()
        except asyncio.IncompleteReadError:
            with suppress(OSError):
                writer.write_eof()
        except OSError:
            writer.close()

    async def _send(
        self,
        request: PlainRequest,
        target: RequestTarget,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Forward one request with its body, and the response. Further requests on the connection are not read."""
        if request.host is not None and request.host != (target.host, target.port):
            self._refuse(target, f"its Host is {request.host[0][:253]}")
            await _deny(writer, target, f"its Host is {request.host[0][:253]}")
            return
        far_reader, far_writer = await self._connect(target, address)
        try:
            far_writer.write(request.head(target))
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(_send_body(request, reader, far_writer))
                await _one_way(far_reader, writer)
                # After its response, the server needs no more of the body.
                sending.cancel()
        finally:
            far_writer.close()

    async def _authorize(self, target: RequestTarget) -> str:
        """Return the address to contact. Raises ``RejectedHello`` if none is allowed."""
        refused = self.denial(target.host, target.port)
        if refused is None:
            try:
                found = await self._network.resolve(target.host, target.port)
            except OSError:
                found = []
            # What a wildcard covers is chosen by whoever serves the domain's names.
            by_name = any(target.host == granted.partition(":")[0] for granted in self._hosts)
            for address in found:
                judged = ipaddress.ip_address(address.partition("%")[0])
                if self._network.may_connect(target.host, target.port, judged, by_name=by_name):
                    return address
            refused = PRIVATE_ADDRESS if found else "its name has no address"
        self._refuse(target, refused)
        raise RejectedHello(refused)

    async def _connect(self, target: RequestTarget, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the very address that was checked. The name is not resolved again."""
        self._note(HostContact(target.host, target.port))
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(address, target.port)

    def _refuse(self, target: RequestTarget, why: str) -> None:
        self._note(HostContact(target.host[:255], target.port, why))

    def _note(self, contact: HostContact) -> None:
        self._on_contact(contact)
        if len(self._noted) < _MOST_NOTED:
            self._noted[contact] = None


async def _record(reader: asyncio.StreamReader, guard: NameGuard, kind: int | None = None) -> bytes:
    """Read the client's next TLS record and pass it to the guard. Omits the first byte if it was already read."""
    first = b"" if kind is not None else await reader.readexactly(1)
    kind = first[0] if kind is None else kind
    rest = await reader.readexactly(RECORD_HEADER - 1)
    length = int.from_bytes(rest[2:])
    if kind not in RECORD_TYPES or rest[0] != 3 or length > LONGEST_RECORD:
        raise RejectedHello("its TLS cannot be read")
    payload = await reader.readexactly(length)
    guard.take(kind, payload)
    return first + rest + payload


async def _send_body(request: PlainRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async for piece in request.body(reader):
            writer.write(piece)
            await writer.drain()
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.close()


async def _deny(writer: asyncio.StreamWriter, target: RequestTarget, why: str) -> None:
    body = f"{target.host}:{target.port} was not contacted: {why}.\n".encode()
    writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()
