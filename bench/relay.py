"""Latency that the server adds to a word between the model and a WebSocket client.

usage: python -m bench relay [--reps 3] [--seconds 5] [--streams 1,25,100]

The model writes 50 words a second in every stream; each word is the time at which it was written. The raw client reads
the model's own stream. Ours sends a message to a session per stream and reads the server's events. All start within
one gap between two words, so most of the work in the first second is starting runs; `later` omits that second. The
model, the client and PostgreSQL use the same processors.
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

from bench.cluster import ModelProcess, model_server
from bench.servers import fresh_database, member, our_server, url_of
from toolcrib.runs import durable
from toolcrib.storage import migrate

GAP_MS = 20
AIM_P50_MS, AIM_P99_MS = 5, 100
_RULES = "provider: openai-compatible\nmodel: {model}\ncontext_window: 100000\ntoolsets: [project]\n"


@dataclass(frozen=True)
class Word:
    """When the model wrote it, and its latency, both in milliseconds."""

    written: float
    wait: float


@dataclass(frozen=True)
class Found:
    """The result of one round of one kind of client."""

    p50: float
    p99: float
    later50: float
    later99: float
    # Percent of one processor.
    server: float
    client: float
    model: float
    server_us_a_word: float


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--streams", default="1,25,100")
    options = parser.parse_args(argv)
    words = int(options.seconds * 1000 / GAP_MS)
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name, model_server() as model:
        durable.upgrade(url_of(name))
        with our_server(Path(folder), url_of(name, migrate.APP_ROLE)) as server:
            bench = _Bench(server.port, server.pid, model, words)
            print(f"load {os.getloadavg()[0]:.1f}\n")
            print("| streams | raw p50 / p99 ms | ours p50 / p99 | later p50 / p99 | added p50 / p99 "
                  "| CPU % server, client, model (raw: client, model) | server µs a word |\n"
                  "|---|---|---|---|---|---|---|")  # fmt: skip
            for streams in map(int, options.streams.split(",")):
                found = [bench.pair(streams) for _ in range(options.reps)]
                _report(streams, found)
    print(f"\nTarget at 100 streams: added p50 < {AIM_P50_MS} ms, p99 < {AIM_P99_MS} ms.")


class _Person:
    """A person with an agent and credentials for the model. A person can open at most 64 connections."""

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
    def __init__(self, port: int, pid: int, model: ModelProcess, words: int) -> None:
        self._port, self._pid, self._model_pid, self._model_url, self._words = port, pid, model.pid, model.url, words
        self._model = f"paced-{words}-{GAP_MS}"
        self._people = [_Person(port, model.url, self._model) for _ in range(4)]

    def pair(self, streams: int) -> tuple[Found, Found]:
        """Run the raw client and ours, one after the other."""
        raw = self._round(streams, [self._raw] * streams)
        people = [self._people[number % len(self._people)] for number in range(streams)]
        sessions = [(person, person.session()) for person in people]
        return raw, self._round(streams, [partial(self._ours, *one) for one in sessions])

    def _round(self, streams: int, reading: Sequence[Callable[[], Awaitable[list[Word]]]]) -> Found:
        pids = (self._pid, os.getpid(), self._model_pid)
        before, began = [_cpu(pid) for pid in pids], time.perf_counter()
        words = asyncio.run(self._all(streams, reading))
        seconds = time.perf_counter() - began
        server, client, model = (_cpu(pid) - spent for pid, spent in zip(pids, before, strict=True))
        first = min(word.written for word in words)
        p50, p99 = _quantiles(words)
        later50, later99 = _quantiles([word for word in words if word.written > first + 1000] or words)
        return Found(
            p50=p50,
            p99=p99,
            later50=later50,
            later99=later99,
            server=100 * server / seconds,
            client=100 * client / seconds,
            model=100 * model / seconds,
            server_us_a_word=1e6 * server / len(words),
        )

    async def _all(self, streams: int, reading: Sequence[Callable[[], Awaitable[list[Word]]]]) -> list[Word]:
        async def later(number: int) -> list[Word]:
            # Spread over one gap, as for streams that start independently.
            await asyncio.sleep(number * GAP_MS / 1000 / streams)
            return await reading[number]()

        found = await asyncio.gather(*map(later, range(streams)))
        words = [word for some in found for word in some]
        if len(words) != streams * self._words:
            raise SystemExit(f"{len(words)} words of {streams * self._words} arrived.")
        return words

    async def _raw(self) -> list[Word]:
        words: list[Word] = []
        body = {"model": self._model, "stream": True, "messages": [{"role": "user", "content": "Speak."}]}
        async with (
            httpx2.AsyncClient(timeout=60, trust_env=False) as http,
            http.stream("POST", f"{self._model_url}/chat/completions", json=body) as reply,
        ):
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    words += _words(delta.get("content", ""))
        return words

    async def _ours(self, person: _Person, session: str) -> list[Word]:
        words: list[Word] = []
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
                    words += _words(message["payload"]["content"])
                if message["type"] == "chat:stream-end":
                    return words
                if message["type"] == "chat:error" or message["payload"].get("ending") == "failed":
                    raise SystemExit(f"The server says: {message}")
        return words


def _words(text: str) -> list[Word]:
    """Split joined deltas into words."""
    now = time.monotonic_ns()
    return [Word(int(word) / 1e6, (now - int(word)) / 1e6) for word in text.split()]


def _quantiles(words: list[Word]) -> tuple[float, float]:
    ordered = sorted(word.wait for word in words)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(streams: int, found: list[tuple[Found, Found]]) -> None:
    def of(which: int, part: str) -> float:
        return float(statistics.median(getattr(pair[which], part) for pair in found))

    added50, added99 = (
        statistics.median(getattr(ours, part) - getattr(raw, part) for raw, ours in found) for part in ("p50", "p99")
    )
    print(
        f"| {streams} | {of(0, 'p50'):.1f} / {of(0, 'p99'):.1f} | {of(1, 'p50'):.1f} / {of(1, 'p99'):.1f}"
        f" | {of(1, 'later50'):.1f} / {of(1, 'later99'):.1f} | {added50:+.1f} / {added99:+.1f}"
        f" | {of(1, 'server'):.0f}, {of(1, 'client'):.0f}, {of(1, 'model'):.0f}"
        f" ({of(0, 'client'):.0f}, {of(0, 'model'):.0f}) | {of(1, 'server_us_a_word'):.0f} |",
        flush=True,
    )
