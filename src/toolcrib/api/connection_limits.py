"""Limits of client connections: deadlines, eviction of the oldest ones under load, and the number of long-lived ones.

A client that connects and sends nothing, sends half a request, or does not read its response occupies a file
descriptor. So each phase has a deadline. When too many connections wait, the one that has waited longest is closed, so
that a new client with a complete request is always served. Requests that were received completely are counted by the
request guard; WebSockets and event streams here, per user and per node, in this process only.
"""

import asyncio
import resource
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Final

import structlog
from fastapi import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolcrib.core.ids import UserId

_log = structlog.get_logger(__name__)

_SWEEP_SECONDS: Final = 1.0
_LOG_EVERY_SECONDS: Final = 10.0
_MOST_HEADER_BYTES: Final = 65_536
# Reserved for files, database connections and processes.
_KEPT_DESCRIPTORS: Final = 512
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class PhaseDeadlines:
    """Time limits for the client, in seconds."""

    # From connecting, or from the first byte of a request, to the end of its headers.
    header: float = 10.0
    # Between two parts of a body, and for the whole body.
    piece: float = 20.0
    body: float = 300.0
    # To read the response.
    write: float = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionCapacity:
    """How many connections may wait: in total and per address. ``trusted`` proxies are exempt from the latter."""

    in_all: int
    from_one: int
    # Addresses, networks such as 10.0.0.0/8, or ``*``.
    trusted: frozenset[str] = field(default=frozenset())

    def trusts(self, address: str) -> bool:
        """Return whether connections from this address are those of a trusted proxy."""
        if not self.trusted.isdisjoint({address, "*"}):
            return True
        networks = [part for part in self.trusted if "/" in part]
        try:
            return any(ip_address(address) in ip_network(network, strict=False) for network in networks)
        except ValueError:
            return False

    @classmethod
    def here(cls, trusted_proxies: str | None = None) -> "ConnectionCapacity":
        """Return the capacity that the descriptor limit of this process allows."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 65_536
        in_all = min(4_096, max(64, (descriptors - _KEPT_DESCRIPTORS) // 2))
        trusted = frozenset(part.strip() for part in (trusted_proxies or "").split(",") if part.strip())
        return cls(in_all, max(32, in_all // 4), trusted)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class ConnectionRegistry:
    """The connections of one server that wait for their client, the longest-waiting first."""

    def __init__(self, room: ConnectionCapacity, patience: PhaseDeadlines | None = None) -> None:
        self.patience = patience or PhaseDeadlines()
        self._room = room
        self._open: set[DeadlineProtocol] = set()
        self._waiting: OrderedDict[DeadlineProtocol, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[DeadlineProtocol, None]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._logged = -_NEVER

    def protocol(self) -> type["DeadlineProtocol"]:
        """Return the protocol class for uvicorn, bound to this registry."""
        return type("Connection", (DeadlineProtocol,), {"guard": self})

    def came(self, connection: "DeadlineProtocol") -> None:
        """Add a new connection."""
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(_SWEEP_SECONDS, self._sweep, connection.loop)

    def waits(self, connection: "DeadlineProtocol") -> None:
        """Mark the connection as waiting for its client. Closes the longest-waiting one if there are too many."""
        if connection in self._waiting:
            return
        of_address = self._by_address.setdefault(connection.address, OrderedDict())
        self._waiting[connection] = of_address[connection] = None
        if len(of_address) > self._room.from_one and not self._room.trusts(connection.address):
            self._let_go(next(iter(of_address)))
        if len(self._waiting) > self._room.in_all:
            self._let_go(next(iter(self._waiting)))

    def works(self, connection: "DeadlineProtocol") -> None:
        """Mark the connection as not waiting for its client."""
        if connection not in self._waiting:
            return
        del self._waiting[connection]
        of_address = self._by_address[connection.address]
        del of_address[connection]
        if not of_address:
            del self._by_address[connection.address]

    def left(self, connection: "DeadlineProtocol") -> None:
        """Remove a connection."""
        self.works(connection)
        self._open.discard(connection)

    def _let_go(self, connection: "DeadlineProtocol") -> None:
        self.left(connection)
        connection.transport.abort()
        now = connection.loop.time()
        if now - self._logged > _LOG_EVERY_SECONDS:
            self._logged = now
            _log.warning("connections.limit_reached", waiting=len(self._waiting), address=connection.address)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in [one for one in self._open if one.due <= now]:
            self.left(connection)
            connection.transport.abort()
        self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep, loop) if self._open else None


class DeadlineProtocol(HttpToolsProtocol):
    """A connection that tracks what it waits for and until when."""

    guard: ConnectionRegistry

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.address = ""
        # None while a body is received.
        self._header_bytes: int | None = 0
        self._unanswered = 0
        self._read_due = _NEVER
        self._body_due = _NEVER
        self._write_due = _NEVER

    @property
    def due(self) -> float:
        """The time at which the connection is closed."""
        return min(self._read_due, self._write_due)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._read_due = self.loop.time() + self.guard.patience.header
        self.guard.came(self)
        self.guard.waits(self)

    def data_received(self, data: bytes) -> None:
        if self._header_bytes is not None:
            if not self._header_bytes and self._read_due == _NEVER:
                # The next request on a keep-alive connection.
                self._read_due = self.loop.time() + self.guard.patience.header
            self._header_bytes += len(data)
        elif self._body_due != _NEVER:
            self._read_due = min(self._body_due, self.loop.time() + self.guard.patience.piece)
        super().data_received(data)
        if self._header_bytes is not None and self._header_bytes > _MOST_HEADER_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        now = self.loop.time()
        self._header_bytes = None
        self._body_due = now + self.guard.patience.body
        self._read_due = now + self.guard.patience.piece
        self._unanswered += 1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._header_bytes = 0
        self._body_due = self._read_due = _NEVER
        super().on_message_complete()
        if self._unanswered:
            self.guard.works(self)

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        super().on_response_complete()
        if not self._unanswered and not self.transport.is_closing():
            # From here on uvicorn's keep-alive timeout applies, until the next request starts.
            self.guard.waits(self)

    def handle_websocket_upgrade(self) -> None:
        # WebSockets are counted by ``ConnectionLimits``.
        self.guard.left(self)
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        self._write_due = self.loop.time() + self.guard.patience.write
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_due = _NEVER
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.left(self)
        super().connection_lost(exc)


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Timeouts of long-lived connections, in seconds."""

    # For a client to authenticate, if it did not do so when it connected.
    introduce: float = 10.0
    # For a client to read a message. A slower one is disconnected and may resume later.
    stall: float = 10.0
    # Between two checks whether the connection is still authorized.
    check: float = 30.0
    # Between two heartbeats on an idle stream.
    beat: float = 15.0


