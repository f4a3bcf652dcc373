"""Hostile WebSocket clients: bad handshakes, bad frames, bad messages. Never a 500, never a stall."""

import json
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.redteam.attacks import Attacks
from tests.redteam.generated import SEED
from tests.redteam.raw_websocket import BINARY, CLOSE, PING, TEXT, RawWebSocket, raw_websocket
from tests.redteam.target import Target
from tests.wait_until import PATIENCE

# Close codes for a client that breaks the protocol: protocol error, wrong kind, not UTF-8, policy, too large.
BROKEN = {1002, 1003, 1007, 1008, 1009}
# The server's own error, in our codes and in the protocol's.
SERVER_ERROR_CODES = {1011, 4500}
INTERNAL_ERROR = "internal_error"


@pytest.fixture(autouse=True)
def nothing_unforeseen(target: Target) -> Iterator[None]:
    """The server handles whatever clients send without an unexpected error."""
    before = target.server.logged().count(INTERNAL_ERROR)
    yield
    logged = target.server.logged()
    assert logged.count(INTERNAL_ERROR) == before, logged[logged.rindex(INTERNAL_ERROR) - 500 :][:5000]


def path_of(target: Target) -> str:
    return f"/api/v1{target.ada.workspace}/ws"


def upgrade(target: Target, **changed: str | None) -> dict[str, str]:
    """Return the headers of a valid upgrade request, with changes; None removes one."""
    headers: dict[str, str | None] = {
        "Host": target.server.origin.removeprefix("http://"),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Authorization": target.ada.owner.headers["Authorization"],
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in headers.items() if value is not None}


