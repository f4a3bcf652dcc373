"""``python -m bench forward``: compare calls at the home of a workspace with calls that another node forwards to it.

Two servers on one database; reads and writes at the same concurrency, alternating between both.

usage: python -m bench forward [--reps 5] [--seconds 3] [--connections 32]
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from bench import BODY
from bench.load import Load, Wrk
from bench.servers import free_port, fresh_database, member, url_of
from toolcrib.runs import durable
from toolcrib.storage import migrate

# Targets: the latency of a forwarded call divided by that of a local one.
AIMS = {"read": 2.0, "write": 1.6}
READ_PATHS = 100


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench forward")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, _nodes(Path(folder)) as nodes:
        wrk = Wrk(Path(folder), connections=options.connections, seconds=options.seconds)
        _prepare(nodes)
        found: dict[str, list[Load]] = {}
        for rep in range(options.reps + 1):
            for name, (port, body) in _cases(nodes).items():
                load = wrk.run(port, f"/api/v1/workspaces/{nodes.workspace}/tools", body, nodes.token)
                if load.errors:
                    raise SystemExit(f"{name}: {load.errors} requests failed; the figures would mean nothing.")
                # The first round warms the caches.
                if rep:
                    found.setdefault(name, []).append(load)
                    print(f"  rep {rep} {name:15} {load.per_second:8.0f}/s", flush=True)
    _report(found)


@dataclass(frozen=True)
class NodePorts:
    """The home of a workspace, another node, and a person with access to both."""

    home: int
    other: int
    token: str
    workspace: str


@contextmanager
def _nodes(scratch: Path) -> Iterator[NodePorts]:
    with fresh_database() as name, ExitStack() as opened:
        durable.upgrade(url_of(name))
        shared = {
            "TOOLCRIB_DATABASE_URL": url_of(name, migrate.APP_ROLE),
            "TOOLCRIB_JWT_SECRET": secrets.token_urlsafe(48),
            "TOOLCRIB_AUDIT_SEAL_KEY": secrets.token_urlsafe(48),
            "TOOLCRIB_ACCESS_TOKEN_MINUTES": "600",
            "TOOLCRIB_OPEN_REGISTRATION": "true",
        }
        home = opened.enter_context(_node(scratch, "home", shared))
        # While there is only one node, it is the workspace's home.
        token, workspace, _ = member(home)
        other = opened.enter_context(_node(scratch, "other", shared))
        yield NodePorts(home, other, token, workspace)


@contextmanager
def _node(scratch: Path, name: str, shared: dict[str, str]) -> Iterator[int]:
    port = free_port()
    environment = {
        **shared,
        "TOOLCRIB_NODE_NAME": name,
        "TOOLCRIB_DATA_DIR": str(scratch / name),
        "TOOLCRIB_INTERNAL_PORT": str(free_port()),
    }
    command = [str(Path(sys.executable).parent / "toolcrib"), "serve", "--port", str(port)]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        for _ in range(600):
            try:
                httpx2.get(f"http://127.0.0.1:{port}/health", timeout=1)
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _cases(nodes: NodePorts) -> dict[str, tuple[int, str]]:
    # The number makes every body, and so every blob, unique.
    fresh = json.dumps(BODY + "number @N@\n")
    read = '{"tool": "read", "args": {"path": "/read/7.txt"}}'
    write = f'{{"tool": "write", "args": {{"path": "/write/@NODE@-@N@.txt", "content": {fresh}}}}}'
    return {
        "local read": (nodes.home, read),
        "forwarded read": (nodes.other, read),
        "local write": (nodes.home, write.replace("@NODE@", "local")),
        "forwarded write": (nodes.other, write.replace("@NODE@", "forwarded")),
    }


def _prepare(nodes: NodePorts) -> None:
    client = httpx2.Client(headers={"authorization": f"Bearer {nodes.token}"}, timeout=60)
    address = f"http://127.0.0.1:{nodes.home}/api/v1/workspaces/{nodes.workspace}/tools"
    for number in range(READ_PATHS):
        call = {"tool": "write", "args": {"path": f"/read/{number}.txt", "content": BODY}}
        client.post(address, json=call).raise_for_status()
    client.post(address, json={"tool": "mkdir", "args": {"path": "/write"}}).raise_for_status()


def _report(found: dict[str, list[Load]]) -> None:
    print("\n| call | requests/s | p50 ms | p99 ms | p50 to local | target |\n|---|---|---|---|---|---|")
    for kind, aim in AIMS.items():
        local, forwarded = found[f"local {kind}"], found[f"forwarded {kind}"]
        ratio = statistics.median(f.p50_ms / h.p50_ms for f, h in zip(forwarded, local, strict=True))
        for name, loads, said in (
            (f"local {kind}", local, "1 | "),
            (f"forwarded {kind}", forwarded, f"{ratio:.2f} | ≤ {aim}"),
        ):
            rate, p50, p99 = (
                statistics.median(getattr(load, field) for load in loads)
                for field in ("per_second", "p50_ms", "p99_ms")
            )
            print(f"| {name} | {rate:.0f} | {p50:.1f} | {p99:.1f} | {said} |")
