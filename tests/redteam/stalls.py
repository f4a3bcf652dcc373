"""Detects whether a server's loop was blocked: a real ``toolcrib serve`` that records its stalls."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.databases import DatabaseUrls
from tests.faults.server import Server

# The loop thread's own CPU time, without what a busy machine adds.
MOST_CPU_SECONDS = 0.25


@dataclass(frozen=True)
class Stall:
    """A stall, as ``toolcrib.runtime.loop_watchdog`` writes it."""

    at: float
    seconds: float
    cpu_seconds: float
    queued_seconds: float
    stack: list[str]


@contextmanager
def watched_server(directory: Path, urls: DatabaseUrls, *, prefix: str = "", **environment: str) -> Iterator[Server]:
    """Start a server process. ``environment`` is added to its own, ``prefix`` is a command that starts it."""
    with Server(directory, urls) as server:
        server.program = [*prefix.split(), *server.program]
        server.environment |= {"TOOLCRIB_STALLS_FILE": str(_file_of(directory)), **environment}
        server.start()
        yield server


def stalls(directory: Path) -> list[Stall]:
    """Return all stalls since the server of this directory started."""
    file = _file_of(directory)
    lines = file.read_text().splitlines() if file.exists() else []
    return [Stall(**json.loads(line)) for line in lines]


def no_stalls(directory: Path, *, most_cpu_seconds: float = MOST_CPU_SECONDS, after: int = 0) -> None:
    """Fail with the stack of the worst stall that the loop's own work caused.

    A server's start does not count: it serves no requests yet. ``after`` skips that many earlier stalls.
    """
    ours = [stall for stall in stalls(directory)[after:] if stall.cpu_seconds > most_cpu_seconds]
    worst = max(ours, key=lambda stall: stall.cpu_seconds, default=None)
    assert worst is None, f"{len(ours)} stalls; the worst computed for {worst.cpu_seconds} s:\n{''.join(worst.stack)}"


def _file_of(directory: Path) -> Path:
    return directory / "stalls.jsonl"
