"""Which addresses an outgoing request connects to, judged when the connection is made."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.integration.network.test_outbound import HELLO, answering, failing, post, serving
from tests.wait_until import PATIENCE
from toolcrib.network import outbound
from toolcrib.network.network_policy import OPERATOR_URLS, NetworkPolicy, OutboundError, OutboundFailure
from toolcrib.network.outbound import Outbound, OutboundLimits

NOBODY = NetworkPolicy((), setting="A_SETTING")
# A public address. Nothing is sent there: these tests reach it through a proxy of their own only.
PUBLIC = "93.184.215.14"
NOTATIONS = """
127.0.0.1 127.1 2130706433 017700000001 0x7f000001 0x7f.1 0 0.0.0.0 localhost localhost. [::1] [::] [::ffff:127.0.0.1]
[::ffff:7f00:1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::7f00:1] [2002:7f00:1::] [2001:0:7f00:1::]
[::127.0.0.1] 10.0.0.1 169.254.169.254 100.64.0.1 192.168.0.1 172.16.0.1 [fe80::1] [fd00::1] [fec0::1] [ff02::1]
224.0.0.1 ①②⑦.0.0.1
"""
LITERALS = NOTATIONS.split()


@pytest.mark.parametrize("host", LITERALS)
async def test_address_in_a_url_is_judged_in_every_notation(host: str) -> None:
    async with serving(answering(HELLO), anywhere=True) as server, Outbound(NOBODY) as http:
        port = server.url.rstrip("/").rpartition(":")[2]
        with failing(OutboundFailure.DENIED, OutboundFailure.INVALID, OutboundFailure.UNREACHABLE):
            await post(http, f"http://{host}:{port}/")

    assert server.connections == 0


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "http:///x", "a.example", "http://a.example:0/", "http://[::1/", ""]
)
async def test_url_without_scheme_or_host_is_rejected(url: str) -> None:
    async with Outbound(OPERATOR_URLS) as http:
        with failing(OutboundFailure.INVALID):
            await post(http, url)


async def test_permitted_host_and_port_are_reached_and_no_others() -> None:
    async with serving(answering(HELLO)) as server, serving(answering(HELLO)) as other:
        permitted = NetworkPolicy((server.url.removeprefix("http://").rstrip("/"),), setting="A_SETTING")
        async with Outbound(permitted) as http:
            assert await post(http, server.url) == (200, "hello")
            with pytest.raises(OutboundError, match=r"private network.*A_SETTING=127\.0\.0\.1") as caught:
                await post(http, other.url)

    assert caught.value.failure is OutboundFailure.DENIED
    assert other.connections == 0


@dataclass
class Names:
    """What the machine's resolver answers."""

    addresses: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def resolve(self, host: str, port: int, *_: object, **__: object) -> list[Any]:
        self.asked.append(host)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [
            (families[":" in one], socket.SOCK_STREAM, 6, "", (one, port, 0, 0) if ":" in one else (one, port))
            for one in self.addresses[host]
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.resolve)
    return made


@pytest.mark.parametrize("first", [["127.0.0.1"], [PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], ["::ffff:127.0.0.1"]])
async def test_name_with_a_private_address_is_not_contacted(names: Names, first: list[str]) -> None:
    async with serving(answering(HELLO)) as server, Outbound(NOBODY) as http:
        names.addresses["a.example"] = first
        with failing(OutboundFailure.DENIED):
            await post(http, server.url.replace("127.0.0.1", "a.example"))

    assert server.connections == 0


