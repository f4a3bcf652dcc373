"""Glob patterns over paths. ``*`` and ``?`` stay within a name, ``**`` spans folders, ``{a,b}`` is either.

A pattern without ``/`` counts for names at any depth. One with ``/`` counts from the base; one that begins with it,
from the root of the workspace.
"""

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolcrib.domain.errors import BadArguments
from toolcrib.domain.places import Place

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATTERNS = 200

Matches = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Globs:
    """Patterns, read: some look at the name alone, the others at each folder on the way."""

    of_names: Matches | None
    of_paths: tuple[tuple[Matches | None, ...], ...]

    def match(self, path: str, name: str) -> bool:
        """Whether any of them means the node of this name at this path."""
        if self.of_names is not None and self.of_names(name):
            return True
        if not self.of_paths:
            return False
        parts = path[1:].split("/")
        return any(_means(steps, parts) for steps in self.of_paths)


def globs(patterns: Sequence[str], base: Place) -> Globs:
    """BadArguments for what could lead out of the workspace, or means nothing."""
    of_names: list[str] = []
    of_paths: list[tuple[Matches | None, ...]] = []
    for pattern in _either(patterns):
        steps = [step for step in pattern.split("/") if step not in ("", ".")]
        if not steps or ".." in steps:
            raise BadArguments({"pattern": f"{pattern[:80]!r} is no pattern for files: name some, without '..'."})
        if len(steps) == 1 and "/" not in pattern and steps[0] != "**":
            of_names.append(fnmatch.translate(steps[0]))
            continue
        if steps[-1] == "**":
            # What lies below a folder, and not the folder.
            steps.append("*")
        above = () if pattern.startswith("/") else tuple(_exactly(part) for part in base.parts)
        of_paths.append((*above, *(None if step == "**" else name_matcher(step) for step in steps)))
    return Globs(re.compile("|".join(of_names)).match if of_names else None, tuple(of_paths))


def name_matcher(pattern: str) -> Matches:
    """Shell wildcards over one name: ``*``, ``?`` and ``[…]``. Takes time in the length of the name only."""
    return re.compile(fnmatch.translate(pattern)).match


def _exactly(name: str) -> Matches:
    return name.__eq__


def _either(patterns: Sequence[str]) -> list[str]:
    """The patterns with every choice of their braces made."""
    made: list[str] = []
    pending = list(reversed(patterns))
    while pending:
        pattern = pending.pop()
        braces = _BRACES.search(pattern)
        if braces is None or "," not in braces[1]:
            made.append(pattern)
            continue
        before, after = pattern[: braces.start()], pattern[braces.end() :]
        pending += [f"{before}{choice}{after}" for choice in reversed(braces[1].split(","))]
        if len(made) + len(pending) > _MOST_PATTERNS:
            raise BadArguments({"pattern": f"Its braces make more than {_MOST_PATTERNS} patterns. Use fewer."})
    return made


def _means(steps: tuple[Matches | None, ...], parts: list[str]) -> bool:
    """Whether the steps lead exactly to the end of a path. ``None`` is any number of folders.

    When a later step fails, only the last ``None`` need be tried again: those before it took as little as they could.
    """
    at = step = 0
    resume: tuple[int, int] | None = None
    while at < len(parts):
        matches = steps[step] if step < len(steps) else _nothing
        if matches is None:
            resume = (at, step)
            step += 1
        elif matches(parts[at]):
            at += 1
            step += 1
        elif resume is not None:
            at, step = resume[0] + 1, resume[1] + 1
            resume = (at, resume[1])
        else:
            return False
    return all(left is None for left in steps[step:])


def _nothing(_: str) -> bool:
    return False
