"""Background processes: what a call started on the live tree. Data only."""

from dataclasses import dataclass

from toolcrib.core.change_sets import Author
from toolcrib.core.ids import BackgroundId, ProcessId, WorkspaceId


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A stored background process. Without an end it runs, or its server died.

    Attributes:
        author: The author of what it changes in the tree.
        node: The node it runs on.
        process: The server process, with which it ends.
        began_ns: Start time, by the clock that dates the node's files; ``ended_ns`` likewise.
    """

    workspace_id: WorkspaceId
    id: BackgroundId
    author: Author
    command: str
    isolation: str
    node: str
    process_id: ProcessId
    started_ns: int
    ended_ns: int | None = None
    exit_code: int | None = None
    stop_reason: str | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_ns is None

    def ran_at(self, time_ns: int) -> bool:
        """Whether the process ran at a time."""
        return self.started_ns < time_ns and (self.ended_ns is None or time_ns <= self.ended_ns)

    @property
    def belongs_to(self) -> tuple[object, ...]:
        """The owner: a session or, outside one, the caller."""
        author = self.author
        return (author.session_id,) if author.session_id is not None else (author.user_id, author.agent_id)