async def test_name_whose_address_changed_after_it_was_resolved_is_not_contacted(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver saw nothing wrong; the address is judged again by the socket that connects to it."""
    monkeypatch.setattr(outbound._PublicResolver, "resolve", aiohttp.ThreadedResolver.resolve)
    async with serving(answering(HELLO)) as server, Outbound(NOBODY) as http:
        names.addresses["a.example"] = ["127.0.0.1"]
        with failing(OutboundFailure.DENIED):
            await post(http, server.url.replace("127.0.0.1", "a.example"))

    assert server.connections == 0


async def test_unknown_name_is_reported(names: Names) -> None:
    async with Outbound(NOBODY) as http:
        with pytest.raises(OutboundError, match=r"Cannot resolve nowhere\.example"):
            await post(http, "http://nowhere.example/")


@pytest.mark.parametrize("name", ["faß.de", "xn--fa-hia.de"])
async def test_international_name_is_looked_up_in_its_wire_form(names: Names, name: str) -> None:
    async with Outbound(NOBODY) as http:
        with failing(OutboundFailure.UNREACHABLE):
            await post(http, f"http://{name}/")

    assert names.asked == ["xn--fa-hia.de"]


async def test_unresponsive_first_address_costs_little(names: Names) -> None:
    async with serving(answering(HELLO)) as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        names.addresses["a.example"] = ["127.0.0.9", "127.0.0.1"]
        with socket.create_server(("127.0.0.9", port), backlog=0) as dead:
            # Its queue is full, so the kernel ignores whoever comes next.
            waiting = [socket.socket() for _ in range(4)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(dead.getsockname())
            async with Outbound(OPERATOR_URLS) as http:
                began = asyncio.get_running_loop().time()
                assert await post(http, f"http://a.example:{port}/") == (200, "hello")
                took = asyncio.get_running_loop().time() - began
            for one in waiting:
                one.close()

    assert 0.2 < took < 3


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_not_followed(status: int) -> None:
    async with serving(answering(HELLO)) as inside:
        head = f"HTTP/1.1 {status} X\r\nLocation: {inside.url}\r\nContent-Length: 0\r\n\r\n".encode()
        async with serving(answering(head)) as server, Outbound(OPERATOR_URLS) as http:
            assert await post(http, server.url) == (status, "")

    assert inside.connections == 0


# Through an operator's proxy


@asynccontextmanager
async def proxy(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answers[min(len(heads), len(answers)) - 1])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE):
        yield f"http://ada:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


CLOSING = HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("host", [*LITERALS[:12], "[64:ff9b::7f00:1]", "10.0.0.1", "169.254.169.254"])
async def test_target_is_judged_before_a_proxy_is_asked(host: str) -> None:
    async with proxy(CLOSING) as (url, heads), Outbound(NOBODY, proxy=url) as http:
        with failing(OutboundFailure.DENIED, OutboundFailure.INVALID):
            await post(http, f"http://{host}:80/")

    assert heads == []


async def test_public_target_is_reached_through_the_proxy(names: Names) -> None:
    # The last one is a name that only the proxy can resolve.
    names.addresses |= {PUBLIC: [PUBLIC], "a.example": [PUBLIC], "127.0.0.1": ["127.0.0.1"]}
    async with proxy(CLOSING) as (url, heads), Outbound(NOBODY, proxy=url) as http:
        for host in (PUBLIC, "a.example", "b.example"):
            assert await post(http, f"http://{host}/x") == (200, "hello")

    assert [head.split(b"\r\n")[0] for head in heads] == [
        f"POST http://{host}/x HTTP/1.1".encode() for host in (PUBLIC, "a.example", "b.example")
    ]
    assert all(b"Proxy-Authorization: Basic " in head for head in heads)


async def test_proxy_that_denies_a_tunnel_is_reported(names: Names) -> None:
    names.addresses |= {"a.example": [PUBLIC], "127.0.0.1": ["127.0.0.1"]}
    async with (
        proxy(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n") as (url, heads),
        Outbound(NOBODY, proxy=url) as http,
    ):
        with pytest.raises(OutboundError, match="proxy answered with HTTP 403"):
            await post(http, "https://a.example/x")

    assert heads[0].startswith(b"CONNECT a.example:443 ")
    assert b"secret" not in heads[0]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_proxy_of_the_environment_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy(CLOSING) as (url, heads), serving(answering(HELLO)) as server, Outbound(OPERATOR_URLS) as http:
        monkeypatch.setenv(name, url)
        assert await post(http, server.url) == (200, "hello")

    assert heads == []


async def test_password_of_a_netrc_is_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    secrets = tmp_path / "netrc"
    secrets.write_text("machine 127.0.0.1 login ada password hunter2\n")
    monkeypatch.setenv("NETRC", str(secrets))
    async with proxy(CLOSING) as (url, heads), Outbound(OPERATOR_URLS, limits=OutboundLimits()) as http:
        await post(http, url.replace("ada:secret@", ""))

    assert b"authorization" not in heads[0].lower()
