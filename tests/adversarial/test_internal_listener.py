"""The internal listener serves nodes of its installation and nobody else, and a node believes nobody else."""

import asyncio
import json
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

import httpx2
import jwt
import pytest

from tests.faults.server import free_port
from tests.wait_until import PATIENCE
from toolcrib.api.access_tokens import AccessTokens
from toolcrib.core.errors import Unauthenticated
from toolcrib.core.ids import UserId, new_id
from toolcrib.nodes.internal_channel import Answer, AnswerLost, Emit, FrameKind, InternalListener, NodeClient, NotSent
from toolcrib.nodes.node_tokens import LIFETIME_SECONDS, NodeTokens

SECRET = token_urlsafe(48)
BODY = b'{"tool": "write"}'
MOST_BYTES = 100_000


def digest(body: bytes = BODY) -> str:
    return sha256(body).hexdigest()


class Home:
    """A listener with the name ``home`` that keeps what it was told to do."""

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.tokens = NodeTokens(SECRET, node="home", address=self.address, clock=time.time)
        self.is_alive = True
        self.hanging = asyncio.Event()
        self.done: list[tuple[str, bytes]] = []

    async def handle(self, operation: str, body: bytes, emit: Emit) -> Answer:
        self.done.append((operation, body))
        if operation == "stream":
            for number in range(3):
                emit(f"line {number}\n")
                # Until the next line the listener has time to send this one.
                await asyncio.to_thread(int)
        if operation == "hang":
            self.hanging.set()
            await asyncio.Event().wait()
        return FrameKind.RESULT, b'"done"'

    async def post(self, token: str | None, *, operation: str = "execute", body: bytes = BODY) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
            return await http.post(f"{self.address}/internal/{operation}", content=body, headers=headers)


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    made = Home()
    async with InternalListener(
        made.tokens,
        made.handle,
        host="127.0.0.1",
        port=made.port,
        most_bytes=MOST_BYTES,
        lease=1.0,
        is_alive=lambda: made.is_alive,
    ):
        yield made


def caller(secret: str = SECRET, *, clock: Callable[[], float] = time.time) -> NodeTokens:
    return NodeTokens(secret, node="caller", address="http://127.0.0.1:1", clock=clock)


def token_for(home: Home, tokens: NodeTokens | None = None, *, node: str = "home", body: bytes = BODY) -> str:
    return (tokens or caller()).issue(node, home.address, "execute", digest(body))[0]


async def refused(home: Home, token: str | None, **given: Any) -> None:
    answer = await home.post(token, **given)

    assert (answer.status_code, answer.content) == (401, b"")
    assert home.done == []


async def test_node_of_the_installation_is_served(home: Home) -> None:
    assert (await home.post(token_for(home))).status_code == 200
    assert home.done == [("execute", BODY)]


async def test_request_without_a_token_gets_401_and_nothing_more(home: Home) -> None:
    await refused(home, None)
    await refused(home, "nonsense")
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        for path in ("/", "/health", "/internal/ping", "/api/v1/openapi.json"):
            answer = await http.get(f"{home.address}{path}")
            assert (answer.status_code, answer.content) == (401, b"")


async def test_forged_token_is_refused(home: Home) -> None:
    await refused(home, token_for(home, caller(token_urlsafe(48))))
    # With the secret itself, not the key derived from it, and without a signature.
    claims = jwt.decode(token_for(home), options={"verify_signature": False})
    await refused(home, jwt.encode(claims, SECRET, algorithm="HS256"))
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    await refused(home, b".".join([*parts, b""]).decode())


async def test_access_token_of_a_person_is_refused(home: Home) -> None:
    await refused(home, AccessTokens(SECRET).issue(UserId(new_id()), 1))


async def test_expired_token_is_refused(home: Home) -> None:
    long_ago = caller(clock=lambda: time.time() - LIFETIME_SECONDS - 60)

    await refused(home, token_for(home, long_ago))


