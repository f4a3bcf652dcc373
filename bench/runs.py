"""Durable runs: time until the model's first word, runs per second, and the CPU time and WAL of a turn.

usage: python -m bench runs [--reps 3] [--at-once 32] [--crowd 20] [--langgraph PYTHON]

The CPU time is of this process, which runs all of Toolcrib; PostgreSQL and the model are other processes.
LangGraph does the same tasks in turn with ours, with the Python of a virtualenv that has it; its versions are in
docs/decisions/0009-runs.md.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from bench.cluster import FILES, Cluster, cluster, model_server
from bench.servers import fresh_database, url_of
from toolcrib.runs import durable

# Targets: half the CPU time and about a seventh of the WAL of LangGraph for the same task.
AIM_CPU_MS, AIM_WAL_KB = 16.0, 207.0
_CALLS = 3


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--crowd", type=int, default=20)
    parser.add_argument("--langgraph", type=Path)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, fresh_database() as name, model_server() as model:
        durable.upgrade(url_of(name))
        asyncio.run(_measure(name, Path(folder), model.url, options))


def _langgraph(python: Path, model_url: str, crowd: int) -> tuple[float, float, float]:
    """Measure the same as ``_Bench.task``, with the durability that LangGraph has by default."""
    with fresh_database() as name:
        environment = {"PEER_DATABASE": url_of(name), "PEER_MODEL_URL": model_url, "PEER_MODEL": f"counted-{FILES}-0"}
        done = subprocess.run(
            [python, Path(__file__).parent / "peers" / "langgraph_peer.py", "measure", str(crowd)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            check=True,
        )
    found = json.loads(done.stdout)
    return found["cpu_ms"], found["wall_ms"], found["wal_kb"]


async def _measure(name: str, scratch: Path, url: str, options: argparse.Namespace) -> None:
    async with cluster(name, scratch, url) as made:
        bench = _Bench(made, url_of(name))
        await bench.task(1)
        print("| what | value |\n|---|---|")
        for _ in range(options.reps):
            waits = await bench.dispatch(50)
            print(f"| submit to the model's first word, ms, p50 / p99 | {waits[25]:.1f} / {waits[-1]:.1f} |")
            rate = await bench.throughput(options.at_once)
            print(f"| runs of {_CALLS} calls a second, {options.at_once} at once | {rate:.1f} |")
            for crowd in (1, options.crowd):
                cpu, wall, wal = await bench.task(crowd)
                print(f"| {FILES} calls, {crowd} at once: CPU ms a turn (target ≤ {AIM_CPU_MS:g}) | {cpu:.1f} |")
                print(f"| {FILES} calls, {crowd} at once: wall ms a turn | {wall:.1f} |")
                print(f"| {FILES} calls, {crowd} at once: WAL kB a task (target ≤ {AIM_WAL_KB:g}) | {wal:.0f} |")
                if options.langgraph:
                    cpu, wall, wal = await asyncio.to_thread(_langgraph, options.langgraph, url, crowd)
                    print(f"| LangGraph, {crowd} at once: CPU ms, wall ms a turn | {cpu:.1f}, {wall:.1f} |")
                    print(f"| LangGraph, {crowd} at once: WAL kB a task | {wal:.0f} |")


class _Bench:
    def __init__(self, made: Cluster, owner_url: str) -> None:
        self._cluster = made
        self._owner_url = owner_url

    async def dispatch(self, runs: int) -> list[float]:
        """Measure from sending a message to the model's first word, one after another."""
        agent, waits = await self._cluster.agent("paced-1-0"), []
        for _ in range(runs):
            session = await self._cluster.session(agent)
            began = time.monotonic_ns()
            said = await self._cluster.answer(session)
            waits.append((int(said) - began) / 1e6)
        return sorted(waits)

    async def throughput(self, at_once: int) -> float:
        agent, rounds = await self._cluster.agent(f"scripted-{_CALLS}"), 3
        sessions = [await self._cluster.session(agent) for _ in range(at_once * rounds)]
        room, began = asyncio.Semaphore(at_once), time.perf_counter()

        async def one(number: int) -> None:
            async with room:
                await self._cluster.answer(sessions[number])

        await asyncio.gather(*map(one, range(len(sessions))))
        return len(sessions) / (time.perf_counter() - began)

    async def task(self, crowd: int) -> tuple[float, float, float]:
        """Measure CPU and wall time per turn in milliseconds, and WAL per task in kilobytes."""
        agent = await self._cluster.agent(f"scripted-{FILES}")
        rounds = 3 if crowd == 1 else 1
        sessions = [await self._cluster.session(agent) for _ in range(crowd * rounds)]
        wal, cpu, walls = self._wal(), time.process_time(), []
        for number in range(rounds):
            began = time.perf_counter()
            batch = sessions[number * crowd : (number + 1) * crowd]
            said = await asyncio.gather(*map(self._cluster.answer, batch))
            walls.append(time.perf_counter() - began)
            assert all(text.endswith("w199") for text in said)
        turns = len(sessions) * (FILES + 1)
        spent = time.process_time() - cpu
        wall = 1000 * statistics.median(walls) / crowd / (FILES + 1)
        return 1000 * spent / turns, wall, (self._wal() - wal) / len(sessions) / 1024

    def _wal(self) -> int:
        with psycopg.connect(self._owner_url) as connection:
            row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])
