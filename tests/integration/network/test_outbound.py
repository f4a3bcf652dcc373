"""Outgoing requests, byte by byte, against servers that are slow, early, broken or hostile."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.wait_until import PATIENCE
from toolcrib.network import outbound
from toolcrib.network.network_policy import OPERATOR_URLS, OutboundError, OutboundFailure
from toolcrib.network.outbound import Outbound, OutboundLimits, trusted_certificates

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One connection, as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")

    async def question(self) -> bytes:
        head = await self.head()
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        return head + await self._reader.readexactly(int(length.split(b":")[1]))

    async def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()

    async def hung_up(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self._reader.read(1 << 16):
                pass

    def hang_up(self) -> None:
        self._writer.close()


class Server:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.url = ""
        self.connections = 0
        self.ended: list[asyncio.Future[None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        ended = asyncio.get_running_loop().create_future()
        self.ended.append(ended)
        try:
            await self._script(Peer(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            ended.set_result(None)


@asynccontextmanager
async def serving(
    script: Script, *, tls: ssl.SSLContext | None = None, anywhere: bool = False
) -> AsyncIterator[Server]:
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "0.0.0.0" if anywhere else "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https://localhost' if tls else 'http://127.0.0.1'}:{port}/"
    async with listening, asyncio.timeout(PATIENCE):
        yield server
        await asyncio.gather(*server.ended)


@asynccontextmanager
async def client(*, connect: float = PATIENCE, silence: float = PATIENCE) -> AsyncIterator[Outbound]:
    async with Outbound(OPERATOR_URLS, limits=OutboundLimits(connect=connect, silence=silence)) as http:
        yield http


async def post(http: Outbound, url: str, body: bytes = b"?", headers: dict[str, str] | None = None) -> tuple[int, str]:
    async with http.request("POST", url, body=body, headers=headers or {}) as reply:
        return reply.status, (await reply.read()).decode()


@contextmanager
def failing(*failures: OutboundFailure) -> Iterator[None]:
    with pytest.raises(OutboundError) as caught:
        yield
    assert caught.value.failure in failures


def answering(*pieces: bytes, hang_up: bool = False) -> Script:
    """A script that answers every request with the same bytes."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.question()
            await peer.say(*pieces)
            if hang_up:
                return

    return script


async def test_chunks_that_arrive_together_are_read_as_one() -> None:
    words = [b"word%d " % number for number in range(100)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(word), word) for word in words)
    async with (
        serving(answering(CHUNKED + body + b"0\r\n\r\n")) as server,
        client() as http,
        http.request("POST", server.url, body=b"?") as reply,
    ):
        pieces = [piece async for piece in reply]

    assert b"".join(pieces) == b"".join(words)
    assert len(pieces) < 5


