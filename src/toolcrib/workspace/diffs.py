"""Differences between two contents, line by line, as people read them."""

import difflib
import re
from dataclasses import dataclass

# Comparing costs time that grows faster than the text.
MOST_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Diff:
    """How many lines came and went, and the unified diff."""

    added: int
    removed: int
    text: str


def unified(before: bytes, after: bytes, names: tuple[str, str], *, context: int = 3) -> Diff:
    """What became of the lines of ``before``. The caller knows that both are text, and not too large."""
    diff = list(difflib.unified_diff(_lines(before), _lines(after), *names, n=context))
    return Diff(
        added=sum(line.startswith("+") for line in diff[2:]),
        removed=sum(line.startswith("-") for line in diff[2:]),
        text="".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in diff),
    )


def _lines(body: bytes) -> list[str]:
    # Only ``\n`` ends a line, as everywhere here; ``splitlines`` would also break at form feeds and the like.
    return re.findall(r"[^\n]*\n|[^\n]+", body.decode("utf-8", "replace"))