HANDSHAKES: dict[str, dict[str, str | None]] = {
    "a foreign host": {"Host": "attacker.example"},
    "no host": {"Host": None},
    "a foreign origin": {"Origin": "https://attacker.example"},
    "no origin of any site": {"Origin": "null"},
    "another version": {"Sec-WebSocket-Version": "8"},
    "no version": {"Sec-WebSocket-Version": None},
    "no key": {"Sec-WebSocket-Key": None},
    "a short key": {"Sec-WebSocket-Key": "c2hvcnQ="},
    "a key that is no base64": {"Sec-WebSocket-Key": "%%%"},
    "no upgrade": {"Upgrade": None},
    "another upgrade": {"Upgrade": "h2c"},
    "garbage for a token": {"Authorization": "Bearer garbage"},
    "an endless header": {"X-Long": "x" * 200_000},
    "a spent ticket": {"Authorization": None, "Sec-WebSocket-Protocol": "toolcrib.ticket.garbage"},
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_bad_handshake_opens_no_connection(target: Target, name: str) -> None:
    with raw_websocket(target.server.origin, path_of(target), upgrade(target, **HANDSHAKES[name])) as opened:
        assert opened.status == 0 or 400 <= opened.status < 500


PATHS = {
    "another tenant's workspace": ("/workspaces/{foreign}/ws", 403),
    "no workspace": ("/workspaces/nothing/ws", 400),
    "a token in the address": ("/workspaces/{own}/ws?token=x", 400),
    "a ticket in the address": ("/workspaces/{own}/ws?Ticket=x", 400),
    "a route that is no WebSocket": ("/workspaces/{own}", 0),
    "no route": ("/nothing", 0),
    "a path that climbs": ("/workspaces/{foreign}/../{own}/ws/..", 0),
}


@pytest.mark.parametrize("name", PATHS)
def test_bad_url_opens_no_connection(target: Target, name: str) -> None:
    path, status = PATHS[name]
    own, foreign = target.ada.ids["workspace_id"], target.mallory.ids["workspace_id"]
    asked = f"/api/v1{path.format(own=own, foreign=foreign)}"
    with raw_websocket(target.server.origin, asked, upgrade(target)) as opened:
        assert opened.status == status if status else opened.status in (400, 403, 404, 405)


FRAMES: dict[str, Callable[[RawWebSocket], object]] = {
    "not masked": lambda link: link.send(TEXT, b"{}", masked=False),
    "reserved bits": lambda link: link.send(TEXT, b"{}", rsv=7),
    "compressed, which nobody agreed to": lambda link: link.send(TEXT, b"{}", rsv=4),
    "a reserved opcode": lambda link: link.send(3, b"{}"),
    "a reserved control opcode": lambda link: link.send(11, b""),
    "a continuation of nothing": lambda link: link.send(0, b"{}"),
    "a new message inside another": lambda link: link.send_all((TEXT, b"{", False), (TEXT, b"}", True)),
    "a control frame in parts": lambda link: link.send(PING, b"x", fin=False),
    "a control frame that is too long": lambda link: link.send(PING, b"x" * 126),
    "text that is no text": lambda link: link.send(TEXT, b"\xff\xfe\xfd"),
    "half a character": lambda link: link.send(TEXT, '{"type": "ä'.encode()[:-1]),
    "a surrogate": lambda link: link.send(TEXT, b"\xed\xa0\x80"),
    "a close of one byte": lambda link: link.send(CLOSE, b"\x03"),
    "a close that says nothing is wrong": lambda link: link.send(CLOSE, struct.pack("!H", 1005)),
    "a close with a strange code": lambda link: link.send(CLOSE, struct.pack("!H", 999)),
    "a close that is no text": lambda link: link.send(CLOSE, struct.pack("!H", 1000) + b"\xff"),
    "a length without end": lambda link: link.send(TEXT, b"", length=(1 << 63) - 1),
    "a length that is negative": lambda link: link.send(TEXT, b"", length=1 << 63),
    "a message of 21 MB": lambda link: link.send(TEXT, b"x" * 21_000_000),
    "HTTP": lambda link: link.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_bad_frame_closes_only_its_connection(target: Target, name: str) -> None:
    with raw_websocket(target.server.origin, path_of(target), upgrade(target)) as link:
        assert link.status == 101
        FRAMES[name](link)
        code = link.closing_code()
    assert code in BROKEN | {None}, code


DEEP = "[" * 50_000
NOBODY = "00000000-0000-0000-0000-000000000000"
NO_JSON = ["", " ", "{", "}", "]", "NaN", "Infinity", "1e400", "\ufeff{}", DEEP, DEEP + "]" * 50_000, '{"a":' * 20_000]
NO_TEXT = [b"", b"\0", b"{}", b"\xff" * 1_000]
NO_MESSAGE: list[Any] = [
    None, True, 0, -0.0, "text", [], {}, {"type": None}, {"type": 1}, {"type": []}, {"type": {}}, {"type": "\0"},
    {"type": "\ud800"}, {"type": "x" * 90_000}, {"type": "x", "id": 1e308}, {"type": "x", "id": "x" * 90_000},
    {"type": "chat:ok"}, {"type": "chat:error", "id": {}}, {"__proto__": {}, "type": "constructor"}, {"type": "prompt"},
    {"type": "prompt", "text": 1}, {"type": "prompt", "text": "x", "sessionId": "x"},
    {str(number): number for number in range(5_000)},
]  # fmt: skip
NO_NUMBER: list[Any] = [-1, 1e30, 1 << 63, 1 << 70, "0", []]
NO_PAYLOAD: list[tuple[str, Any]] = [
    ("auth", None), ("auth", {}), ("auth", {"token": ""}), ("auth", {"token": "x", "ticket": "x"}),
    ("auth", {"token": "garbage"}), ("CHAT:SEND", {}), ("chat:send", {}), ("chat:send", []),
    ("chat:cancel", {"conversationId": None}), ("chat:resume", {"conversationId": "x"}),
    ("chat:tool-call", {"conversationId": NOBODY, "tool": "ls", "args": []}),
    *(("chat:resume", {"conversationId": NOBODY, "after": after}) for after in NO_NUMBER),
]  # fmt: skip
MESSAGES: list[str | bytes] = [
    *NO_JSON,
    *NO_TEXT,
    *map(json.dumps, NO_MESSAGE),
    *(json.dumps({"type": type_, "payload": payload}) for type_, payload in NO_PAYLOAD),
]


@contextmanager
def connected(target: Target, protocol: str | None) -> Iterator[ClientConnection]:
    url = f"{target.server.origin.replace('http', 'ws', 1)}{path_of(target)}"
    offered = [Subprotocol(protocol)] if protocol else None
    headers = target.ada.owner.headers
    with connect(
        url,
        additional_headers=headers,
        subprotocols=offered,
        proxy=None,
        open_timeout=PATIENCE,
        compression=None,
        max_queue=None,
    ) as link:
        yield link


@pytest.mark.parametrize("protocol", [None, "toolcrib.chat", "toolcrib.plain"])
def test_bad_message_gets_an_error_or_closes_the_connection(
    target: Target, attacks: Attacks, protocol: str | None
) -> None:
    for message in MESSAGES:
        code = sent(target, protocol, message)
        attacks.judge(f"{protocol}: {message[:80]!r}", held=code not in SERVER_ERROR_CODES, how=code)


@pytest.mark.parametrize(
    "count", [pytest.param(60, id="quick"), pytest.param(3_000, id="campaign", marks=pytest.mark.redteam)]
)
def test_no_generated_message_causes_a_server_error(target: Target, attacks: Attacks, count: int) -> None:
    choose = random.Random(SEED)
    with connected_again(target) as link:
        for number in range(count):
            message = json.dumps(_message(choose, target.ada.ids))
            attacks.judge(message[:200], held=(code := link.send(message, number)) not in SERVER_ERROR_CODES, how=code)


def sent(target: Target, protocol: str | None, message: str | bytes) -> int | None:
    """Send a message, then another; return the close code, or None if the connection stays open."""
    with connected(target, protocol) as link:
        return _sent(link, message)


def _sent(link: ClientConnection, message: str | bytes) -> int | None:
    try:
        link.send(message)
        # The web server itself answers it, and only after it has read everything before.
        assert link.ping().wait(PATIENCE), "the server does not answer any more"
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None
    return None


class Reconnecting:
    """Reconnects as needed: a message may close its connection."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._link: ClientConnection | None = None
        self._context: Any = None

    def send(self, message: str, number: int) -> int | None:
        # A client that does not read is disconnected: it reconnects before that.
        if self._link is None or number % 50 == 0:
            self.close()
            self._context = connected(self._target, None)
            self._link = self._context.__enter__()
        code = _sent(self._link, message)
        if code is not None:
            self.close()
        return code

    def close(self) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)
        self._link = self._context = None


@contextmanager
def connected_again(target: Target) -> Iterator[Reconnecting]:
    link = Reconnecting(target)
    try:
        yield link
    finally:
        link.close()


TYPES = [
    "chat:resume",
    "chat:unsubscribe",
    "chat:watch",
    "chat:tool-call",
    "chat:tool-approve",
    "chat:answer",
    "chat:cancel",
    "chat:send",
]
FIELDS = ["conversationId", "after", "tool", "args", "toolId", "approved", "pauseId", "scope", "reason", "rule",
          "argumentsSha256", "answers", "answeredWithButton", "content", "history", "token", "ticket"]  # fmt: skip


def _message(choose: random.Random, ids: dict[str, str]) -> Any:
    """Return a message of the protocol with values of any kind, some of them valid."""
    good = {
        "conversationId": ids["session_id"], "toolId": ids["call_id"], "pauseId": ids["pause_id"],
        "tool": "ls", "args": {"path": "/"}, "after": 0, "content": "x",
        "answers": {"name": "x"}, "history": [{"role": "user", "content": "x"}], "scope": "once", "approved": False,
    }  # fmt: skip
    odd: list[Any] = [None, True, -1, 1 << 70, 1e308, "", "x" * 2_000, "\0", "\ud800", [], [[]], {}, {"": None}, ids]
    payload = {
        name: good[name] if name in good and choose.random() < 0.7 else choose.choice(odd)
        for name in choose.sample(FIELDS, choose.randrange(1, 6))
    }
    return {"type": choose.choice(TYPES), "payload": payload, "id": choose.choice([1, "x", *odd])}


def test_flood_of_pings_and_large_messages_delays_no_other_client(target: Target) -> None:
    with raw_websocket(target.server.origin, path_of(target), upgrade(target)) as link:
        for _ in range(2_000):
            link.send(PING, b"x" * 125)
        for _ in range(50):
            link.send(BINARY, b"x" * 90_000)
        assert target.http.get(f"{target.server.origin}/health").status_code == 200
        link.send(CLOSE, struct.pack("!H", 1000))
        assert link.closing_code() in {1000, None} | BROKEN
