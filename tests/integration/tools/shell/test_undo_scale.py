"""What an undo of many files costs, per file and compared with the call that it undoes.

Costs are processor time of this process and of PostgreSQL, which other programs on the machine do not change much. The
campaign (`make campaigns ONLY=undo-scale`) prints them with the time that passed.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import ran
from toolcrib.core.errors import TimedOut
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.gate.call_pipeline import GateLimits

IN_A_FOLDER = 100
# `/proc` counts processor time in ticks.
TICKS = 100


@dataclass
class Cost:
    """What calls cost: processor seconds, and seconds that passed."""

    used: float = 0.0
    passed: float = 0.0

    def per_file(self, count: int) -> float:
        return self.used / count


@dataclass(frozen=True)
class Costs:
    """The costs of making a change, undoing and redoing it."""

    files: int
    make: Cost
    undo: Cost
    redo: Cost

    def __str__(self) -> str:
        rows = {"made": self.make, "undone": self.undo, "redone": self.redo}
        parts = (f"{name} {c.per_file(self.files) * 1e3:.2f} ms ({c.passed:.1f} s)" for name, c in rows.items())
        return f"{self.files:>7,} files: {', '.join(parts)}"


class Meter:
    """Measures this process and the backends of its database."""

    def __init__(self, urls: DatabaseUrls) -> None:
        self._urls = urls

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        cost = Cost()
        used, began = self._used(), time.perf_counter()
        yield cost
        cost.used, cost.passed = self._used() - used, time.perf_counter() - began

    def _used(self) -> float:
        with psycopg.connect(self._urls.owner) as connection:
            rows = connection.execute(
                "select pid from pg_stat_activity "
                "where datname = current_database() and backend_type = 'client backend'"
            ).fetchall()
        return time.process_time() + sum(map(_ticks, (pid for (pid,) in rows))) / TICKS


def _ticks(pid: int) -> int:
    # A connection may have ended meanwhile.
    with suppress(FileNotFoundError, ProcessLookupError):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return 0


@pytest.fixture
def meter(database_urls: DatabaseUrls) -> Meter:
    return Meter(database_urls)


def loop(count: int, write: str) -> str:
    return (
        f"awk 'BEGIN {{ for (i = 0; i < {count}; i++) {{ f = int(i / {IN_A_FOLDER}) \"/\" i; {write}; close(f) }} }}'"
    )


def creating(count: int) -> str:
    folders = f"seq 0 {(count - 1) // IN_A_FOLDER} | xargs mkdir"
    write = loop(count, 'print "content", i > f')
    return f"mkdir -p many && cd many && {folders} && {write}"


def changing(count: int) -> str:
    write = loop(count, 'print "more", i >> f')
    return f"cd many && {write}"


def files_in(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file())


async def costs_of(workspace: WorkspaceFixture, meter: Meter, command: str, count: int) -> Costs:
    with meter.measured() as make:
        made = await workspace.call("bash", command=command, timeout=600)
    assert made.succeeded, made.error
    with meter.measured() as undo:
        undone = await workspace.result("undo", calls=[str(made.call_id)])
    assert (undone["total_conflicts"], undone["total_changes"] >= count) == (0, True)
    with meter.measured() as redo:
        redone = await workspace.result("undo", calls=[undone["call_id"]])
    assert (redone["total_conflicts"], redone["total_changes"] >= count) == (0, True)
    return Costs(count, make, undo, redo)


async def created_and_changed(workspace: WorkspaceFixture, meter: Meter, count: int) -> tuple[Costs, Costs]:
    """Create files in one call and change them in another; undo and redo each. Leaves nothing behind."""
    created = await costs_of(workspace, meter, creating(count), count)
    assert files_in(workspace.project / "many") == count
    changed = await costs_of(workspace, meter, changing(count), count)
    assert (workspace.project / "many" / "0" / "7").read_text() == "content 7\nmore 7\n"
    await ran(workspace, "rm -rf many")
    return created, changed


@pytest.mark.long
async def test_undo_takes_time_in_proportion_to_its_files(workspace: WorkspaceFixture, meter: Meter) -> None:
    # A quadratic undo would be 5 times as expensive. What else runs on the machine adds to a cost now and then.
    seen = []
    for _ in range(3):
        few, many = [await created_and_changed(workspace, meter, count) for count in (1_000, 5_000)]
        seen.append([(str(less), str(more)) for less, more in zip(few, many, strict=True)])
        pairs = [(less, more) for one, other in zip(few, many, strict=True) for less, more in _undone(one, other)]
        if all(more.per_file(5_000) < 2.5 * less.per_file(1_000) for less, more in pairs):
            return

    pytest.fail(f"Undo is not linear: {seen}")


def _undone(few: Costs, many: Costs) -> tuple[tuple[Cost, Cost], tuple[Cost, Cost]]:
    return (few.undo, many.undo), (few.redo, many.redo)


@pytest.mark.long
async def test_undo_of_a_hundred_thousand_files(
    workspace: WorkspaceFixture, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for count in (1_000, 10_000, 100_000):
        found.append(await created_and_changed(workspace, meter, count))
        with capsys.disabled():
            sys.stdout.write(f"\ncreated: {found[-1][0]}\nchanged: {found[-1][1]}\n")
            sys.stdout.flush()

    for few, many in ((found[0], found[1]), (found[1], found[2])):
        for less, more in zip(few, many, strict=True):
            assert more.undo.per_file(more.files) < 2 * less.undo.per_file(less.files)
            assert more.redo.per_file(more.files) < 2 * less.redo.per_file(less.files)
    assert all(one.undo.passed < 3 * one.make.passed for costs in found for one in costs)


async def test_limit_of_calls_does_not_end_an_undo(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await workspace.call("write", path="/a.md", content="a")
    monkeypatch.setattr(workspace.engine.executor, "_limits", GateLimits(call_seconds=0.0))

    read = await workspace.call("read", path="/a.md")
    undone = await workspace.call("undo", calls=[str(made.call_id)])
    redone = await workspace.call("undo", last="undo")

    assert isinstance(read.error, TimedOut)
    assert (undone.succeeded, redone.succeeded) == (True, True)
    assert (workspace.project / "a.md").read_text() == "a"


async def test_undo_of_many_files_shows_its_progress(workspace: WorkspaceFixture) -> None:
    made = await workspace.call("bash", command=creating(1_200))
    few = await workspace.call("bash", command="echo one > one; echo two > two")

    assert await shown(workspace, few) == []
    lines = await shown(workspace, made)

    assert lines[0] == "Checked 0 of 1,213 files\n"
    assert {line.partition(" ")[0] for line in lines} == {"Checked", "Prepared", "Restored"}
    assert all(line.endswith(" of 1,213 files\n") for line in lines)


async def shown(workspace: WorkspaceFixture, made: Outcome) -> list[str]:
    """Undo a call and return what was shown meanwhile."""
    lines: list[str] = []
    arguments: dict[str, Any] = {"calls": [str(made.call_id)]}
    caller = replace(workspace.caller, call_id=CallId(new_id()))
    outcome = await workspace.engine.executor.execute(ToolCall("undo", arguments), caller, emit=lines.append)
    assert outcome.succeeded, outcome.error
    return lines
