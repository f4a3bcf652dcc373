"""A URL from a user never leads into the server's own network, however it is written."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import httpx2
import pytest

from tests.redteam.attacks import Attacks
from tests.redteam.target import Target
from tests.wait_until import PATIENCE
from toolcrib.core.errors import ToolFailed
from toolcrib.network.network_policy import NetworkPolicy, OutboundError
from toolcrib.network.outbound import Outbound
from toolcrib.websearch.page_fetch import PageFetcher, parse_page_url

LOOPBACK = """
127.0.0.1 127.1 127.0.1 127.0.0.1. 127.255.255.254 2130706433 017700000001 0177.0.0.1 0x7f000001 0x7f.1 0x7f.0.0.1
0 0.0.0.0 00000000.0 localhost LOCALHOST localhost. localhost.localdomain ip6-localhost [::1] [0:0:0:0:0:0:0:1]
[0000:0000:0000:0000:0000:0000:0000:0001] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:0:127.0.0.1]
[0:0:0:0:0:ffff:7f00:0001] [::127.0.0.1] [::7f00:1] ①②⑦.⓪.⓪.① 127。0。0。1 127.0.0.1%2f 127.0.0.1%00.example.com
"""
INSIDE = """
10.0.0.1 10.255.255.255 0xa000001 167772161 012.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 169.254.169.254 0xa9fea9fe
2852039166 169.254.1.1 100.64.0.1 100.100.100.200 192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.250 240.0.0.1 255.255.255.255 [fe80::1] [fe80::1%25lo] [fc00::1] [fd00:ec2::254] [fec0::1] [feff::1]
[ff02::1] [100::1] [2001:db8::1] [3fff::1] [5f00::1] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::7f00:1]
[2002:7f00:1::] [2002:a9fe:a9fe::1] [2001:0:7f00:1::] [2001:0:4136:e378:8000:63bf:3fff:fdd2] [::ffff:10.0.0.1]
[::ffff:169.254.169.254] [::a9fe:a9fe]
"""
# URLs in which each part is ambiguous: which part is the host name, and what belongs to it.
CONFUSED = [
    "http://example.com@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://example.com#@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}#@example.com/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}?@example.com/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_GET",
    "unix:///run/docker.sock",
    "http+unix://%2Frun%2Fdocker.sock/",
    "ftp://127.0.0.1:{port}/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1:{port}\r\nHost: example.com/",
]


@dataclass
class Listener:
    """An internal service, which must not be contacted."""

    port: int
    spoken_to: list[Any] = field(default_factory=list)


@contextmanager
def listening() -> Iterator[Listener]:
    """Listens on every address of this machine and records every connection, also silent ones."""
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        listener = Listener(server.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                listener.spoken_to.append(address)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener
        server.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


@pytest.fixture(scope="module")
def inside() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


def urls(port: int, scheme: str) -> list[str]:
    plain = [f"{scheme}://{host}:{port}/" for host in (LOOPBACK + INSIDE).split()]
    return plain + [url.format(port=port).replace("http:", f"{scheme}:") for url in CONFUSED]


@pytest.mark.parametrize("provider", ["openai-compatible", "ollama"])
def test_model_url_cannot_reach_internal_addresses(
    target: Target, attacks: Attacks, inside: Listener, provider: str
) -> None:
    for url in urls(inside.port, "http"):
        given = {"secret": "sk-test", "base_url": url, "check": True}
        answer = target.http.put(f"/credentials/{provider}", json=given, headers=target.mallory.owner.headers)
        held = refused(answer) and not inside.spoken_to
        attacks.judge(f"{provider} at {url}", held=held, how=(answer.status_code, answer.text[:200], inside.spoken_to))
        inside.spoken_to.clear()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_mcp_server_url_cannot_reach_internal_addresses(
    target: Target, attacks: Attacks, inside: Listener, scheme: str
) -> None:
    path, headers = f"{target.mallory.workspace}/mcp-servers", target.mallory.owner.headers
    for url in urls(inside.port, scheme):
        answer = target.http.post(path, json={"name": "inside", "url": url}, headers=headers)
        # Added and inspected: the response is the inspection's result, and the server is not stored.
        if answer.status_code == 201:
            assert target.http.delete(f"{path}/{answer.json()['id']}", headers=headers).status_code == 204
        held = refused(answer) and not inside.spoken_to
        attacks.judge(f"MCP at {url}", held=held, how=(answer.status_code, answer.text[:600], inside.spoken_to))
        inside.spoken_to.clear()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_web_fetch_cannot_reach_internal_addresses(
    target: Target, attacks: Attacks, inside: Listener, scheme: str
) -> None:
    path, headers = f"{target.mallory.workspace}/tools", target.mallory.owner.headers
    for url in urls(inside.port, scheme):
        answer = target.http.post(path, json={"tool": "web_fetch", "args": {"url": url}}, headers=headers)
        assert answer.json()["result"]["is_error"], url
        held = refused(answer) and not inside.spoken_to
        attacks.judge(f"page at {url}", held=held, how=(answer.status_code, answer.text[:600], inside.spoken_to))
        inside.spoken_to.clear()


def refused(answer: httpx2.Response) -> bool:
    """Return whether the URL was rejected for what it is, and not because nothing answers there."""
    if answer.status_code == 400:
        return True
    words = (
        "in the server's private network",
        "Cannot resolve",
        "has no address",
        "Not the URL of a model server",
        "Not a URL",
        "Not the URL of a web page",
        "is not a host",
        "so it was not sent",
        "Invalid IPv4",
        "Invalid IDNA",
        "in URL",
    )
    return any(word in answer.text for word in words)


# Names, with an attacker's resolver

NAMES = {
    "loopback.attacker.example": ["127.0.0.1"],
    "loopback6.attacker.example": ["::1"],
    "metadata.attacker.example": ["169.254.169.254"],
    "mapped.attacker.example": ["::ffff:169.254.169.254"],
    "nat64.attacker.example": ["64:ff9b::a9fe:a9fe"],
    "site-local.attacker.example": ["fec0::1"],
    "private.attacker.example": ["10.0.0.1"],
    "one-of-two.attacker.example": ["127.0.0.1", "1.1.1.1"],
    "two-of-two.attacker.example": ["1.1.1.1", "127.0.0.1"],
    "zone.attacker.example": ["fe80::1%lo"],
    "nothing.attacker.example": ["0.0.0.0"],
}


@pytest.fixture
def attackers_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's resolver answers with the attacker's zone."""

    def resolve(host: str, port: int, *_: object, **__: object) -> list[Any]:
        families = {True: socket.AF_INET6, False: socket.AF_INET}

        def address(one: str, port: int) -> tuple[Any, ...]:
            return (one, port, 0, 0) if ":" in one else (one, port)

        return [(families[":" in one], socket.SOCK_STREAM, 6, "", address(one, port)) for one in NAMES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.usefixtures("attackers_names")
async def test_name_that_resolves_to_an_internal_address_is_not_contacted(attacks: Attacks, inside: Listener) -> None:
    for name in NAMES:
        async with Outbound(NetworkPolicy((), setting="X")) as client:
            try:
                async with client.request("GET", f"http://{name}:{inside.port}/"):
                    how = "answered"
            except OutboundError as error:
                how = str(error)
        attacks.judge(name, held="in the server's private network" in how and not inside.spoken_to, how=how)


@pytest.mark.usefixtures("attackers_names")
async def test_page_of_a_name_that_resolves_to_an_internal_address_is_not_fetched(
    attacks: Attacks, inside: Listener
) -> None:
    for name in NAMES:
        url = parse_page_url(f"http://{name}:{inside.port}/")
        try:
            await PageFetcher(()).fetch(url, may_contact=lambda _: True, deadline=monotonic() + PATIENCE)
            how = "answered"
        except ToolFailed as error:
            how = error.message
        attacks.judge(name, held="in the server's private network" in how and not inside.spoken_to, how=how)


async def test_redirect_to_an_internal_address_is_not_followed(
    target: Target, attacks: Attacks, inside: Listener
) -> None:
    """Also where the operator allows the first address: the attacker controls a redirect from there."""
    for status in (301, 302, 303, 307, 308):
        async with redirecting(status, f"http://127.0.0.1:{inside.port}/") as port:
            allowed = NetworkPolicy((f"127.0.0.1:{port}",), setting="X")
            async with Outbound(allowed) as client, client.request("GET", f"http://127.0.0.1:{port}/") as answer:
                attacks.judge(f"HTTP {status}", held=answer.status == status and not inside.spoken_to, how=answer)


@asynccontextmanager
async def redirecting(status: int, location: str) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