@pytest.mark.parametrize(
    "said",
    [
        pytest.param([HELLO], id="of known length"),
        pytest.param([CHUNKED, b"5\r\n", b"hello\r\n0", b"\r\n\r\n"], id="in chunks"),
        pytest.param([CHUNKED, b"5;a=b\r\nhello\r\n0\r\nx-trailer: y\r\n\r\n"], id="with extensions and trailers"),
        pytest.param([HELLO[:1], HELLO[1:20], HELLO[20:]], id="in pieces"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", HELLO], id="after a word on the way"),
        pytest.param([b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + HELLO], id="after hints"),
    ],
)
async def test_response_is_read_and_its_connection_reused(said: list[bytes]) -> None:
    async with serving(answering(*said)) as server, client() as http:
        for _ in range(3):
            async with http.request("POST", server.url, body=b"?") as reply:
                assert (reply.status, await reply.read(), "link" in reply.headers) == (200, b"hello", False)

    assert server.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_response_that_ends_with_the_connection_is_complete(said: bytes) -> None:
    async with serving(answering(said, hang_up=True)) as server, client() as http:
        for _ in range(2):
            assert await post(http, server.url) == (200, "hello")

    assert server.connections == 2


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200", CHUNKED, CHUNKED + b"5\r\nhel", CHUNKED + b"5\r\nhello\r\n", HELLO[:-1]],
)
async def test_truncated_response_is_never_accepted_as_complete(said: bytes) -> None:
    async with serving(answering(said, hang_up=True)) as server, client() as http:
        with failing(OutboundFailure.BROKEN):
            await post(http, server.url)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        CHUNKED + b"zz\r\nhello\r\n",
    ],
)
async def test_non_http_response_is_rejected_and_the_connection_closed(said: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        await peer.say(said)
        await peer.hung_up()

    async with serving(script) as server, client() as http:
        with failing(OutboundFailure.BROKEN):
            await post(http, server.url)


@pytest.mark.parametrize(
    ("head", "endless"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n", id="headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: ", b"x" * 1_000, id="one header"),
        pytest.param(CHUNKED + b"5;", b"x" * 1_000, id="an extension of a chunk"),
        pytest.param(CHUNKED + b"0\r\n", b"x-more: and more\r\n", id="trailers"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="words on the way"),
    ],
)
async def test_endless_response_without_content_is_ended(head: bytes, endless: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        await peer.say(head)
        while True:
            await peer.say(endless * 100)

    async with serving(script) as server, client(connect=0.5, silence=0.5) as http:
        with failing(OutboundFailure.BROKEN, OutboundFailure.TIMEOUT):
            await post(http, server.url)


async def test_unsolicited_response_is_never_used_for_the_next_request() -> None:
    forged = HELLO.replace(b"hello", b"FORGE")
    async with serving(answering(HELLO + forged)) as server, client() as http:
        for _ in range(3):
            assert await post(http, server.url) == (200, "hello")

    assert server.connections == 3


async def test_response_on_an_idle_connection_is_not_used_for_the_next_request() -> None:
    is_read, has_said = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.question()
        await peer.say(HELLO)
        if not has_said.is_set():
            await is_read.wait()
            await peer.say(HELLO.replace(b"hello", b"FORGE"))
            has_said.set()
            await peer.hung_up()

    async with serving(script) as server, client() as http:
        assert await post(http, server.url) == (200, "hello")
        is_read.set()
        await has_said.wait()
        await heard_all()
        assert await post(http, server.url) == (200, "hello")

    assert server.connections == 2


async def test_connection_closed_by_the_server_is_not_reused() -> None:
    async with serving(answering(HELLO, hang_up=True)) as server, client() as http:
        for _ in range(3):
            assert await post(http, server.url) == (200, "hello")
            await asyncio.gather(*server.ended)

    assert server.connections == 3


async def test_connection_with_an_unread_response_is_closed() -> None:
    """The rest may be so long that the connection is no longer read."""
    size = 30_000_000

    async def script(peer: Peer) -> None:
        await peer.question()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        await peer.hung_up()

    async with serving(script) as server, client() as http:
        for _ in range(2):
            async with http.request("POST", server.url, body=b"?") as reply:
                assert reply.ok

    assert server.connections == 2


async def heard_all() -> None:
    """Data already on its way over loopback arrives before data that is sent later."""
    async with serving(answering(HELLO, hang_up=True)) as other, client() as http:
        await post(http, other.url)


async def test_response_before_the_request_is_not_used() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(HELLO.replace(b"hello", b"FORGE") * 3)
        await peer.hung_up()

    async with serving(script) as server, client() as http:
        try:
            _, text = await post(http, server.url)
        except OutboundError:
            pass
        else:
            # Its bytes arrived together with the request: this connection never gives another response.
            assert text == "FORGE"
        with suppress(OutboundError):
            await post(http, server.url)

    assert server.connections >= 2


async def test_body_of_an_informational_response_is_not_part_of_the_response() -> None:
    on_the_way = b"HTTP/1.1 199 Well\r\nContent-Length: 5\r\n\r\nFORGE"
    async with serving(answering(on_the_way + HELLO)) as server, client() as http:
        assert await post(http, server.url) == (200, "hello")


async def test_idle_connection_is_closed_after_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "_KEPT_SECONDS", 0.05)
    async with serving(answering(HELLO)) as server, client() as http:
        await post(http, server.url)
        await asyncio.gather(*server.ended)


async def test_connections_beyond_the_limit_wait_and_then_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "_MOST_CONNECTIONS", 2)
    async with serving(answering(CHUNKED)) as server, client(connect=0.2) as http, AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(http.request("POST", server.url, body=b"?"))
        with failing(OutboundFailure.UNREACHABLE):
            await post(http, server.url)
        await held.aclose()
        async with http.request("POST", server.url, body=b"?") as reply:
            assert reply.ok


