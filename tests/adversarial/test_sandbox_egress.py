"""Cases 83 to 85: commands that were granted a host, and try to reach another."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.sandbox.sandbox_fixture import Stand, python
from toolcrib.core.ip_addresses import is_public
from toolcrib.sandbox.command import HostContact, SandboxCommand
from toolcrib.sandbox.egress_proxy import EgressNetwork, EgressProxy
from toolcrib.sandbox.sandbox import Sandbox

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n"


async def to_loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


# The upstream of these tests is on loopback, which takes the role of the public internet.
PRETENDED = Sandbox(network=EgressNetwork(resolve=to_loopback, allows=lambda _: True))
TRUE_RULES = Sandbox(network=EgressNetwork(resolve=to_loopback))


@asynccontextmanager
async def upstream() -> AsyncIterator[tuple[int, list[bytes]]]:
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], got


def fetching(address: str) -> str:
    return python(
        f"""
import urllib.request, urllib.error
try: print(urllib.request.urlopen({address!r}, timeout=10).read().decode().strip())
except urllib.error.HTTPError as error: print(error.code, error.read().decode().strip())
except (OSError, ValueError) as error: print("failed", error)
"""
    )


async def test_granted_host_is_reached_and_listed(tmp_path: Path) -> None:
    async with upstream() as (port, got):
        command = SandboxCommand(fetching(f"http://api.example.org:{port}/x?y=1"), hosts=(f"api.example.org:{port}",))
        result = await Stand(tmp_path, PRETENDED).run(command)
    assert result.output.text == "hello\n"
    assert result.contacted == (HostContact("api.example.org", port),)
    assert got[0].startswith(b"GET /x?y=1 HTTP/1.1\r\n")
    assert b"Connection: close" in got[0]


async def test_granted_host_is_reached_through_a_tunnel(tmp_path: Path) -> None:
    async with upstream() as (port, _):
        program = f"""
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 3128, timeout=10)
connection.set_tunnel("api.example.org", {port})
connection.request("GET", "/")
print(connection.getresponse().read().decode().strip())
"""
        command = SandboxCommand(python(program), hosts=(f"*.example.org:{port}",))
        result = await Stand(tmp_path, PRETENDED).run(command)
    assert (result.exit_code, result.output.text) == (0, "hello\n")
    assert result.contacted == (HostContact("api.example.org", port),)


async def test_exit_code_and_limits_work_beside_the_bridge(tmp_path: Path) -> None:
    stand = Stand(tmp_path, PRETENDED)
    assert (await stand.run(SandboxCommand("exit 7", hosts=("example.org",)))).exit_code == 7
    assert (await stand.run(SandboxCommand("kill -9 $$", hosts=("example.org",)))).exit_code == 137
    assert (await stand.run(SandboxCommand("sleep 60", seconds=0.5, hosts=("example.org",)))).timed_out


async def test_83_private_addresses_are_denied_under_any_name(tmp_path: Path) -> None:
    async with upstream() as (port, got):
        command = SandboxCommand(fetching(f"http://api.example.org:{port}/"), hosts=(f"api.example.org:{port}",))
        result = await Stand(tmp_path, TRUE_RULES).run(command)
    assert result.output.text.startswith("403 api.example.org")
    assert "its address is private" in result.output.text
    assert result.contacted == (HostContact("api.example.org", port, "its address is private"),)
    assert got == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "168.63.129.16",
        "::ffff:168.63.129.16",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::1",
        "2001:0:7f00:1::1",
    ],
)
def test_83_private_address_in_any_form_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


def test_83_public_addresses_are_public() -> None:
    assert all(is_public(ipaddress.ip_address(text)) for text in ("1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1"))


async def test_84_checked_address_is_the_one_contacted(tmp_path: Path) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    async with upstream() as (port, got):
        sandbox = Sandbox(network=EgressNetwork(resolve=rebinding, allows=lambda ip: ip.is_loopback))
        command = SandboxCommand(fetching(f"http://api.example.org:{port}/"), hosts=(f"api.example.org:{port}",))
        result = await Stand(tmp_path, sandbox).run(command)
    assert (result.output.text, len(asked), len(got)) == ("hello\n", 1, 1)


@pytest.mark.parametrize(
    "host",
    [
        "evil.org",
        "example.org.evil.org",
        "evilexample.org",
        "example.org@evil.org",
        "example.org%00.evil.org",
        "example.org\0.evil.org",
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "localhost",
        "\uff45xample.org",
        "example.org:443",
        "-example.org",
        "",
        "." * 300,
    ],
)
def test_85_tricks_with_names_are_denied(host: str) -> None:
    assert EgressProxy(("example.org", "*.example.com"), EgressNetwork()).denial(host.lower(), 443)


@pytest.mark.parametrize(
    ("host", "port", "granted"),
    [
        ("example.org", 443, True),
        ("example.org", 22, False),
        ("a.example.com", 80, True),
        ("example.com", 80, False),
        ("other.org", 8443, True),
        ("other.org", 443, False),
    ],
)
def test_grant_covers_a_name_and_its_ports(host: str, port: int, granted: bool) -> None:
    egress = EgressProxy(("example.org", "*.example.com", "other.org:8443"), EgressNetwork())
    assert (egress.denial(host, port) is None) == granted


async def test_only_the_proxy_reaches_the_network(tmp_path: Path) -> None:
    async with upstream() as (port, got):
        program = f"""
import socket
for address in (("127.0.0.1", {port}), ("1.1.1.1", 443)):
    try: socket.create_connection(address, 2); print("connected", address)
    except OSError: pass
try: socket.getaddrinfo("api.example.org", 80); print("resolved")
except OSError: pass
end = "\\r\\n\\r\\n"
for head in ("CONNECT evil.org:443 HTTP/1.1" + end, "GET http://evil.org/ HTTP/1.1" + end, "\\0" + end, "x" * 20000):
    talk = socket.create_connection(("127.0.0.1", 3128), 5)
    try:
        talk.sendall(head.encode())
        print(talk.recv(12).decode())
    except OSError:
        print()
"""
        result = await Stand(tmp_path, PRETENDED).run(
            SandboxCommand(python(program), hosts=(f"api.example.org:{port}",))
        )
    assert result.output.text.splitlines() == ["HTTP/1.1 403", "HTTP/1.1 403", "", ""]
    assert {contact.refused for contact in result.contacted} == {"not granted"}
    assert got == []


async def test_without_a_grant_there_is_no_proxy(tmp_path: Path) -> None:
    result = await Stand(tmp_path, PRETENDED).run("env | grep -i proxy; ls /run")
    assert "No such file" in result.output.text
    assert "http" not in result.output.text
