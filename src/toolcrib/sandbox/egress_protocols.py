"""What the egress proxy reads: one plain HTTP/1 request, and the server name of a TLS ClientHello.

Both are parsed strictly. Rejects what two parsers could read differently.
"""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
_TUNNEL = re.compile(r"([A-Za-z0-9.-]+):([0-9]{1,5})")
_ABSOLUTE = re.compile(r"(?i:http)://([A-Za-z0-9.-]+)(?::([0-9]{1,5}))?([/?][^#]*)?")
_AUTHORITY = re.compile(rb"([A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\x20-\x7e\t]*)?\r\n")

# Headers that the proxy sets itself, and headers that would switch the protocol on the connection.
_DROPPED: Final = frozenset({b"connection", b"keep-alive", b"host", b"te", b"trailer"})
_REFUSED: Final = frozenset({b"upgrade", b"http2-settings"})
_PIECE: Final = 1 << 16
_MOST_TRAILERS: Final = 100

HANDSHAKE: Final = 22
CHANGE_CIPHER_SPEC: Final = 20
RECORD_TYPES: Final = frozenset({20, 21, 22, 23, 24})
RECORD_HEADER: Final = 5
# 2^14 bytes, and what encryption may add.
LONGEST_RECORD: Final = (1 << 14) + 256
LONGEST_HELLO: Final = 1 << 16
# A fatal alert: unrecognized_name.
UNRECOGNIZED_NAME: Final = b"\x15\x03\x03\x00\x02\x02\x70"

_CLIENT_HELLO = 1
_SERVER_NAME = 0
# encrypted_client_hello, and the draft before it: the effective name would be unreadable here.
_ENCRYPTED_NAMES = frozenset({0xFE0D, 0xFFCE})


class UnreadableRequest(ValueError):
    """Not a request that every server reads in the same way."""