class ConnectionLimits:
    """Counts open connections."""

    def __init__(self, *, per_person: int = 64, in_all: int = 5_000, pace: ConnectionTimeouts | None = None) -> None:
        self.pace = pace or ConnectionTimeouts()
        self._per_person = per_person
        self._in_all = in_all
        self._inside: Counter[UserId] = Counter()
        self._strangers = 0
        self._waiting: dict[UserId, set[asyncio.Event]] = {}
        # The server stops: event streams end.
        self.is_closed = False

    def close(self) -> None:
        """End all event streams. Their clients connect again, to another node or to the next process."""
        self.is_closed = True
        self.wake(list(self._waiting))

    @property
    def is_anyone_waiting(self) -> bool:
        """Whether any connection waits for a check."""
        return bool(self._waiting)

    async def wait(self, user_id: UserId, seconds: float) -> None:
        """Wait until the next authorization check of a user's connection: after a while, or when ``wake`` is called."""
        woken = asyncio.Event()
        self._waiting.setdefault(user_id, set()).add(woken)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await woken.wait()
        except TimeoutError:
            return
        finally:
            self._waiting[user_id].discard(woken)
            if not self._waiting[user_id]:
                del self._waiting[user_id]

    def wake(self, people: Collection[UserId]) -> None:
        """Check the connections of these users now."""
        for user_id in people:
            for waiting in self._waiting.get(user_id, ()):
                waiting.set()

    @contextmanager
    def unauthenticated(self) -> Iterator[None]:
        """Count a connection that is not authenticated yet."""
        if self._strangers >= self._in_all // 10:
            raise _too_many_connections("Too many connections are waiting for authentication. Try again in a moment.")
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    @contextmanager
    def authenticated(self, user_id: UserId) -> Iterator[None]:
        """Count a user's connection while it lasts.

        Raises:
            HTTPException: 429. The user or the node has too many.
        """
        if self._inside[user_id] >= self._per_person:
            raise _too_many_connections(f"You have {self._per_person} live connections open. Close one first.")
        if self._inside.total() >= self._in_all:
            raise _too_many_connections("This node has reached its limit of live connections. Try again in a moment.")
        self._inside[user_id] += 1
        try:
            yield
        finally:
            self._inside[user_id] -= 1
            if not self._inside[user_id]:
                del self._inside[user_id]


def _too_many_connections(words: str) -> HTTPException:
    return HTTPException(429, words, {"Retry-After": "5"})
