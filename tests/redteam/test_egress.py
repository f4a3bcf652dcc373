"""A command that was granted one host of a CDN requests another from its address: by TLS, by Host, by odd requests."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.sandbox.sandbox_fixture import Stand, python
from tests.wait_until import PATIENCE
from toolcrib.core.ip_addresses import is_public
from toolcrib.sandbox.command import HostContact, SandboxCommand
from toolcrib.sandbox.egress_protocols import NameGuard, RejectedHello, UnreadableRequest, parse, server_name
from toolcrib.sandbox.egress_proxy import EgressNetwork, EgressProxy
from toolcrib.sandbox.sandbox import Sandbox

GRANTED, OTHER = "api.example.org", "evil.example.net"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
END = b"\r\n\r\n"


async def to_loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


# Loopback takes the role of the public internet here.
NETWORK = EgressNetwork(resolve=to_loopback, allows=lambda _: True)


@dataclass
class Cdn:
    """One address that serves many names. It records which were requested, and everything that plain clients sent."""

    port: int = 0
    names: list[str | None] = field(default_factory=list)
    got: bytearray = field(default_factory=bytearray)
    connections: int = 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that is valid for every name here, with its key, and its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "The tests' own")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(GRANTED), x509.DNSName(OTHER)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = tmp_path_factory.mktemp("tls") / "cdn.pem"
    file.write_bytes(made.public_bytes(pem) + secret)
    return file


@asynccontextmanager
async def cdn(certificate: Path | None = None, *, answers: bool = True) -> AsyncIterator[Cdn]:
    here = Cdn()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.connections += 1
        try:
            # Like the worst of servers: it answers every request on the connection, even after a request to close it.
            while piece := await reader.read(1 << 16):
                here.got += piece
                if answers:
                    writer.write(OK * piece.count(END))
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda _, name, __: here.names.append(name)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        here.port = server.sockets[0].getsockname()[1]
        yield here


@dataclass
class Way:
    """The proxy of a command that was granted one host and port."""

    egress: EgressProxy
    folder: Path
    port: int

    async def talk(self, sent: bytes, *, eof: bool = False) -> bytes:
        """Return all bytes until the proxy closes the connection, or has sent a complete response."""
        reader, writer = await self.open()
        writer.write(sent)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            found = b""
            while piece := await reader.read(1 << 16):
                found += piece
                if found.startswith(b"HTTP/1.1 200 OK") and found.endswith(b"hello\n"):
                    break
        writer.close()
        return found

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.folder / "egress.sock")

    async def tunnel(self, host: str = GRANTED) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.open()
        writer.write(f"CONNECT {host}:{self.port} HTTP/1.1\r\nHost: {host}:{self.port}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readuntil(END)).startswith(b"HTTP/1.1 200 ")
        return reader, writer

    def refusals(self) -> set[str]:
        return {contact.refused for contact in self.egress.contacted if contact.refused}


@asynccontextmanager
async def way_to(here: Cdn, folder: Path) -> AsyncIterator[Way]:
    folder.mkdir(exist_ok=True)
    egress = EgressProxy((f"{GRANTED}:{here.port}",), NETWORK)
    async with egress.listening(folder):
        yield Way(egress, folder, here.port)


def trusting(certificate: Path, **options: object) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    for name, value in options.items():
        setattr(context, name, value)
    return context


# TLS -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tunnel_to_the_granted_name_carries_tls(
    tmp_path: Path, certificate: Path, version: ssl.TLSVersion
) -> None:
    async with cdn(certificate) as here, way_to(here, tmp_path) as way:
        reader, writer = await way.tunnel()
        context = trusting(certificate, minimum_version=version, maximum_version=version)
        await writer.start_tls(context, server_hostname=GRANTED)
        writer.write(b"GET / HTTP/1.1" + END)
        async with asyncio.timeout(PATIENCE):
            assert await reader.readexactly(len(OK)) == OK
        writer.close()
    assert here.names == [GRANTED]
    assert way.egress.contacted == (HostContact(GRANTED, here.port),)


@pytest.mark.parametrize(
    ("name", "why"),
    [(OTHER, f"its TLS names {OTHER} instead"), (None, "its TLS names no server"), ("127.0.0.1", "no server")],
)
async def test_tls_that_names_another_server_or_none_is_denied(
    tmp_path: Path, certificate: Path, name: str | None, why: str
) -> None:
    async with cdn(certificate) as here, way_to(here, tmp_path) as way:
        _reader, writer = await way.tunnel()
        context = trusting(certificate, check_hostname=False)
        with pytest.raises((ssl.SSLError, OSError)):
            await writer.start_tls(context, server_hostname=name or "")
        writer.close()
    assert here.connections == 0, "not even the address is contacted"
    assert any(why in refused for refused in way.refusals())


async def test_second_hello_for_another_server_is_denied(tmp_path: Path) -> None:
    """A client sends another hello after a HelloRetryRequest, and after early data."""
    for between in (b"", record(20, b"\1"), record(20, b"\1") + record(23, b"early data")):
        async with cdn(answers=False) as here, way_to(here, tmp_path / str(len(between))) as way:
            reader, writer = await way.tunnel()
            writer.write(record(22, hello(GRANTED)) + between + record(22, hello(OTHER)))
            async with asyncio.timeout(PATIENCE):
                assert await reader.read() == b""
            writer.close()
        assert way.refusals() == {f"its TLS names {OTHER} instead"}
        assert OTHER.encode() not in here.got


async def test_hello_in_many_records_is_read_as_one(tmp_path: Path) -> None:
    for name, passes in ((GRANTED, True), (OTHER, False)):
        whole = hello(name)
        pieces = b"".join(record(22, whole[at : at + 7]) for at in range(0, len(whole), 7))
        async with cdn(answers=False) as here, way_to(here, tmp_path / name) as way:
            reader, writer = await way.tunnel()
            writer.write(pieces)
            writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                await reader.read()
            writer.close()
        assert bytes(here.got) == (pieces if passes else b"")


@pytest.mark.parametrize(
    "first",
    [
        b"\x80\x2e\x01\x00\x02",  # SSL 2
        b"SSH-2.0-x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x02\x00\x00\x05hello",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x03\x01\xff\xff" + b"x" * 65_535,
        b"\x16\x03\x01\x00\x00" * 20_000,
        b"CONNECT evil.example.net:443 HTTP/1.1\r\n\r\n",
        b"GET http://evil.example.net/ HTTP/1.1\r\n\r\n",
    ],
)
async def test_protocol_other_than_tls_and_http_gets_no_tunnel(tmp_path: Path, first: bytes) -> None:
    async with cdn() as here, way_to(here, tmp_path) as way:
        reader, writer = await way.tunnel()
        writer.write(first)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
    assert here.connections == 0


def test_ambiguous_hello_is_denied() -> None:
    fine = [(0, names(GRANTED)), (43, b"\x02\x03\x04")]
    assert server_name(hello(GRANTED, fine)[4:]) == GRANTED
    odd: list[list[tuple[int, bytes]]] = [
        [],
        [(43, b"\x02\x03\x04")],
        [(0, names(GRANTED)), (0, names(OTHER))],
        [(0, names(GRANTED, OTHER))],
        [(0, names(OTHER, GRANTED))],
        [(0, b"")],
        [(0, names())],
        [(0, names(GRANTED) + b"x")],
        [(0, b"\x00\x05\x01\x00\x02ab")],
        # The name that counts would be inside.
        [(0, names(GRANTED)), (0xFE0D, b"\x00" * 64)],
        [(0, names(GRANTED)), (0xFFCE, b"\x00" * 64)],
    ]
    for extensions in odd:
        with pytest.raises(RejectedHello):
            server_name(hello(GRANTED, extensions)[4:])
    with pytest.raises(RejectedHello):
        server_name(hello(GRANTED)[4:] + b"more")


@pytest.mark.parametrize(
    "name", [OTHER, f"{GRANTED}.", f"x.{GRANTED}", f"{GRANTED}\0.{OTHER}", f" {GRANTED}", "", "127.0.0.1"]
)
def test_name_that_differs_slightly_from_the_granted_one_is_denied(name: str) -> None:
    with pytest.raises(RejectedHello):
        NameGuard(GRANTED).take(22, hello(name))


def test_granted_name_is_case_insensitive() -> None:
    guard = NameGuard(GRANTED)
    guard.take(22, hello(GRANTED.upper()))
    assert guard.is_satisfied


@given(st.binary(max_size=400))
def test_any_bytes_are_the_granted_name_or_denied(data: bytes) -> None:
    guard = NameGuard(GRANTED)
    try:
        guard.take(22, data)
    except RejectedHello:
        return
    assert not guard.is_satisfied or GRANTED.encode() in data.lower()


# Plain HTTP ----------------------------------------------------------------------------------------


def get(port: int, *headers: str, target: str | None = None) -> bytes:
    lines = [f"GET {target or f'http://{GRANTED}:{port}/x?y=1'} HTTP/1.1", *headers]
    return "\r\n".join(lines).encode() + END


async def test_plain_request_is_sent_only_to_the_granted_host(tmp_path: Path) -> None:
    async with cdn() as here, way_to(here, tmp_path) as way:
        for headers in ([], [f"Host: {GRANTED}:{here.port}"], [f"hOST:\t{GRANTED.upper()}.:{here.port} "]):
            assert (await way.talk(get(here.port, *headers))).endswith(b"hello\n")
    assert bytes(here.got).count(f"\r\nHost: {GRANTED}:{here.port}\r\n".encode()) == 3
    assert here.got.lower().count(b"host:") == 3


@pytest.mark.parametrize(
    "headers",
    [
        [f"Host: {OTHER}"],
        [f"Host: {GRANTED}"],  # another port
        [f"Host: {GRANTED}:PORT", f"Host: {OTHER}"],
        [f"Host: {OTHER}", f"Host: {GRANTED}:PORT"],
        [f"Host: {OTHER}@{GRANTED}:PORT"],
        [f"Host: {GRANTED}:PORT, {OTHER}"],
        [f"Host : {OTHER}"],
        [f" Host: {OTHER}"],
        [f"X: y\r\n Host: {OTHER}"],
        [f"X: y\nHost: {OTHER}"],
        [f"X: y\rHost: {OTHER}"],
        [f"X: y\0\nHost: {OTHER}"],
        ["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding : chunked"],
    ],
)
async def test_plain_request_that_is_ambiguous_or_names_another_host_is_denied(
    tmp_path: Path, headers: list[str]
) -> None:
    async with cdn() as here, way_to(here, tmp_path) as way:
        sent = [header.replace("PORT", str(here.port)) for header in headers]
        assert not (await way.talk(get(here.port, *sent), eof=True)).startswith(b"HTTP/1.1 200")
        reader, writer = await way.tunnel()
        writer.write(get(here.port, *sent, target="/"))
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            assert not (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    assert here.connections == 0


SMUGGLED = f"GET /secret HTTP/1.1\r\nHost: {OTHER}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([], SMUGGLED),
        (["Connection: keep-alive"], SMUGGLED),
        (["Content-Length: 0"], SMUGGLED),
        (["Content-Length: 4"], b"abcd" + SMUGGLED),
        (["Transfer-Encoding: chunked"], b"4\r\nabcd\r\n0\r\n\r\n" + SMUGGLED),
        (["Transfer-Encoding: chunked"], b"4;x=y\r\nabcd\r\n0\r\nHost: evil.example.net\r\n\r\n" + SMUGGLED),
        (["Transfer-Encoding: chunked"], b"4\nabcd\n0\n\n" + SMUGGLED),
        (["Transfer-Encoding: chunked"], b"-4\r\nabcd\r\n" + SMUGGLED),
        (["Transfer-Encoding: chunked"], b"4\r\nabcdef\r\n0\r\n\r\n" + SMUGGLED),
    ],
)
async def test_connection_carries_one_request_only(tmp_path: Path, headers: list[str], body: bytes) -> None:
    async with cdn() as here, way_to(here, tmp_path) as way:
        await way.talk(get(here.port, *headers) + body, eof=True)
        reader, writer = await way.tunnel()
        writer.write(get(here.port, f"Host: {GRANTED}:{here.port}", *headers, target="/") + body)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            await reader.read(len(OK))
        writer.close()
    assert OTHER.encode() not in here.got
    assert here.connections == 2


async def test_bodies_arrive_unchanged(tmp_path: Path) -> None:
    async with cdn() as here, way_to(here, tmp_path) as way:
        head = get(here.port, "Content-Length: 5").replace(b"GET", b"POST")
        assert (await way.talk(head + b"12345")).endswith(b"hello\n")
        head = get(here.port, "Transfer-Encoding: chunked").replace(b"GET", b"POST")
        assert (await way.talk(head + b"5\r\n67890\r\n0\r\n\r\n")).endswith(b"hello\n")
    assert b"12345" in here.got
    assert b"5\r\n67890\r\n0\r\n\r\n" in here.got


@pytest.mark.parametrize(
    "target",
    [
        f"http://{OTHER}/",
        f"http://{GRANTED}:PORT@{OTHER}/",
        f"http://{OTHER}@{GRANTED}:PORT/",
        f"http://user:secret@{GRANTED}:PORT/",
        f"http://{GRANTED}:PORT#@{OTHER}/",
        f"http://{GRANTED}:PORT\\@{OTHER}/",
        f"https://{GRANTED}:PORT/",
        f"//{GRANTED}:PORT/",
        "/",
        "*",
        f"http://{GRANTED}%00.{OTHER}:PORT/",
        f"http://{GRANTED}\t:PORT/",
        "http://127.0.0.1:PORT/",
        "http://127.1:PORT/",
        "http://0x7f.1:PORT/",
        "http://0x7f000001:PORT/",
        "http://017700000001:PORT/",
        "http://2130706433:PORT/",
        "http://[::1]:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "http://[fe80::1%25lo]:PORT/",
        "http://localhost:PORT/",
        f"http://{GRANTED}..:PORT/",
        f"http://{GRANTED}:+PORT/",
        f"http://{GRANTED}:0PORT000/",
        f"http://{GRANTED}:/",
        f"http://{GRANTED}/",
        "http://\u24d0pi.example.org:PORT/",
        "http://api.example\u3002org:PORT/",
        "http://xn--api-.example.org:PORT/",
    ],
)
async def test_tricks_with_addresses_reach_nothing(tmp_path: Path, target: str) -> None:
    async with cdn() as here, way_to(here, tmp_path) as way:
        there = target.replace("PORT", str(here.port))
        assert not (await way.talk(f"GET {there} HTTP/1.1".encode() + END, eof=True)).startswith(b"HTTP/1.1 200")
        authority = there.removeprefix("http://").removesuffix("/")
        assert not (await way.talk(f"CONNECT {authority} HTTP/1.1".encode() + END, eof=True)).startswith(
            b"HTTP/1.1 200"
        )
    assert here.connections == 0


@given(st.binary(max_size=300))
def test_any_head_is_one_request_to_one_host_or_denied(data: bytes) -> None:
    try:
        request = parse(f"GET http://{GRANTED}/ HTTP/1.1\r\n".encode() + data + END)
    except UnreadableRequest:
        return
    sent = request.head(request.addressed())
    assert sent.count(END) == 1
    assert sent.lower().count(b"\r\nhost:") == 1
    assert b"\n" not in sent.replace(b"\r\n", b"")


# Addresses -----------------------------------------------------------------------------------------


async def test_address_of_a_tunnel_is_looked_up_once_and_pinned(tmp_path: Path, certificate: Path) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    async with cdn(certificate) as here:
        egress = EgressProxy(
            (f"{GRANTED}:{here.port}",), EgressNetwork(resolve=rebinding, allows=lambda ip: ip.is_loopback)
        )
        async with egress.listening(tmp_path):
            _reader, writer = await Way(egress, tmp_path, here.port).tunnel()
            await writer.start_tls(trusting(certificate), server_hostname=GRANTED)
            writer.close()
    assert (asked, here.names) == ([GRANTED], [GRANTED])


@pytest.mark.parametrize(
    "address", ["fec0::1", "fe80::1", "::ffff:169.254.169.254", "192.0.2.1", "198.18.0.1", "240.0.0.1"]
)
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


# End to end ----------------------------------------------------------------------------------------


async def test_command_cannot_use_its_grant_for_another_name_of_the_same_address(
    tmp_path: Path, certificate: Path
) -> None:
    program = """
