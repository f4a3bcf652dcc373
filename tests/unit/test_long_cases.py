"""Of a test that is marked ``gate_cases``, the gate runs some cases."""

import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest
from tests.long_cases import leave_out_cases

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    leave_out_cases(items)
"""
TEST = """
import pytest

@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("case", range(5))
def test_one(case): ...

@pytest.mark.gate_cases(3)
@pytest.mark.parametrize("case", range(7))
def test_three(case): ...

@pytest.mark.gate_cases(9)
@pytest.mark.parametrize("case", range(2))
def test_few(case): ...

@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.crash), 1, 2])
def test_left_out_already(case): ...

@pytest.mark.parametrize("case", range(2))
def test_without(case): ...
"""


def test_cases_are_spread_evenly(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TEST)
    root = Path(__file__).parent.parent.parent
    collect = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not long and not crash"]
    listed = subprocess.run(
        [sys.executable, *collect, tmp_path],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )

    names = [line.partition("::test_")[2] for line in listed.stdout.splitlines() if "::" in line]
    assert names == [
        *("one[0]", "three[0]", "three[2]", "three[4]", "few[0]", "few[1]", "left_out_already[1]"),
        *("without[0]", "without[1]"),
    ], listed.stdout
