"""What a tool is given to work with, besides its arguments."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from toolcrib.core.callers import Caller
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.questions import Question
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.tree import WorkspaceTree


@dataclass(slots=True)
class ToolReport:
    """What a tool says of a call beside its result, for the gate.

    ``isolation`` is how well a program was held. ``protected`` are places of the draft whose names are closed to the
    caller, noted by the guard or by the tool: they are committed only if a person says yes to them.
    """

    isolation: str | None = None
    protected: list[WorkspacePath] = field(default_factory=list)
    # Hosts that a program reached, and those that it was refused, with the reason.
    contacted: list[tuple[str, str | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call's surroundings. A tool reads through ``tree`` and writes into ``draft``; the gate commits it.

    ``emit`` shows output while the call runs, ``deadline`` is when it will be ended (monotonic seconds), and
    ``cancelled`` is set when nobody wants the result any more. What a tool puts into ``asked`` is put to a person;
    the call then waits for the answer, and what the function returned is not used.
    """

    caller: Caller
    tree: WorkspaceTree
    draft: Draft
    deadline: float
    emit: Callable[[str], None]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Question] = field(default_factory=list)
    remarks: ToolReport = field(default_factory=ToolReport)

    @property
    def seconds_left(self) -> float:
        return self.deadline - monotonic()
