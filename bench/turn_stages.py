"""Measure the stages of a command by timing the functions that it passes through."""

import functools
import inspect
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from toolcrib.gate import call_recorder
from toolcrib.sandbox import command, contained_process, resource_limits, transaction
from toolcrib.tools.shell import shell
from toolcrib.workspace import tree
from toolcrib.workspace.effects import effect_import

# The stages in order; those before the layers overlap, and the last runs while the response is sent.
_PLACES: tuple[tuple[str, Any, str], ...] = (
    ("the caller is let in (database)", tree.WorkspaceTree, "check_membership"),
    ("the base is noted (database)", effect_import.CommandBase, "capture"),
    ("the roots are found", tree.WorkspaceTree, "roots"),
    ("what must be masked is found", shell.Shell, "_masked"),
    ("the layers are made", transaction.Transaction, "prepare"),
    ("the clock's tick is waited for", shell, "past"),
    ("a control group is made", resource_limits.Cgroup, "make"),
    ("the fork server makes a copy of itself", command, "start"),
    ("views are mounted, bubblewrap starts, the shell is ready", contained_process.ContainedProcess, "admit"),
    ("the command runs, and all of it ends", contained_process.ContainedProcess, "ended"),
    ("the effect is read", transaction.Transaction, "effect"),
    ("the effect becomes changes (database)", shell, "import_effects"),
    ("the answer is written down (database)", call_recorder.CallRecorder, "answer"),
    ("the change is committed and applied (database)", call_recorder.CallRecorder, "commit"),
    ("the layers are removed, afterwards", transaction, "remove_staging"),
)

Passed = dict[str, tuple[float, float]]
"""When each place was first reached, and how long it took in all."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The stages of several calls."""

    calls: tuple[Passed, ...]

    def print(self, title: str) -> None:
        print(f"\n{title}, stage by stage\n\n| stage | starts at ms | takes ms | at best |\n|---|---|---|---|")
        for name, _, _ in _PLACES:
            passages = [call[name] for call in self.calls if name in call]
            if passages:
                begins, takes = ([row[column] * 1e3 for row in passages] for column in (0, 1))
                print(
                    f"| {name} | {statistics.median(begins):.1f} | {statistics.median(takes):.1f} | {min(takes):.1f} |"
                )


@contextmanager
def timed_stages() -> Iterator[Callable[[], Passed]]:
    """Time the stages within this context. The yielded function returns the stages since its last call."""
    passages: list[tuple[str, float, float]] = []
    kept = [(owner, name, inspect.getattr_static(owner, name)) for _, owner, name in _PLACES]
    since = perf_counter()

    def take_stages() -> Passed:
        nonlocal since
        passed: Passed = {}
        for path, began, ended in passages:
            first, took = passed.get(path, (began - since, 0.0))
            passed[path] = (first, took + ended - began)
        passages.clear()
        since = perf_counter()
        return passed

    try:
        for (path, owner, name), (_, _, original) in zip(_PLACES, kept, strict=True):
            setattr(owner, name, _timed(original, functools.partial(_note, passages, path)))
        yield take_stages
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _note(passages: list[tuple[str, float, float]], path: str, began: float) -> None:
    passages.append((path, began, perf_counter()))


def _timed(original: Any, note: Callable[[float], None]) -> Any:
    if isinstance(original, classmethod):
        return classmethod(_timed(original.__func__, note))
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def waiting(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            try:
                return await original(*args, **kwargs)
            finally:
                note(began)

        return waiting

    @functools.wraps(original)
    def plain(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            note(began)

    return plain
