"""``toolcrib doctor``, as a person runs it and as a script does."""

import json
import subprocess
import sys

import pytest

from tests.patience import PATIENCE

pytestmark = pytest.mark.req("SH-3", part="doctor shows level, gaps and remedies")


def doctor(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from toolcrib.cli.main import main; main()", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_doctor_tells_a_person_what_holds() -> None:
    told = doctor()
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.startswith("Commands are on: isolation is 'namespaces'")
    assert "Remedy: " in told.stdout


def test_doctor_tells_a_script_what_holds() -> None:
    told = json.loads(doctor("--json").stdout)
    assert (told["level"], told["offered"], told["overlay"]) == ("namespaces", True, True)
    assert {"seccomp", "pid-namespace", "no-survivors", "memory-bomb", "fork-bomb"} <= set(told["held"])
    assert not [gap for gap in told["gaps"] if gap["lowers_the_level"]]
