"""How long commands take to start in local mode: CPU time of the process and its children, and time to the first word.

usage: python -m bench start [--reps 5] [--program PATH]

The user is an ordinary one, and no chat is open: `toolcrib log` starts and stops the private PostgreSQL, whose CPU time
counts too. The model is a fake on loopback, in this process.
"""

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.local_machine import TOOLCRIB, Laptop, laptop, user_of_laptop
from tests.integration.runs.conftest import says

# Seconds.
TARGETS = {
    "toolcrib --version, CPU": 0.25,
    "toolcrib log, CPU": 1.0,
    "first word of toolcrib run, wall": 1.8,
}
_WORDS = "Good day"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--program", default=TOOLCRIB, help="the installed command")
    options = parser.parse_args(arguments)
    with laptop() as own:
        own.program = options.program
        project = own.project()
        # Creates the database, and a call for the log.
        own.model.script = [says("", ("write", {"path": "/a.txt", "content": "a\n"})), says(f"{_WORDS}.")]
        _first_word(own, project)
        found = {
            "toolcrib --version, CPU": _times(lambda: _cpu(own, "--version", at=project), options.reps),
            "toolcrib log, CPU": _times(lambda: _cpu(own, "log", at=project), options.reps),
            "first word of toolcrib run, wall": _times(lambda: _later(own, project), options.reps),
        }
    print("| what | median s | all | target |\n|---|---|---|---|")
    for name, times in found.items():
        every = ", ".join(f"{one:.2f}" for one in times)
        print(f"| {name} | {statistics.median(times):.2f} | {every} | {TARGETS[name]:g} |")
    print(f"\n{os.getloadavg()[0]:.1f} processes wanted one of {os.cpu_count()} processors")


def _times(measure: Callable[[], float], reps: int) -> list[float]:
    return [measure() for _ in range(reps)]


def _cpu(own: Laptop, *arguments: str, at: Path) -> float:
    """Return the CPU time of a command, of PostgreSQL too if the command starts and stops it."""
    process = subprocess.Popen(
        [own.program, *arguments],
        cwd=at,
        env=own.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        user=user_of_laptop(),
        group=user_of_laptop(),
        extra_groups=None if user_of_laptop() is None else [],
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"toolcrib {' '.join(arguments)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def _later(own: Laptop, project: Path) -> float:
    own.model.script = [says(f"{_WORDS}.")]
    return _first_word(own, project)


def _first_word(own: Laptop, project: Path) -> float:
    began = time.monotonic()
    with own.terminal("run", "Hello", "--trust", "autonomous", at=project) as run:
        run.until(_WORDS)
        took = time.monotonic() - began
        run.process.wait(60)
    return took