async def test_token_from_before_the_start_of_the_process_is_refused(home: Home) -> None:
    """The process does not know whether it accepted the token before it was restarted."""
    await refused(home, token_for(home, caller(clock=lambda: time.time() - LIFETIME_SECONDS / 2)))


async def test_replayed_token_is_refused(home: Home) -> None:
    token = token_for(home)
    assert (await home.post(token)).status_code == 200
    home.done.clear()

    await refused(home, token)


async def test_token_for_another_node_is_refused(home: Home) -> None:
    await refused(home, token_for(home, node="other"))
    other_process = caller().issue("home", "http://127.0.0.1:2", "execute", digest())[0]
    await refused(home, other_process)


async def test_altered_body_is_refused(home: Home) -> None:
    await refused(home, token_for(home), body=BODY.replace(b"write", b"wrote"))
    await refused(home, token_for(home), body=b"")


async def test_token_for_another_operation_is_refused(home: Home) -> None:
    await refused(home, token_for(home), operation="packages/remove")


async def test_body_beyond_the_limit_is_refused(home: Home) -> None:
    body = b"x" * (MOST_BYTES + 1)

    answer = await home.post(token_for(home, body=body), body=body)

    assert (answer.status_code, answer.content) == (413, b"")
    assert home.done == []


def test_nonces_are_forgotten_only_after_their_tokens_expire() -> None:
    now = 1_000.0
    home = NodeTokens(SECRET, node="home", address="http://h", clock=lambda: now)
    sender = NodeTokens(SECRET, node="caller", address="http://c", clock=lambda: now)
    tokens = [sender.issue("home", "http://h", "execute", digest())[0] for _ in range(100)]
    for token in tokens:
        home.accept(token, "execute")

    for later in (0, LIFETIME_SECONDS - 1, LIFETIME_SECONDS + 4, LIFETIME_SECONDS + 6, 1_000):
        now = 1_000.0 + later
        for token in tokens:
            with pytest.raises(Unauthenticated):
                home.accept(token, "execute")


def test_previous_secret_is_accepted_during_a_rotation() -> None:
    new = token_urlsafe(48)
    home = NodeTokens(new, node="home", address="http://h", previous=SECRET, clock=time.time)
    token, sealer = caller().issue("home", "http://h", "execute", digest())

    accepted = home.accept(token, "execute")

    assert sealer.accepts(accepted.sealer.next_seal(b"r", b"answer"), b"r", b"answer")


# What the caller believes


