"""Parses one plain HTTP/1 request strictly and renders it again. Rejects what two servers could read differently."""

import re
from collections.abc import AsyncIterator
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
