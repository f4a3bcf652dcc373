"""``make bench``: compare read and write over HTTP with a bare route that does the same work, interleaved.

usage: python -m bench [--reps 5] [--seconds 3] [--connections 32]
       python -m bench NAME …    what bench/NAME.py measures, such as search or shell
"""

import argparse
import importlib
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import httpx2
import psycopg

from bench import BODY
from bench.load import Load, Wrk
from bench.servers import ServerPair, server_pair
from tests.databases import admin_url

# Targets: our requests per second divided by the bare route's.
AIMS = {"read": 0.5, "write": 0.6}
READ_PATHS = 100


def main() -> None:
    with flushed_database():
        _measure()


@contextmanager
def flushed_database() -> Iterator[None]:
    """Let the private PostgreSQL of `make setup` flush what it commits, which it does not for tests."""
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        row = connection.execute("show fsync").fetchone()
        if row == ("on",):
            yield
            return
        _set_fsync(connection, "on")
        try:
            yield
        finally:
            _set_fsync(connection, "off")


def _set_fsync(connection: psycopg.Connection, value: LiteralString) -> None:
    connection.execute(f"alter system set fsync = {value}")
    connection.execute("select pg_reload_conf()")


def _measure() -> None:
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        importlib.import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server_pair(Path(folder)) as servers:
        wrk = Wrk(Path(folder), connections=options.connections, seconds=options.seconds)
        _prepare(servers)
        found: dict[str, list[Load]] = {}
        for rep in range(options.reps):
            for name, (port, path, body) in _cases(servers).items():
                load = wrk.run(port, path, body, servers.token)
                found.setdefault(name, []).append(load)
                print(f"  rep {rep + 1} {name:11} {load.per_second:8.0f}/s", flush=True)
                if load.errors:
                    raise SystemExit(f"{name}: {load.errors} requests failed; the figures would mean nothing.")
    _report(found)


def _cases(servers: ServerPair) -> dict[str, tuple[int, str, str]]:
    tools = f"/api/v1/workspaces/{servers.workspace}/tools"
    # The number makes every body, and so every blob, unique.
    fresh = json.dumps(BODY + "number @N@\n")
    return {
        "bare read": (servers.bare, "/read", '{"path": "/read/7.txt"}'),
        "our read": (servers.ours, tools, '{"tool": "read", "args": {"path": "/read/7.txt"}}'),
        "bare write": (servers.bare, "/write", f'{{"path": "/write/@N@.txt", "content": {fresh}}}'),
        "our write": (
            servers.ours,
            tools,
            f'{{"tool": "write", "args": {{"path": "/write/@N@.txt", "content": {fresh}}}}}',
        ),
    }


def _prepare(servers: ServerPair) -> None:
    client = httpx2.Client(headers={"authorization": f"Bearer {servers.token}"})
    address = f"http://127.0.0.1:{servers.ours}/api/v1/workspaces/{servers.workspace}/tools"
    for number in range(READ_PATHS):
        call = {"tool": "write", "args": {"path": f"/read/{number}.txt", "content": BODY}}
        client.post(address, json=call).raise_for_status()
    client.post(address, json={"tool": "mkdir", "args": {"path": "/write"}}).raise_for_status()


def _report(found: dict[str, list[Load]]) -> None:
    print("\n| route | requests/s | p50 ms | p99 ms | ratio to bare | target |\n|---|---|---|---|---|---|")
    for kind, aim in AIMS.items():
        bare, ours = found[f"bare {kind}"], found[f"our {kind}"]
        ratio = statistics.median(o.per_second / b.per_second for o, b in zip(ours, bare, strict=True))
        for name, loads, said in ((f"bare {kind}", bare, "1 | "), (f"our {kind}", ours, f"{ratio:.2f} | ≥ {aim}")):
            rate, p50, p99 = (
                statistics.median(getattr(load, field) for load in loads)
                for field in ("per_second", "p50_ms", "p99_ms")
            )
            print(f"| {name} | {rate:.0f} | {p50:.1f} | {p99:.1f} | {said} |")


if __name__ == "__main__":
    main()