@asynccontextmanager
async def in_the_middle(home: Home, change: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """An attacker between two nodes, who changes the answers. Yields its address."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in request.split(b"\r\n") if b"content-length" in line.lower())
        request += await reader.readexactly(length)
        there, back = await asyncio.open_connection("127.0.0.1", home.port)
        back.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        answer = await there.read()
        back.close()
        writer.write(change(answer))
        await writer.drain()
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = await asyncio.start_server(relay, sock=listener)
        async with server:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def misled(home: Home) -> AsyncIterator[NodeClient]:
    """A caller whose connection ends at the attacker, with tokens for the true home."""
    tokens = caller()

    class Redirected(NodeTokens):
        def issue(self, node: str, address: str, operation: str, body_sha256: str) -> Any:
            return tokens.issue(node, home.address, operation, body_sha256)

    async with NodeClient(Redirected(SECRET, node="caller", address="http://c", clock=time.time), lease=5.0) as client:
        yield client


def _unchanged(answer: bytes) -> bytes:
    return answer


async def test_answer_that_is_only_relayed_is_believed(home: Home) -> None:
    async with in_the_middle(home, _unchanged) as address, misled(home) as client:
        assert await client.send("home", address, "execute", BODY) == (FrameKind.RESULT, b'"done"')


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda answer: answer.replace(b'"done"', b'"fake"'), id="altered result"),
        pytest.param(lambda answer: answer[:-3], id="cut"),
        pytest.param(lambda answer: answer.replace(b"\r\n\r\nr", b"\r\n\r\ne", 1), id="another kind"),
        pytest.param(lambda answer: b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", id="forged refusal"),
        pytest.param(lambda answer: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", id="empty"),
        pytest.param(lambda answer: b"", id="closed"),
    ],
)
async def test_answer_that_is_not_the_homes_is_refused(home: Home, change: Callable[[bytes], bytes]) -> None:
    async with in_the_middle(home, change) as address, misled(home) as client:
        with pytest.raises(AnswerLost):
            await client.send("home", address, "execute", BODY)


async def test_answer_to_another_request_is_refused(home: Home) -> None:
    kept: list[bytes] = []

    def first_again(answer: bytes) -> bytes:
        kept.append(answer)
        return kept[0]

    async with in_the_middle(home, first_again) as address, misled(home) as client:
        await client.send("home", address, "execute", BODY)
        with pytest.raises(AnswerLost):
            await client.send("home", address, "execute", BODY)


async def test_output_that_was_left_out_is_noticed(home: Home) -> None:
    """Each frame has its number in its seal."""

    def without_a_line(answer: bytes) -> bytes:
        head, _, body = answer.partition(b"\r\n\r\n")
        chunks, rest = [], body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            chunks.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        kept = b"".join(chunks[1:])
        assert len(chunks) >= 2
        assert b"chunked" in head.lower()
        return head + b"\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(kept), kept)

    shown: list[str] = []
    async with in_the_middle(home, without_a_line) as address, misled(home) as client:
        with pytest.raises(AnswerLost):
            await client.send("home", address, "stream", BODY, emit=shown.append)
    assert shown == []


async def test_node_with_another_secret_is_not_believed(home: Home) -> None:
    async with NodeClient(caller(token_urlsafe(48)), lease=5.0) as client:
        with pytest.raises(AnswerLost):
            await client.send("home", home.address, "execute", BODY)
    assert home.done == []


async def test_connection_that_cannot_be_made_is_told_from_a_lost_answer() -> None:
    async with NodeClient(caller(), lease=5.0) as client:
        with pytest.raises(NotSent):
            await client.send("home", f"http://127.0.0.1:{free_port()}", "execute", BODY)


async def test_silent_node_holds_nobody_up_for_longer_than_its_lease() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with NodeClient(caller(), lease=1.0) as client:
            began = time.monotonic()
            with pytest.raises(AnswerLost):
                await client.send("home", address, "execute", BODY)
    assert 1.0 <= time.monotonic() - began < 20.0


async def test_node_without_a_heartbeat_keeps_nobody_waiting(home: Home) -> None:
    """It may be cut off from the database alone. Its workspaces are elsewhere by then, and there is served."""
    async with NodeClient(caller(), lease=PATIENCE) as client, asyncio.timeout(PATIENCE / 2):
        waiting = asyncio.create_task(client.send("home", home.address, "hang", BODY))
        await home.hanging.wait()
        home.is_alive = False
        with pytest.raises(AnswerLost):
            await waiting


async def test_caller_waits_for_no_node_without_a_heartbeat(home: Home) -> None:
    """A frozen node answers nothing, and another one has its workspaces by then."""
    async with NodeClient(caller(), lease=PATIENCE) as client, asyncio.timeout(PATIENCE / 2):
        waiting = asyncio.create_task(client.send("home", home.address, "hang", BODY))
        await home.hanging.wait()
        client.give_up(frozenset({"home"}))
        with pytest.raises(AnswerLost):
            await waiting
        with pytest.raises(NotSent):
            await client.send("home", home.address, "execute", BODY)
        client.give_up(frozenset())
        await client.send("home", home.address, "execute", BODY)

    assert [operation for operation, _ in home.done] == ["hang", "execute"]
