"""``python -m bench shell``: what holding a command costs, beside the bare ``sh -c true``, interleaved.

usage: python -m bench shell [--runs 60] [--files 100 50000]
"""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter

from toolcrib.sandbox.command import Command
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.zones import Zone

# What we aim for: milliseconds over bare at the median, whatever the tree's size.
AIM_MS = 20.0
PER_FOLDER = 100


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--files", type=int, nargs="+", default=[100, 50_000])
    options = parser.parse_args(list(argv))
    asyncio.run(_measure(options.runs, options.files))


async def _measure(runs: int, sizes: Sequence[int]) -> None:
    sandbox = Sandbox()
    (await sandbox.probe()).require()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases: dict[str, Callable[[], Awaitable[None]]] = {"bare": _bare}
        for size in sizes:
            tree = _tree(folder / str(size), size)
            cases[f"sandbox, {size} files read-only"] = _case(sandbox, tree, folder, writable=False)
            cases[f"sandbox with overlay, {size} files"] = _case(sandbox, tree, folder, writable=True)
        found: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(runs):
            for case, run in cases.items():
                began = perf_counter()
                await run()
                found[case].append((perf_counter() - began) * 1e3)
    _report(found)


async def _bare() -> None:
    subprocess.run(["/bin/sh", "-c", "true"], check=True)  # noqa: ASYNC221 - the thing measured


def _case(sandbox: Sandbox, tree: Path, folder: Path, *, writable: bool) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with sandbox.transaction([Zone("tree", tree, "/tree", writable=writable)], folder) as view:
            result = await view.run(Command("true"))
            assert result.exit_code == 0, result.output.text
            assert len(await view.effect()) == 0

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
    print("\n| case | median ms | best ms | over bare | aim |\n|---|---|---|---|---|")
    for case, times in found.items():
        median = statistics.median(times)
        aim = "" if case == "bare" else f"≤ {AIM_MS:.0f}"
        print(f"| {case} | {median:.1f} | {min(times):.1f} | {median - bare:.1f} | {aim} |")


if __name__ == "__main__":
    main()
