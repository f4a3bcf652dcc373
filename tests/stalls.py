"""Whether the loops of servers were blocked: every server of a test records its stalls, and fails the test by one."""

import json
from dataclasses import dataclass
from pathlib import Path

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


def file_of(directory: Path) -> Path:
    """Where the server of a directory records its stalls, by ``TOOLCRIB_STALLS_FILE``."""
    return directory / "stalls.jsonl"


def stalls(directory: Path) -> list[Stall]:
    """Return all stalls since the server of this directory started."""
    file = file_of(directory)
    lines = file.read_text().splitlines() if file.exists() else []
    # A server that was killed may have left a part of a line.
    return [Stall(**json.loads(line)) for line in lines if line.endswith("}")]


def no_stalls(directory: Path, *, most_cpu_seconds: float = MOST_CPU_SECONDS, after: int = 0) -> None:
    """Fail with the stack of the worst stall that the loop's own work caused.

    A server's start does not count: it serves no requests yet. ``after`` skips that many earlier stalls.
    """
    ours = [stall for stall in stalls(directory)[after:] if stall.cpu_seconds > most_cpu_seconds]
    worst = max(ours, key=lambda stall: stall.cpu_seconds, default=None)
    assert worst is None, f"{len(ours)} stalls; the worst computed for {worst.cpu_seconds} s:\n{''.join(worst.stack)}"
