"""What a tool receives besides its arguments."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, Final, Literal, NoReturn, TypeVar

from toolcrib.core.callers import Caller
from toolcrib.core.errors import ToolFailed
from toolcrib.core.ids import SessionId
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.paused_calls import Question
from toolcrib.tools.tool_files import ToolFiles
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.tree import WorkspaceTree

T = TypeVar("T")
MOST_QUESTIONS: Final = 4


class QuestionsAsked(BaseException):
    """Leaves a tool's function after it asked a person. Not an ``Exception``: no tool should catch it."""


@dataclass(frozen=True, slots=True)
class ContactedHost:
    """A host that a call contacted, or was denied.

    Attributes:
        made: Why another call may have done it, of a program that several calls share: ``during`` means while this call
            and others ran, ``before`` after the program's last call and before this one.
    """

    host: str
    denied_reason: str | None = None
    made: Literal["during", "before"] | None = None


@dataclass(slots=True)
class ToolReport:
    """What a tool reports about a call besides its result, for the gate.

    Attributes:
        isolation: The isolation level of a program.
        protected: Protected paths in the draft, noted by the guard or by the tool. They need a person's approval.
        outward_links: New links that lead out of the workspace, with their targets. They need a person's approval.
        progress: Receives how many changes of the draft are on disk, and their number, while they are applied.
        decides: The result changes stored decisions, so the call is stored even if it changes no file.
    """

    isolation: str | None = None
    protected: list[WorkspacePath] = field(default_factory=list)
    outward_links: dict[WorkspacePath, str] = field(default_factory=dict)
    contacted: list[ContactedHost] = field(default_factory=list)
    progress: Callable[[int, int], None] | None = None
    decides: bool = False
    # The session of the child run that the call has started and waits for.
    child_session_id: SessionId | None = None

    @property
    def needs_approval(self) -> bool:
        """Whether a person must approve the changes of an agent, at every trust."""
        return bool(self.protected or self.outward_links)


@dataclass(frozen=True)
class ToolContext:
    """The context of one call. A tool reads and writes through ``files``; the gate commits what it wrote.

    Built-in tools that need more read through ``tree`` and write into ``draft``.

    - ``draft``: The call's changes so far.
    - ``deadline``: When the call will be cancelled, in monotonic seconds.
    - ``emit``: Shows output while the call runs.
    - ``cancelled``: Set when the result is no longer needed.
    - ``asked``: Questions for a person. With any, the call waits for the answers and ignores the return value.
    - ``remarks``: What the tool reports to the gate.
    - ``resources``: Services of this server by their type; see ``resource``.
    """

    caller: Caller
    tree: WorkspaceTree
    draft: Draft
    deadline: float
    emit: Callable[[str], None]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Question] = field(default_factory=list)
    remarks: ToolReport = field(default_factory=ToolReport)
    resources: Mapping[type, Any] = field(default_factory=dict)

    @cached_property
    def history(self) -> FileHistory:
        """The history of the files."""
        return FileHistory(self.tree)

    @cached_property
    def files(self) -> ToolFiles:
        """The files of the workspace."""
        return ToolFiles(self.tree, self.draft)

    @property
    def seconds_left(self) -> float:
        return self.deadline - monotonic()

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()

    def ask(self, *questions: Question) -> NoReturn:
        """Ask a person one to four questions. Ends the function; the answers are the result of the call."""
        if not 1 <= len(questions) <= MOST_QUESTIONS or len({one.name for one in questions}) < len(questions):
            raise ValueError(f"Ask 1 to {MOST_QUESTIONS} questions, each with its own name.")
        self.asked.extend(questions)
        raise QuestionsAsked

    def resource(self, kind: type[T]) -> T:
        """Return a service of this server. Raises ``ToolFailed`` if it has none of this kind."""
        found: T | None = self.resources.get(kind)
        if found is None:
            raise ToolFailed(f"This server has no {kind.__name__}, which the tool needs.")
        return found
