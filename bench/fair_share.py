"""How one account's load affects another: its reads and its shortest command, alone and beside a busy account.

usage: python -m bench fair_share [--reads 300] [--commands 15] [--connections 32] [--sleeps 16]

The busy account has 8 workspaces, sleeping commands in all of them, and clients that read without pause.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench import BODY
from bench.load import Wrk
from bench.servers import fresh_database, member, our_server, url_of
from toolcrib.runs import durable
from toolcrib.storage import migrate

# Targets: at most this many times as long as alone, at the 99th percentile.
AIMS = {"read": 2.0, "true": 3.0}
WORKSPACES = 8
# Between the start of the load and the first measurement.
_SETTLE_SECONDS = 2.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench fair_share")
    parser.add_argument("--reads", type=int, default=300)
    parser.add_argument("--commands", type=int, default=15)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--sleeps", type=int, default=16)
    options = parser.parse_args(arguments)
    os.environ["TOOLCRIB_OPEN_REGISTRATION"] = "true"
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name:
        durable.upgrade(url_of(name))
        with our_server(Path(folder), url_of(name, migrate.APP_ROLE)) as ours:
            stranger, person = Account(ours.port), Account(ours.port)
            person.call("write", path="/a.txt", content=BODY)
            stranger.call("write", path="/a.txt", content=BODY)
            person.call("bash", command="true")
            alone = _figures(person, options)
            with _busy(stranger, ours.port, Path(folder), options):
                time.sleep(_SETTLE_SECONDS)
                beside = _figures(person, options)
    _report(alone, beside)


class Account:
    """A person with a workspace and one connection."""

    def __init__(self, port: int) -> None:
        self.token, self.workspace, _ = member(port)
        self.client = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1",
            headers={"authorization": f"Bearer {self.token}"},
            timeout=120,
        )

    def call(self, tool: str, *, workspace: str | None = None, **arguments: object) -> float:
        """Call a tool and return the duration in milliseconds."""
        began = time.perf_counter()
        path = f"/workspaces/{workspace or self.workspace}/tools"
        self.client.post(path, json={"tool": tool, "args": arguments}).raise_for_status()
        return (time.perf_counter() - began) * 1000

    def another_workspace(self) -> str:
        made = self.client.post("/workspaces", json={"name": "another"}).raise_for_status().json()
        return str(made["id"])


def _figures(person: Account, options: argparse.Namespace) -> dict[str, list[float]]:
    return {
        "read": [person.call("read", path="/a.txt") for _ in range(options.reads)],
        "true": [person.call("bash", command="true") for _ in range(options.commands)],
    }


@contextmanager
def _busy(stranger: Account, port: int, folder: Path, options: argparse.Namespace) -> Iterator[None]:
    workspaces = [stranger.workspace, *(stranger.another_workspace() for _ in range(WORKSPACES - 1))]
    ended = threading.Event()
    threads = [
        threading.Thread(target=_sleeping, args=(stranger, port, workspaces[number % WORKSPACES], ended), daemon=True)
        for number in range(options.sleeps)
    ]
    read = json.dumps({"tool": "read", "args": {"path": "/a.txt"}})
    path = f"/api/v1/workspaces/{stranger.workspace}/tools"
    threads.append(threading.Thread(target=_reading, args=(folder, port, path, read, stranger, options, ended)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        threads[-1].join()


def _sleeping(stranger: Account, port: int, workspace: str, ended: threading.Event) -> None:
    headers = {"authorization": f"Bearer {stranger.token}"}
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=120) as client:
        while not ended.is_set():
            try:
                client.post(f"/workspaces/{workspace}/tools", json={"tool": "bash", "args": {"command": "sleep 20"}})
            except httpx2.TransportError:
                return


def _reading(
    folder: Path,
    port: int,
    path: str,
    body: str,
    stranger: Account,
    options: argparse.Namespace,
    ended: threading.Event,
) -> None:
    wrk = Wrk(folder, connections=options.connections, seconds=2)
    while not ended.is_set():
        try:
            load = wrk.run(port, path, body, stranger.token)
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
            return
        print(f"  the busy account reads {load.per_second:.0f}/s, p99 {load.p99_ms:.0f} ms", flush=True)


def _report(alone: dict[str, list[float]], beside: dict[str, list[float]]) -> None:
    print(
        "\n| call | alone p50/p99 ms | beside p50/p99 ms | p50 ratio | p99 ratio | target |\n|---|---|---|---|---|---|"
    )
    for kind, aim in AIMS.items():
        (p50, p99), (busy50, busy99) = (_percentiles(found[kind]) for found in (alone, beside))
        print(
            f"| {kind} | {p50:.1f} / {p99:.1f} | {busy50:.1f} / {busy99:.1f} "
            f"| {busy50 / p50:.2f} | {busy99 / p99:.2f} | ≤ {aim} |"
        )


def _percentiles(values: list[float]) -> tuple[float, float]:
    return statistics.median(values), statistics.quantiles(values, n=100, method="inclusive")[98]