class ByteReader(Protocol):
    """The required methods of a stream."""

    async def read(self, n: int, /) -> bytes: ...
    async def readexactly(self, n: int, /) -> bytes: ...
    async def readuntil(self, separator: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The host to contact, and the path on it."""

    host: str
    port: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """The head of a request. ``length`` is that of its body, None if it is chunked."""

    method: str
    target: str
    version: str
    headers: tuple[tuple[bytes, bytes], ...]
    host: tuple[str, int] | None
    length: int | None

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    def addressed(self) -> RequestTarget:
        """Return the target that the proxy is asked to contact."""
        if self.is_tunnel:
            found = _TUNNEL.fullmatch(self.target)
            if found is None:
                raise UnreadableRequest("no host and port")
            return RequestTarget(plain_name(found[1]), int(found[2]))
        absolute = _ABSOLUTE.fullmatch(self.target)
        if absolute is None:
            raise UnreadableRequest("no address of a plain request")
        path = absolute[3] or "/"
        return RequestTarget(plain_name(absolute[1]), int(absolute[2] or 80), path if path[0] == "/" else f"/{path}")

    def head(self, target: RequestTarget) -> bytes:
        """Render the head to forward: for this host, and as the last request on its connection."""
        authority = target.host if target.port == 80 else f"{target.host}:{target.port}"
        lines = [f"{self.method} {target.path} HTTP/1.{self.version}".encode(), b"Host: " + authority.encode()]
        lines += [name + b": " + value for name, value in self.headers]
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])

    async def body(self, reader: ByteReader) -> AsyncIterator[bytes]:
        """Yield exactly the body to forward: what follows could be a request to another host."""
        if self.length is None:
            async for piece in _chunks(reader):
                yield piece
            return
        left = self.length
        while left and (piece := await reader.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def parse(head: bytes) -> PlainRequest:
    """Parse a request's head, including the empty line that ends it."""
    line, *rest = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _LINE.fullmatch(line)
    if found is None:
        raise UnreadableRequest("no request line")
    headers = [_header(one) for one in rest]
    names = [name.lower() for name, _ in headers]
    if any(names.count(name) > 1 for name in (b"host", b"content-length", b"transfer-encoding")):
        raise UnreadableRequest("a duplicate header")
    if _REFUSED & set(names):
        raise UnreadableRequest("a change of protocol")
    values = {name.lower(): value for name, value in headers}
    return PlainRequest(
        method=found[1].decode(),
        target=found[2].decode(),
        version=found[3].decode(),
        headers=tuple(
            (name, value)
            for name, value in headers
            if name.lower() not in _DROPPED and not name.lower().startswith(b"proxy-")
        ),
        host=_authority(values[b"host"]) if b"host" in values else None,
        length=_length(values),
    )


def plain_name(host: str) -> str:
    """Normalize a host name for comparison: lower case, without the final dot of a full name."""
    return host.lower().removesuffix(".")


def _header(line: bytes) -> tuple[bytes, bytes]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise UnreadableRequest("no header")
    return found[1], found[2]


def _authority(value: bytes) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(value)
    if found is None:
        raise UnreadableRequest("no host")
    return plain_name(found[1].decode()), int(found[2] or 80)


def _length(values: dict[bytes, bytes]) -> int | None:
    """Return the length of the body. Rejects two different lengths, which would allow request smuggling."""
    length, encoding = values.get(b"content-length"), values.get(b"transfer-encoding")
    if length is not None and encoding is not None:
        raise UnreadableRequest("two lengths")
    if encoding is not None:
        if encoding.lower() != b"chunked":
            raise UnreadableRequest("an unknown encoding")
        return None
    if length is None:
        return 0
    if _DIGITS.fullmatch(length) is None:
        raise UnreadableRequest("no length")
    return int(length)


async def _chunks(reader: ByteReader) -> AsyncIterator[bytes]:
    size = -1
    while size:
        found = _CHUNK.fullmatch(await reader.readuntil(b"\n"))
        if found is None:
            raise UnreadableRequest("no chunk")
        size = left = int(found[1], 16)
        if size:
            yield b"%x\r\n" % size
        while left:
            piece = await reader.read(min(left, _PIECE))
            if not piece:
                return
            left -= len(piece)
            yield piece
        if size:
            if await reader.readexactly(2) != b"\r\n":
                raise UnreadableRequest("no end of a chunk")
            yield b"\r\n"
    # Trailers are dropped: nothing needs them, and some servers could read them as headers.
    for _ in range(_MOST_TRAILERS):
        if await reader.readuntil(b"\n") == b"\r\n":
            yield b"0\r\n\r\n"
            return
    raise UnreadableRequest("too many trailers")


class RejectedHello(Exception):
    """Why the connection may not continue."""


class NameGuard:
    """Follows the records of one client and rejects any ClientHello that names another server.

    There may be two: a server can request a second one, after a change_cipher_spec. Encrypted records pass.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._handshake = bytearray()
        self._encrypts = False
        # Whether a complete ClientHello names the host. Before that, nothing may be forwarded.
        self.is_satisfied = False

    def take(self, kind: int, payload: bytes) -> None:
        """Check one record. Raises ``RejectedHello``."""
        if not self.is_satisfied and kind != HANDSHAKE:
            raise RejectedHello("its TLS does not begin with a ClientHello")
        if kind == CHANGE_CIPHER_SPEC:
            self._encrypts = True
            self._handshake.clear()
        elif kind == HANDSHAKE and payload[:1] and not self._passes(payload):
            self._handshake += payload
            self._take_messages()

    def _passes(self, payload: bytes) -> bool:
        """Whether the record is encrypted: after a change_cipher_spec, everything is except a second ClientHello."""
        return self._encrypts and not self._handshake and payload[0] != _CLIENT_HELLO

    def _take_messages(self) -> None:
        while len(self._handshake) >= 4:
            kind, length = self._handshake[0], int.from_bytes(self._handshake[1:4])
            if not self.is_satisfied and kind != _CLIENT_HELLO:
                raise RejectedHello("its TLS does not begin with a ClientHello")
            if length > LONGEST_HELLO:
                if self._encrypts:
                    # No ClientHello is that long, so it is encrypted.
                    self._handshake.clear()
                    return
                raise RejectedHello("its ClientHello is too long")
            if len(self._handshake) < 4 + length:
                return
            if kind == _CLIENT_HELLO:
                self._check(bytes(self._handshake[4 : 4 + length]))
            del self._handshake[: 4 + length]

    def _check(self, hello: bytes) -> None:
        name = server_name(hello)
        if name != self._host:
            raise RejectedHello(f"its TLS names {name[:253]} instead")
        self.is_satisfied = True


def server_name(hello: bytes) -> str:
    """Return the only server name in a ClientHello body, in lower case.

    Raises:
        RejectedHello: There is no name, or it is encrypted.
    """
    fields = _Fields(hello)
    fields.take(2 + 32)
    fields.vector(1)
    fields.vector(2)
    fields.vector(1)
    if fields.is_empty:
        raise RejectedHello("its TLS names no server")
    extensions = _Fields(fields.vector(2))
    fields.end()
    seen: dict[int, bytes] = {}
    while not extensions.is_empty:
        kind = int.from_bytes(extensions.take(2))
        if kind in seen:
            raise RejectedHello("its ClientHello cannot be read")
        seen[kind] = extensions.vector(2)
    if _ENCRYPTED_NAMES & seen.keys():
        raise RejectedHello("its TLS encrypts the server's name")
    if _SERVER_NAME not in seen:
        raise RejectedHello("its TLS names no server")
    return _only_name(seen[_SERVER_NAME])


def _only_name(extension: bytes) -> str:
    outer = _Fields(extension)
    names = list(_names(_Fields(outer.vector(2))))
    outer.end()
    if len(names) != 1:
        raise RejectedHello("its TLS names several servers")
    try:
        return names[0].decode("ascii").lower()
    except UnicodeDecodeError:
        raise RejectedHello("its ClientHello cannot be read") from None


def _names(entries: "_Fields") -> Iterator[bytes]:
    while not entries.is_empty:
        if entries.take(1) != b"\0":
            raise RejectedHello("its ClientHello cannot be read")
        yield entries.vector(2)


class _Fields:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def is_empty(self) -> bool:
        return not self._data

    def take(self, size: int) -> bytes:
        if len(self._data) < size:
            raise RejectedHello("its ClientHello cannot be read")
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def vector(self, width: int) -> bytes:
        """Read a vector that follows its length of ``width`` bytes."""
        return self.take(int.from_bytes(self.take(width)))

    def end(self) -> None:
        if self._data:
            raise RejectedHello("its ClientHello cannot be read")
