"""Parses the server name of a TLS ClientHello strictly. Rejects what two parsers could read differently."""

from collections.abc import Iterator
from typing import Final

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
