"""A WebSocket client that breaks the protocol: it writes frames by hand and reads how the server closes."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.wait_until import PATIENCE

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@dataclass
class RawWebSocket:
    """A connection after the upgrade request, whatever the server's response."""

    connection: socket.socket
    status: int
    received: bytes

    def send(
        self,
        opcode: int,
        payload: bytes = b"",
        *,
        fin: bool = True,
        rsv: int = 0,
        masked: bool = True,
        length: int = -1,
    ) -> None:
        """Send one frame. ``length`` is the declared length, if it differs from the real one."""
        claimed = len(payload) if length < 0 else length
        first = (0x80 if fin else 0) | rsv << 4 | opcode
        mask_bit = 0x80 if masked else 0
        if claimed < 126:
            head = struct.pack("!BB", first, mask_bit | claimed)
        elif claimed < 1 << 16:
            head = struct.pack("!BBH", first, mask_bit | 126, claimed)
        else:
            head = struct.pack("!BBQ", first, mask_bit | 127, claimed)
        mask = os.urandom(4) if masked else b""
        self.write(head + mask + (_masked(payload, mask) if masked else payload))

    def send_all(self, *frames: tuple[int, bytes, bool]) -> None:
        """Send frames, each with an opcode, a payload, and whether it ends its message."""
        for opcode, payload, fin in frames:
            self.send(opcode, payload, fin=fin)

    def write(self, data: bytes) -> None:
        """Send raw bytes. A server that has already closed may not read them."""
        try:
            self.connection.sendall(data)
        except OSError:
            return

    def closing_code(self) -> int | None:
        """Return the close code; None if the server only disconnects. Fails if it does neither."""
        data = self.received
        while True:
            while (frame := _frame(data)) is not None:
                opcode, payload, data = frame
                if opcode == CLOSE:
                    return int(struct.unpack("!H", payload[:2])[0]) if len(payload) >= 2 else 1005
            try:
                more = self.connection.recv(65_536)
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more


@contextmanager
def raw_websocket(origin: str, path: str, headers: dict[str, str], *, method: str = "GET") -> Iterator[RawWebSocket]:
    """Request an upgrade with exactly these headers."""
    parts = urlsplit(origin)
    assert parts.hostname
    assert parts.port
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as connection:
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        connection.sendall("\r\n".join(lines).encode("latin-1", errors="replace"))
        said = b""
        while b"\r\n\r\n" not in said and (more := _received(connection)):
            said += more
        head, _, rest = said.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
        yield RawWebSocket(connection, status, rest)


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def _frame(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Return the first complete frame of a server, and what follows it."""
    if len(data) < 2:
        return None
    length, at = data[1] & 0x7F, 2
    if length == 126:
        length, at = int.from_bytes(data[2:4], "big"), 4
    elif length == 127:
        length, at = int.from_bytes(data[2:10], "big"), 10
    if len(data) < at + length:
        return None
    return data[0] & 0x0F, data[at : at + length], data[at + length :]
