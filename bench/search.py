"""``python -m bench search``: compare grep, ls, glob and find through the gate with bare ripgrep on the same tree.

usage: python -m bench search [--files 50000] [--megabytes 500] [--names 100000] [--reps 5]
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.engines import bench_settings, new_caller
from bench.servers import fresh_database, url_of
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.tool_calls import ToolCall
from toolcrib.gate.call_pipeline import Gate
from toolcrib.runs import durable
from toolcrib.storage.database import Database
from toolcrib.wiring.tool_runtime import assemble

# From no match to matches everywhere. The last is one page, because a result cannot hold all matches.
PATTERNS = {
    "never": "zzqxj_nowhere",
    "rare": "needle_in_the_hay",
    "a word": r"\breturn\b",
    "a call": r"fetch_\w+\(",
    "common": "import",
    "everywhere": "e",
}
AIM_WHOLE, AIM_PAGE, AIM_NAMES = 1.2, 0.3, 1.5


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench search")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--reps", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        texts, names = Path(folder) / "texts", Path(folder) / "names"
        _grow(texts, options.files, options.megabytes * 1_000_000 // options.files)
        _grow(names, options.names, 0)
        asyncio.run(_measure(Path(folder), texts, names, options.reps))


async def _measure(folder: Path, texts: Path, names: Path, reps: int) -> None:
    with fresh_database() as name:
        durable.upgrade(url_of(name))
        settings = bench_settings(name, folder / "data")
        async with Database.open(settings.database_url, settings.system_url) as database:
            engine = assemble(settings, database)
            print("| search | bare ms | ours ms | ratio | target |\n|---|---|---|---|---|")
            await _contents(WorkspaceTools(engine.executor, await new_caller(engine.stores, texts)), texts, reps)
            await _names(WorkspaceTools(engine.executor, await new_caller(engine.stores, names)), names, reps)


async def _contents(tools: "WorkspaceTools", tree: Path, reps: int) -> None:
    for name, pattern in PATTERNS.items():
        bare = ["rg", "-uu", "-n", "-e", pattern, "./"]
        whole = partial(tools.call, "grep", pattern=pattern, case_sensitive=True, limit=0)
        await _compare(f"{name}, whole", tree, bare, whole, reps, AIM_WHOLE)
    for name in ("common", "everywhere"):
        bare = ["rg", "-uu", "-n", "-e", PATTERNS[name], "./"]
        page = partial(tools.call, "grep", pattern=PATTERNS[name], case_sensitive=True)
        await _compare(f"{name}, page", tree, bare, page, reps, AIM_PAGE)


async def _names(tools: "WorkspaceTools", tree: Path, reps: int) -> None:
    calls: dict[str, dict[str, Any]] = {
        "ls": {"recursive": True},
        "glob": {"pattern": "*7.txt", "limit": 50},
        "find": {"name": "*7.txt"},
    }
    for tool, arguments in calls.items():
        page = partial(tools.call, tool, **arguments)
        await _compare(f"{tool}, page", tree, ["rg", "--files", "-uu"], page, reps, AIM_NAMES)


async def _compare(
    name: str, tree: Path, bare: list[str], ours: Callable[[], Awaitable[None]], reps: int, aim: float
) -> None:
    """Alternate both, so that other load on the machine affects both."""
    pairs: list[tuple[float, float]] = []
    for rep in range(reps + 1):
        started = time.perf_counter()
        _run(bare, tree)
        between = time.perf_counter()
        await ours()
        # The first round warms the caches.
        if rep:
            pairs.append((between - started, time.perf_counter() - between))
    bare_ms, ours_ms = (statistics.median(side) * 1000 for side in zip(*pairs, strict=True))
    ratio = statistics.median(our / their for their, our in pairs)
    print(f"| {name} | {bare_ms:.0f} | {ours_ms:.0f} | {ratio:.2f} | ≤ {aim} |", flush=True)


def _run(bare: list[str], tree: Path) -> None:
    # Into a pipe, as ours: with /dev/null ripgrep would stop at a file's first match.
    subprocess.run(bare, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)


@dataclass(frozen=True)
class WorkspaceTools:
    """A person who calls tools in one workspace."""

    executor: Gate
    caller: Caller

    async def call(self, tool: str, **arguments: Any) -> None:
        caller = replace(self.caller, call_id=CallId(new_id()))
        outcome = await self.executor.execute(ToolCall(tool, arguments), caller)
        if not outcome.succeeded or "timed_out" in outcome.result:
            raise SystemExit(f"{tool}: {outcome.error or outcome.result['hint']}; the figures would mean nothing.")


def _grow(root: Path, files: int, size: int) -> None:
    """Create a tree of folders with fifty files each, with words that resemble code."""
    chance = random.Random(files)
    words = ["".join(chance.choices("etaoinshrdlu_", k=chance.randint(3, 9))) for _ in range(2_000)]
    lines = [
        "  " * chance.randint(0, 4) + " ".join(chance.choices(words, k=chance.randint(2, 9))) for _ in range(20_000)
    ]
    lines += ["import sys"] * 400 + ["    return value"] * 40 + ["  fetch_page(url)"] * 4
    for number in range(files):
        folder = root / f"d{number // 1_000:03}" / f"s{number // 50 % 20:02}"
        folder.mkdir(parents=True, exist_ok=True)
        body = "\n".join(chance.choices(lines, k=size // 35)) + "\n" if size else ""
        if size and number % 5_000 == 7:
            body += "a needle_in_the_hay\n"
        (folder / f"f{number:06}.txt").write_text(body)
