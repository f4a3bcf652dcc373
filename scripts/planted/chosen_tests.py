"""Run only the tests that a file lists, in its order, and write how each ended: ``-p scripts.planted.chosen_tests``."""

import json
import os
import re
from pathlib import Path

import pytest

# Set by the command that plants defects; test processes of pytest-xdist inherit it.
VARIABLE = "TOOLCRIB_PLANTED_TESTS"
_GROUP = re.compile(r"@[\w -]+$")


# Last: after pytest-xdist has appended groups to the ids, which sort nothing.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(json.loads(Path(os.environ[VARIABLE]).read_text()))}
    items[:] = sorted(
        (item for item in items if plain_id(item.nodeid) in places), key=lambda item: places[plain_id(item.nodeid)]
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or report.when == "teardown":
        _write(plain_id(report.nodeid), failed=report.failed)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(report.nodeid, failed=True)


def plain_id(name: str) -> str:
    """Return an id without the group that pytest-xdist appends."""
    return _GROUP.sub("", name)


def outcomes_file() -> Path:
    return Path(os.environ[VARIABLE]).with_suffix(".outcomes")


def _write(name: str, *, failed: bool) -> None:
    # The process that distributes tests hears of all of them.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with outcomes_file().open("a") as file:
            file.write(json.dumps({"test": name, "failed": failed}) + "\n")