async def test_slow_reader_makes_the_server_wait() -> None:
    sent = 0
    is_stuck = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.question()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n")
        for _ in range(300):
            saying = asyncio.ensure_future(peer.say(b"x" * 100_000))
            done, _ = await asyncio.wait([saying], timeout=None if is_stuck.is_set() else 0.5)
            if not done:
                is_stuck.set()
                await saying
            sent += 100_000

    async with serving(script) as server, client() as http, http.request("POST", server.url, body=b"?") as reply:
        await is_stuck.wait()
        # What the kernel buffers on both sides, and what we buffer.
        assert sent < 20_000_000
        largest = read = 0
        async for piece in reply:
            largest, read = max(largest, len(piece)), read + len(piece)

    assert read == 30_000_000
    assert largest < 1_000_000


async def test_response_before_the_end_of_the_request_is_accepted() -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
        await peer.hung_up()

    async with serving(script) as server, client() as http:
        assert await post(http, server.url, b"x" * 20_000_000) == (413, "no!")


async def test_server_that_does_not_read_or_respond_is_left_in_time() -> None:
    never = asyncio.Event()

    async def script(peer: Peer) -> None:
        await never.wait()

    async with serving(script) as server, client(connect=0.1, silence=0.1) as http:
        for body in (b"x" * 20_000_000, b"?"):
            with failing(OutboundFailure.TIMEOUT):
                await post(http, server.url, body)
        never.set()


async def test_leaving_during_a_response_disconnects_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        await peer.say(CHUNKED + b"5\r\nhello\r\n")
        await peer.hung_up()

    async with serving(script) as server, client() as http:
        async with http.request("POST", server.url, body=b"?") as reply:
            assert await anext(reply) == b"hello"
        await asyncio.gather(*server.ended)


async def test_cancelling_before_the_response_disconnects_at_once() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.question()
        asked.set()
        await peer.hung_up()

    async with serving(script) as server, client() as http:
        asking = asyncio.create_task(post(http, server.url))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.gather(*server.ended)


async def test_request_headers_cannot_be_injected() -> None:
    async with serving(answering(HELLO)) as server, client() as http:
        for headers in ({"x": "a\r\nevil: 1"}, {"x\r\nevil": "1"}):
            with failing(OutboundFailure.INVALID):
                await post(http, server.url, headers=headers)


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[tuple[Path, ssl.SSLContext]]:
    """Create a self-signed certificate for localhost and a server context that uses it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now.replace(year=2999))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    trusted_certificates.cache_clear()
    yield public, context
    trusted_certificates.cache_clear()


async def test_tls_requires_a_valid_certificate(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    public, context = certificate
    async with serving(answering(HELLO), tls=context) as server:
        async with client() as http:
            with failing(OutboundFailure.CERTIFICATE):
                await post(http, server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
        trusted_certificates.cache_clear()
        async with client() as http:
            for _ in range(2):
                assert await post(http, server.url) == (200, "hello")
            with failing(OutboundFailure.CERTIFICATE):
                await post(http, server.url.replace("localhost", "127.0.0.1"))


@pytest.mark.parametrize(
    "scene",
    [
        test_chunks_that_arrive_together_are_read_as_one,
        test_unsolicited_response_is_never_used_for_the_next_request,
        test_response_on_an_idle_connection_is_not_used_for_the_next_request,
        test_connection_closed_by_the_server_is_not_reused,
        test_connection_with_an_unread_response_is_closed,
        test_response_before_the_request_is_not_used,
        test_slow_reader_makes_the_server_wait,
        test_response_before_the_end_of_the_request_is_accepted,
        test_server_that_does_not_read_or_respond_is_left_in_time,
        test_leaving_during_a_response_disconnects_at_once,
        test_cancelling_before_the_response_disconnects_at_once,
    ],
)
def test_client_works_the_same_on_the_servers_event_loop(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(scene())


def test_client_works_the_same_over_tls(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    uvloop.run(test_tls_requires_a_valid_certificate(certificate, monkeypatch))
