"""Look for a test that fails because of a defect, among those that run what it changes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from scripts.planted.chosen_tests import VARIABLE
from scripts.planted.defects import Defect, NoLongerApplies, Sources, plant
from scripts.planted.planting import Checkout
from scripts.planted.reach import Recording

# The most specific tests first: they find most defects, and the others need not even be collected.
_BATCHES = (40, 400)
_SECONDS_TO_CLEAN_UP = 30
# Of one test that failed, run again.
_SECONDS_OF_ONE_TEST = 180
_WEB_UNIT_TESTS = "vitest"
_SECONDS_OF_WEB_UNIT_TESTS = 600


class Ending(StrEnum):
    """What became of a defect."""

    FOUND = "found"
    NOT_FOUND = "not found"
    UNREACHED = "no test runs it"
    BOUND = "time ran out"
    NO_LONGER_APPLIES = "no longer applies"


@dataclass(frozen=True)
class Finding:
    """The result for one defect: how many of the tests that reach it ran, and which one failed."""

    name: str
    ending: Ending
    ran: int = 0
    reaching: int = 0
    seconds: int = 0
    test: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class _Run:
    """How tests ended that ran until one failed."""

    passed: frozenset[str]
    failed: tuple[str, ...]
    is_whole: bool


class Search:
    """Plants one defect after the other in a checkout."""

    def __init__(self, root: Path, recording: Recording, checkout: Checkout, notes: Path, *, workers: int) -> None:
        self._root = root
        self._recording = recording
        self._checkout = checkout
        self._list = notes / "tests.json"
        self._log = notes / "pytest.log"
        self._workers = workers

    def find(self, defect: Defect, sources: Sources, *, seconds: int) -> Finding:
        """Return whether a test fails with the defect, twice, and passes without it."""
        began = time.monotonic()
        try:
            planted = plant(defect, sources)
            tests = [test.name for test in self._recording.reaching(defect)]
        except NoLongerApplies as reason:
            return Finding(defect.name, Ending.NO_LONGER_APPLIES, test=str(reason))
        remaining = [*([_WEB_UNIT_TESTS] if planted.path.startswith("web/") else []), *tests]
        reaching, ran = len(remaining), 0

        def result(ending: Ending, test: str = "") -> Finding:
            return Finding(defect.name, ending, ran, reaching, round(time.monotonic() - began), test)

        if not remaining:
            return result(Ending.UNREACHED)
        while remaining:
            with self._checkout.planted(planted):
                run = self._run_until_one_fails(remaining, until=began + seconds)
                # Another one may have failed only beside others.
                suspects = [test for test in run.failed if self._fails_alone(test)]
            ran += len(run.passed) + len(run.failed)
            for suspect in suspects:
                if not self._fails_alone(suspect):
                    return result(Ending.FOUND, suspect)
            if not run.is_whole and not run.failed:
                return result(Ending.BOUND)
            ended = {*run.passed, *run.failed}
            remaining = [test for test in remaining if test not in ended] if run.failed else []
        return result(Ending.NOT_FOUND)

    def _run_until_one_fails(self, tests: Sequence[str], *, until: float) -> _Run:
        passed: set[str] = set()
        if tests[0] == _WEB_UNIT_TESTS:
            if self._fails_alone(_WEB_UNIT_TESTS):
                return _Run(frozenset(), (_WEB_UNIT_TESTS,), is_whole=True)
            passed.add(_WEB_UNIT_TESTS)
            tests = tests[1:]
        start = 0
        for size in (*_BATCHES, len(tests)):
            batch, start = tests[start : start + size], start + size
            if not batch:
                break
            run = self._run(batch, seconds=until - time.monotonic(), workers=self._workers if len(batch) > 2 else 0)
            passed |= run.passed
            if run.failed or not run.is_whole:
                return _Run(frozenset(passed), run.failed, run.is_whole)
        return _Run(frozenset(passed), (), is_whole=True)

    def _fails_alone(self, test: str) -> bool:
        if test == _WEB_UNIT_TESTS:
            path = f"{self._root}/.venv/bin:{os.environ['PATH']}"
            web = self._root / "web"
            command = [str(web / "node_modules" / ".bin" / "vitest"), "run"]
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    command, cwd=web, env=os.environ | {"PATH": path},
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
                return not _ends_within(process, _SECONDS_OF_WEB_UNIT_TESTS) or process.returncode != 0
        run = self._run([test], seconds=_SECONDS_OF_ONE_TEST, workers=0)
        # A defect may make a test wait for ever.
        return bool(run.failed) or not run.is_whole

    def _run(self, tests: Sequence[str], *, seconds: float, workers: int) -> _Run:
        if seconds < 1:
            return _Run(frozenset(), (), is_whole=False)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        files = [file for file in files if (self._root / file).exists()]
        if not files:
            return _Run(frozenset(), (), is_whole=True)
        self._list.write_text(json.dumps(list(tests)))
        outcomes = self._list.with_suffix(".outcomes")
        outcomes.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-p", "scripts.planted.chosen_tests", "-q", "--maxfail", "1"]
        if workers:
            command += ["-n", str(workers), "--dist", "loadgroup"]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*command, *files], cwd=self._root, env=os.environ | {VARIABLE: str(self._list)},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            is_whole = _ends_within(process, seconds)
        rows = [json.loads(line) for line in outcomes.read_text().splitlines()] if outcomes.exists() else []
        failed = tuple(dict.fromkeys(row["test"] for row in rows if row["failed"]))
        # 0: all passed; 1: some failed; 5: no test is left of those that were recorded. The package cannot be imported.
        if is_whole and process.returncode not in (0, 1, 5) and not failed:
            failed = (tests[0],)
        passed = frozenset(row["test"] for row in rows) - {*failed}
        return _Run(passed, failed, is_whole)


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        # First as from a terminal, so that fixtures end their servers.
        for number in (signal.SIGINT, signal.SIGKILL):
            os.killpg(process.pid, number)
            try:
                process.wait(_SECONDS_TO_CLEAN_UP)
            except subprocess.TimeoutExpired:
                continue
            break
        return False
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return True
