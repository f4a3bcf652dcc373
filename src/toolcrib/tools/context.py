"""What a tool receives besides its arguments."""

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
    """What a tool reports about a call besides its result, for the gate.

    Attributes:
        isolation: The isolation level of a program.
        protected: Protected paths in the draft, noted by the guard or by the tool. They need a person's approval.
    """

    isolation: str | None = None
    protected: list[WorkspacePath] = field(default_factory=list)
    # Hosts that a program contacted, or was denied, with the reason.
    contacted: list[tuple[str, str | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of one call. A tool reads through ``tree`` and writes into ``draft``; the gate commits it.

    - ``deadline``: When the call will be cancelled, in monotonic seconds.
    - ``emit``: Shows output while the call runs.
    - ``cancelled``: Set when the result is no longer needed.
    - ``asked``: Questions for a person. With any, the call waits for the answers and ignores the return value.
    - ``remarks``: What the tool reports to the gate.
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
