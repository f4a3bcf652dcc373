"""What the whole server adds to a word on its way from the model to a WebSocket client.

usage: python -m bench relay [--reps 3] [--seconds 5] [--streams 1,25,100]

The model says 50 words a second in every stream; each word is the moment at which it was written. The raw client reads
the model's own stream; ours sends a message to a session each and reads what the server tells of it.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
from websockets.asyncio.client import connect

from bench.office import model_server
from bench.servers import fresh_database, member, our_server, url_of
from toolcrib.storage import migrate

GAP_MS = 20
AIM_P50_MS, AIM_P99_MS = 5, 100
_RULES = "provider: openai-compatible\nmodel: {model}\ncontext_window: 100000\ntoolsets: [project]\n"


@dataclass(frozen=True)
class Latencies:
    p50: float
    p99: float
    server_cpu: float = 0.0

    @classmethod
    def of(cls, waits: list[float], *, server_cpu: float = 0.0) -> "Latencies":
        ordered = sorted(waits)
        return cls(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], server_cpu)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--streams", default="1,25,100")
    options = parser.parse_args(argv)
    words = int(options.seconds * 1000 / GAP_MS)
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name, model_server() as url:
        migrate.upgrade(url_of(name))
        with our_server(Path(folder), url_of(name, migrate.APP_ROLE)) as server:
            bench = _Bench(server.port, server.pid, url, words)
            print("| streams | raw p50 / p99 ms | ours p50 / p99 ms | added p50 / p99 ms | server CPU % |")
            print("|---|---|---|---|---|")
            for streams in map(int, options.streams.split(",")):
                found = [bench.pair(streams) for _ in range(options.reps)]
                _report(streams, found)
    print(f"\nAim at 100 streams: added p50 < {AIM_P50_MS} ms, p99 < {AIM_P99_MS} ms.")


class _Person:
    """Someone with an agent and access to the model. Nobody may hold more than 64 connections."""

    def __init__(self, port: int, model_url: str, model: str) -> None:
        self.token, self.workspace, _ = member(port)
        self._http = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", headers={"authorization": f"Bearer {self.token}"}, timeout=60
        )
        access = {"secret": "x", "base_url": model_url, "check": False}
        self._http.put("/credentials/openai-compatible", json=access).raise_for_status()
        agent = {"name": "paced", "definition": _RULES.format(model=model)}
        made = self._http.post(f"/workspaces/{self.workspace}/agents", json=agent).raise_for_status()
        self._agent = made.json()["id"]

    def session(self) -> str:
        made = self._http.post(f"/workspaces/{self.workspace}/sessions", json={"agent_id": self._agent})
        return str(made.raise_for_status().json()["id"])


class _Bench:
    def __init__(self, port: int, pid: int, model_url: str, words: int) -> None:
        self._port, self._pid, self._model_url, self._words = port, pid, model_url, words
        self._model = f"paced-{words}-{GAP_MS}"
        self._people = [_Person(port, model_url, self._model) for _ in range(4)]

    def pair(self, streams: int) -> tuple[Latencies, Latencies]:
        """The raw client and ours, one after the other."""
        raw = Latencies.of(asyncio.run(self._all(streams, [self._raw] * streams)))
        people = [self._people[number % len(self._people)] for number in range(streams)]
        sessions = [(person, person.session()) for person in people]
        cpu, began = _cpu(self._pid), time.perf_counter()
        waits = asyncio.run(self._all(streams, [partial(self._ours, *one) for one in sessions]))
        load = 100 * (_cpu(self._pid) - cpu) / (time.perf_counter() - began)
        return raw, Latencies.of(waits, server_cpu=load)

    async def _all(self, streams: int, reading: Sequence[Callable[[], Awaitable[list[float]]]]) -> list[float]:
        async def later(number: int) -> list[float]:
            # Spread over one gap, as streams are that nobody has started together.
            await asyncio.sleep(number * GAP_MS / 1000 / streams)
            return await reading[number]()

        found = await asyncio.gather(*map(later, range(streams)))
        waits = [wait for some in found for wait in some]
        if len(waits) != streams * self._words:
            raise SystemExit(f"{len(waits)} words of {streams * self._words} came.")
        return waits

    async def _raw(self) -> list[float]:
        waits: list[float] = []
        body = {"model": self._model, "stream": True, "messages": [{"role": "user", "content": "Speak."}]}
        async with (
            httpx2.AsyncClient(timeout=60, trust_env=False) as http,
            http.stream("POST", f"{self._model_url}/chat/completions", json=body) as reply,
        ):
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    waits += _waits(delta.get("content", ""))
        return waits

    async def _ours(self, person: _Person, session: str) -> list[float]:
        waits: list[float] = []
        address = f"ws://127.0.0.1:{self._port}/api/v1/workspaces/{person.workspace}/ws"
        headers = {"authorization": f"Bearer {person.token}"}
        async with connect(address, additional_headers=headers, compression=None, open_timeout=60) as socket:
            await socket.send(json.dumps({"type": "chat:resume", "payload": {"conversationId": session}}))
            await socket.send(
                json.dumps({"type": "chat:send", "payload": {"conversationId": session, "content": "Speak."}})
            )
            async for frame in socket:
                message = json.loads(frame)
                if message["type"] == "chat:text-delta":
                    waits += _waits(message["payload"]["content"])
                if message["type"] == "chat:stream-end":
                    return waits
                if message["type"] == "chat:error" or message["payload"].get("ending") == "failed":
                    raise SystemExit(f"The server says: {message}")
        return waits


def _waits(text: str) -> list[float]:
    """Pieces that were joined on their way count each."""
    now = time.monotonic_ns()
    return [(now - int(word)) / 1e6 for word in text.split()]


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(streams: int, found: list[tuple[Latencies, Latencies]]) -> None:
    raw50, raw99 = (statistics.median(getattr(raw, part) for raw, _ in found) for part in ("p50", "p99"))
    our50, our99 = (statistics.median(getattr(ours, part) for _, ours in found) for part in ("p50", "p99"))
    added50 = statistics.median(ours.p50 - raw.p50 for raw, ours in found)
    added99 = statistics.median(ours.p99 - raw.p99 for raw, ours in found)
    cpu = statistics.median(ours.server_cpu for _, ours in found)
    print(
        f"| {streams} | {raw50:.1f} / {raw99:.1f} | {our50:.1f} / {our99:.1f}"
        f" | {added50:+.1f} / {added99:+.1f} | {cpu:.0f} |",
        flush=True,
    )
