"""Write how long each test and each fixture of a run took, and print the totals by file and by fixture.

``pytest -p scripts.durations`` measures a run; ``python -m scripts.durations`` prints the table of the last one.
"""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("TOOLCRIB_DURATIONS", Path(__file__).parent.parent / ".cache" / "durations"))
ROWS = 40


class DurationsWriter:
    """Writes a line per phase of a test and per fixture that was set up, to one file per test process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", buffering=1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began, cpu = time.perf_counter(), _cpu_seconds()
        try:
            return (yield)
        finally:
            self._write(test=item.nodeid, seconds=time.perf_counter() - began, cpu=_cpu_seconds() - cpu, at=time.time())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(phase=report.when, test=report.nodeid, seconds=report.duration, outcome=report.outcome)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        began, cpu = time.perf_counter(), _cpu_seconds()
        try:
            return (yield)
        finally:
            name = f"{fixturedef.baseid}::{fixturedef.argname}".lstrip(":")
            self._write(
                fixture=name,
                scope=fixturedef.scope,
                seconds=time.perf_counter() - began,
                cpu=_cpu_seconds() - cpu,
                test=request.node.nodeid,
            )

    def _write(self, **row: object) -> None:
        self._file.write(json.dumps(row) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None and config.getoption("numprocesses", None):
        for old in FOLDER.glob("*.jsonl"):
            old.unlink()
        return
    config.pluginmanager.register(DurationsWriter(FOLDER / f"{worker or 'main'}.jsonl"))


def _cpu_seconds() -> float:
    """Return what this process and its children that ended have used."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def print_tables(folder: Path) -> None:
    rows = read_rows(folder)
    tests = [row for row in rows if "test" in row and "phase" not in row and "fixture" not in row]
    fixtures = [row for row in rows if "fixture" in row]
    print(f"{len(tests)} tests, {sum(row['seconds'] for row in tests):.0f} s in all processes together")
    _print_table("folder", tests, lambda row: "/".join(row["test"].split("::")[0].split("/")[:3]))
    _print_table("file", tests, lambda row: row["test"].split("::")[0])
    _print_table("fixture", fixtures, lambda row: f"{row['fixture']} ({row['scope']})")
    _print_table("test", tests, lambda row: row["test"])


def _print_table(title: str, rows: list[dict[str, Any]], key: Any) -> None:
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for row in rows:
        total = totals[key(row)]
        total[0] += 1
        total[1] += row["seconds"]
        total[2] += row["cpu"]
    print(f"\n{'seconds':>8} {'cpu':>8} {'count':>6}  {title}")
    for name, (count, seconds, cpu) in sorted(totals.items(), key=lambda pair: -pair[1][1])[:ROWS]:
        print(f"{seconds:8.1f} {cpu:8.1f} {count:6.0f}  {name}")


if __name__ == "__main__":
    print_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
