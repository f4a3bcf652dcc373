"""``toolcrib doctor``, as a person and as a script runs it."""

import json
import os
import subprocess
import sys

import pytest

from tests.wait_until import PATIENCE

pytestmark = pytest.mark.req("SH-3", part="doctor shows level, gaps and remedies")


def doctor(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from toolcrib.cli.main import main; main()", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_doctor_reports_isolation_to_a_person() -> None:
    result = doctor()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("Commands are on: isolation is 'namespaces'")
    assert "Fix: " in result.stdout


@pytest.mark.req("SY-8", part="doctor says what delegation needs")
def test_doctor_suggests_no_remedy_that_cannot_work() -> None:
    """The unit's own cgroup contains the server, so it cannot pass on what was delegated to it."""
    gaps = {gap["name"]: gap for gap in json.loads(doctor("--json").stdout)["gaps"]}
    if os.access("/sys/fs/cgroup/memory", os.W_OK):
        assert "cgroups" not in gaps
    else:
        assert "DelegateSubgroup=" in gaps["cgroups"]["remedy"]


def test_doctor_reports_isolation_to_a_script() -> None:
    result = json.loads(doctor("--json").stdout)
    assert (result["level"], result["offered"], result["overlay"]) == ("namespaces", True, True)
    assert {"seccomp", "pid-namespace", "no-survivors", "memory-bomb", "fork-bomb"} <= set(result["passed"])
    assert not [gap for gap in result["gaps"] if gap["lowers_the_level"]]