import http.client, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for name in ("api.example.org", "evil.example.net"):
    connection = http.client.HTTPConnection("127.0.0.1", 3128, timeout=60)
    connection.set_tunnel("api.example.org", PORT)
    try:
        connection.connect()
        connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
        connection.request("GET", "/", headers={"Host": name})
        print(connection.getresponse().read().decode().strip())
    except OSError as error:
        print(type(error).__name__)
"""
    async with cdn(certificate) as here:
        command = SandboxCommand(python(program.replace("PORT", str(here.port))), hosts=(f"{GRANTED}:{here.port}",))
        result = await Stand(tmp_path, Sandbox(network=NETWORK)).run(command)
    assert result.output.text.splitlines() == ["hello", "SSLError"]
    assert here.names == [GRANTED]
    assert result.contacted == (
        HostContact(GRANTED, here.port),
        HostContact(GRANTED, here.port, f"its TLS names {OTHER} instead"),
    )


def record(kind: int, payload: bytes) -> bytes:
    return bytes([kind, 3, 1]) + len(payload).to_bytes(2) + payload


def names(*hosts: str) -> bytes:
    entries = b"".join(b"\0" + len(host).to_bytes(2) + host.encode() for host in hosts)
    return len(entries).to_bytes(2) + entries


def hello(name: str, extensions: Sequence[tuple[int, bytes]] | None = None) -> bytes:
    """Return a ClientHello message that names a server."""
    listed = [(0, names(name))] if extensions is None else extensions
    packed = b"".join(kind.to_bytes(2) + len(data).to_bytes(2) + data for kind, data in listed)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\x00\x02\x13\x01" + b"\x01\x00" + len(packed).to_bytes(2) + packed
    return b"\x01" + len(body).to_bytes(3) + body
