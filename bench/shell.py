"""``python -m bench shell``: overhead of the sandbox over the bare ``sh -c true``, interleaved.

Three variants: the sandbox alone; a whole transaction through the gate, by a person and by an agent, whose view is
masked; and a transaction whose effect is a file, committed to the history and to disk. Then the time of each stage of
an agent's command, in the largest tree.

usage: python -m bench shell [--runs 60] [--files 100 50000]
"""

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import perf_counter

import uvloop

from bench.engines import bench_settings, new_caller
from bench.servers import fresh_database, url_of
from bench.turn_stages import Profile, timed_stages
from toolcrib.core.agents import AgentRules, ToolPermission, TrustLevel
from toolcrib.core.callers import Agent, Caller
from toolcrib.core.ids import AgentId, CallId, new_id
from toolcrib.core.tool_calls import ToolCall
from toolcrib.policy.agent_definition import render_definition
from toolcrib.runs import durable
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.tool_runtime import ToolRuntime, assemble

Case = Callable[[], Awaitable[None]]

# Targets: median overhead in milliseconds for any size of the tree, and how much the size may add.
AIM_MS = 20.0
AIM_RATIO = 1.2
PER_FOLDER = 100


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--files", type=int, nargs="+", default=[100, 50_000])
    options = parser.parse_args(list(argv))
    uvloop.run(_measure(options.runs, options.files))  # as the server runs


async def _measure(runs: int, sizes: Sequence[int]) -> None:
    sandbox = Sandbox()
    await sandbox.require()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases: dict[str, Case] = {"bare": _bare}
        async with _gate(folder, sandbox) as engine:
            for size in sizes:
                tree = _tree(folder / str(size), size)
                cases[f"sandbox, {size} files read-only"] = _case(sandbox, tree, folder, writable=False)
                cases[f"sandbox with overlay, {size} files"] = _case(sandbox, tree, folder, writable=True)
                person = await new_caller(engine.stores, tree)
                agent = await _agent(engine, person)
                cases[f"gate, {size} files, a person's `true`"] = _call(engine, person, "true")
                cases[_agents_true(size)] = _call(engine, agent, "true")
                cases[f"gate, {size} files, an agent writes one"] = _call(engine, agent, "echo {} > made.txt")
            found = await _interleaved(cases, runs)
            _report(found)
            _report_ratio(found, min(sizes), max(sizes))
            for case in list(cases)[-2:]:
                await _profile(case, cases[case], runs)


def _agents_true(size: int) -> str:
    return f"gate, {size} files, an agent's `true`"


async def _interleaved(cases: dict[str, Case], runs: int) -> dict[str, list[float]]:
    for run in cases.values():
        await run()
    found: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(runs):
        for case, run in cases.items():
            began = perf_counter()
            await run()
            found[case].append((perf_counter() - began) * 1e3)
    return found


async def _profile(title: str, run: Case, runs: int) -> None:
    passed = []
    with timed_stages() as take_stages:
        for _ in range(runs):
            take_stages()
            await run()
            passed.append(take_stages())
    Profile(tuple(passed)).print(title)


@asynccontextmanager
async def _gate(folder: Path, sandbox: Sandbox) -> AsyncIterator[ToolRuntime]:
    with fresh_database() as name:
        durable.upgrade(url_of(name))
        settings = bench_settings(name, folder / "data")
        async with Database.open(settings.database_url, settings.system_url) as database:
            yield assemble(settings, database, sandbox=sandbox)


async def _agent(engine: ToolRuntime, person: Caller) -> Caller:
    rules = AgentRules(
        trust=TrustLevel.AUTONOMOUS, toolsets=("studio",), tool_permissions={"bash": ToolPermission(allowed=True)}
    )
    stored = await engine.stores.agents.create(Tenant.of(person), name="bench", definition=render_definition(rules))
    return replace(person, agent=Agent(AgentId(stored.id), "bench", rules))


def _call(engine: ToolRuntime, caller: Caller, command: str) -> Case:
    numbers = count()

    async def run() -> None:
        call = ToolCall("bash", {"command": command.format(next(numbers))})
        outcome = await engine.executor.execute(call, replace(caller, call_id=CallId(new_id())))
        assert outcome.succeeded, outcome.error

    return run


async def _bare() -> None:
    subprocess.run(["/bin/sh", "-c", "true"], check=True)  # noqa: ASYNC221 - the thing measured


def _case(sandbox: Sandbox, tree: Path, folder: Path, *, writable: bool) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with sandbox.transaction([ViewMount("tree", tree, "/tree", writable=writable)], folder) as view:
            result = await view.run(SandboxCommand("true"))
            assert result.exit_code == 0, result.output.text
            assert len((await view.effect()).entries) == 0

    return run


def _tree(root: Path, size: int) -> Path:
    for first in range(0, size, PER_FOLDER):
        folder = root / str(first)
        folder.mkdir(parents=True)
        for number in range(first, min(first + PER_FOLDER, size)):
            (folder / f"{number}.txt").write_text(f"file {number}\n")
    return root


def _report(found: dict[str, list[float]]) -> None:
    bare = statistics.median(found["bare"])
    print("\n| case | median ms | best ms | over bare | target |\n|---|---|---|---|---|")
    for case, times in found.items():
        median = statistics.median(times)
        aim = "" if case == "bare" else f"≤ {AIM_MS:.0f}"
        print(f"| {case} | {median:.1f} | {min(times):.1f} | {median - bare:.1f} | {aim} |")


def _report_ratio(found: dict[str, list[float]], small: int, large: int) -> None:
    ratio = statistics.median(found[_agents_true(large)]) / statistics.median(found[_agents_true(small)])
    print(f"\nAn agent's `true`, {large} files to {small}: ratio {ratio:.2f} of medians (target ≤ {AIM_RATIO}).")


if __name__ == "__main__":
    main()
