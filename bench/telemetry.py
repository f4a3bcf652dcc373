"""``python -m bench telemetry``: what metrics and traces cost a ``read`` over HTTP.

Five servers, each with its own database: one without the code for both, one with both off, one with metrics, one with
metrics and traces, one that traces every request. All serve the same reads in alternating rounds; the first is not
counted.

usage: python -m bench telemetry [--reps 7] [--seconds 2] [--connections 8]
"""

import argparse
import math
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2

from bench import BODY
from bench.load import Wrk
from bench.servers import fresh_database, member, our_server, url_of
from toolcrib.runs import durable
from toolcrib.storage import migrate

# What each variant may cost at most, compared with another: its CPU time per read, and the reads per second.
AIMS = {
    "off": ("without", 1.05),
    "metrics": ("off", 1.05),
    "metrics and traces": ("off", 1.05),
    # What an operator chooses who sets a sampler.
    "every trace": ("off", math.inf),
}
READ = '{"tool": "read", "args": {"path": "/read.txt"}}'
# Takes the layer around the application and the one around calls out, before the server loads what uses them.
WITHOUT = """
import toolcrib.api.request_log, toolcrib.gate.call_observer
toolcrib.api.request_log.RequestLog = lambda app, **_: app
toolcrib.gate.call_observer.observed = lambda request, execute, _: execute(request)
from toolcrib.cli.main import main
main()
"""


@dataclass
class Variant:
    """A server, and what its rounds found."""

    name: str
    port: int
    pid: int
    path: str
    token: str
    cpu_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)

    def read(self, wrk: Wrk, *, counts: bool) -> None:
        before = _cpu_seconds(self.pid)
        load = wrk.run(self.port, self.path, READ, self.token)
        if load.errors:
            raise SystemExit(f"{load.errors} requests failed; the figures would mean nothing.")
        if counts:
            self.cpu_ms.append((_cpu_seconds(self.pid) - before) * 1000 / load.requests)
            self.per_second.append(load.per_second)
            print(f"  {self.name:18} {self.cpu_ms[-1]:.3f} ms {self.per_second[-1]:6.0f}/s", flush=True)


def main(arguments: list[str]) -> None:
    if arguments == ["collector"]:
        _collect()
        return
    parser = argparse.ArgumentParser(prog="python -m bench telemetry")
    parser.add_argument("--reps", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        traces = {"TOOLCRIB_OTLP_ENDPOINT": opened.enter_context(_collector())}
        variants = {
            name: opened.enter_context(_variant(Path(folder), name, environment, program))
            for name, environment, program in (
                ("without", {}, [sys.executable, "-c", WITHOUT]),
                ("off", {}, None),
                ("metrics", _metrics(), None),
                ("metrics and traces", {**_metrics(), **traces}, None),
                ("every trace", {**_metrics(), **traces, "OTEL_TRACES_SAMPLER": "parentbased_always_on"}, None),
            )
        }
        wrk = Wrk(Path(folder), connections=options.connections, seconds=options.seconds)
        for rep in range(options.reps + 1):
            # Now forwards, now backwards, so that none always comes after the same other.
            for name in variants if rep % 2 else reversed(variants):
                variants[name].read(wrk, counts=rep > 0)
        _report(variants)


def _metrics() -> dict[str, str]:
    return {"TOOLCRIB_METRICS_TOKEN": secrets.token_urlsafe(48)}


@contextmanager
def _variant(scratch: Path, name: str, environment: dict[str, str], program: list[str] | None) -> Iterator[Variant]:
    with fresh_database() as database:
        durable.upgrade(url_of(database))
        folder = scratch / name.replace(" ", "-")
        environment = {"TOOLCRIB_ACCESS_LOG": "false", **environment}
        with our_server(folder, url_of(database, migrate.APP_ROLE), program=program, **environment) as server:
            token, workspace, _ = member(server.port)
            path = f"/api/v1/workspaces/{workspace}/tools"
            call = {"tool": "write", "args": {"path": "/read.txt", "content": BODY}}
            headers = {"authorization": f"Bearer {token}"}
            httpx2.post(f"http://127.0.0.1:{server.port}{path}", json=call, headers=headers).raise_for_status()
            yield Variant(name, server.port, server.pid, path, token)


@contextmanager
def _collector() -> Iterator[str]:
    """Start a process that takes spans and drops them; its work is not the server's."""
    command = [sys.executable, "-m", "bench", "telemetry", "collector"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def _collect() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


def _report(variants: dict[str, Variant]) -> None:
    print(
        "\n| server | CPU ms a read | reads/s | compared with | CPU | reads/s | target |\n|---|---|---|---|---|---|---|"
    )
    failed = []
    for name, variant in variants.items():
        ours = f"| {name} | {statistics.median(variant.cpu_ms):.3f} | {statistics.median(variant.per_second):.0f} |"
        if name not in AIMS:
            print(f"{ours} | | | |")
            continue
        other, aim = AIMS[name]
        base = variants[other]
        cpu = statistics.median(variant.cpu_ms) / statistics.median(base.cpu_ms)
        rate = statistics.median(base.per_second) / statistics.median(variant.per_second)
        target = f"≤ {aim}" if math.isfinite(aim) else "none"
        print(f"{ours} {other} | {cpu:.3f} | {rate:.3f} | {target} |")
        if max(cpu, rate) > aim:
            failed.append(name)
    print(f"\n{os.getloadavg()[0]:.1f} processes wanted one of {os.cpu_count()} processors")
    if failed:
        raise SystemExit(f"Costs more than it may: {', '.join(failed)}.")


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
