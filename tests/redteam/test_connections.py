"""Connections that attackers try to keep open: half a request, none at all, an endless one, an unread response."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tests.databases import DatabaseUrls
from tests.faults.server import Server, client_of, started_server
from tests.stalls import no_stalls
from tests.wait_until import PATIENCE

HALF = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
MANY = 1_200


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory, database_urls: DatabaseUrls) -> Iterator[Server]:
    """A server with at most 1,024 file descriptors, a common default; we have enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    directory, limited = tmp_path_factory.mktemp("poor"), "prlimit --nofile=1024:1024"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MANY)), hard))
    with started_server(directory, database_urls, prefix=limited) as server:
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(server: Server) -> socket.socket:
    address = urlsplit(server.origin)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE)


async def answers(server: Server) -> bool:
    async with client_of(server) as client:
        return (await client.get(f"{server.origin}/health")).status_code == 200


@asynccontextmanager
async def held(server: Server, *, count: int, said: bytes) -> AsyncIterator[list[socket.socket]]:
    """Open many connections that send the given bytes and then stay silent."""
    with ExitStack() as opened:
        crowd = []
        for _ in range(count):
            one = opened.enter_context(await asyncio.to_thread(connected, server))
            one.sendall(said)
            crowd.append(one)
        yield crowd


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("said", [b"", HALF, HALF + b"\r\n{"], ids=["nothing", "half headers", "half a body"])
async def test_many_unfinished_requests_block_no_other_client(poor: Server, said: bytes) -> None:
    async with held(poor, count=MANY, said=said):
        for _ in range(5):
            assert await answers(poor)
    assert await answers(poor)
    no_stalls(poor.data_dir.parent)


@pytest.mark.long
async def test_unfinished_request_is_disconnected(served: Server) -> None:
    async with held(served, count=3, said=HALF) as crowd:
        for one in crowd:
            # It ends at its deadline.
            assert await asyncio.to_thread(ended, one)


async def test_endless_headers_are_rejected(served: Server) -> None:
    async with held(served, count=1, said=HALF) as (one,):
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await asyncio.to_thread(one.sendall, (b"X-More: " + b"x" * 1_000 + b"\r\n") * 10_000)
    assert await answers(served)


async def test_sequential_requests_are_answered_on_one_connection(served: Server) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with held(served, count=1, said=request + request) as (one,):
        one.sendall(request[:20])
        heard = b""
        while heard.count(b"HTTP/1.1 200") < 2:
            heard += await asyncio.to_thread(one.recv, 65_536)
        one.sendall(request[20:])
        while heard.count(b"HTTP/1.1 200") < 3:
            more = await asyncio.to_thread(one.recv, 65_536)
            assert more, heard
            heard += more


def ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True
