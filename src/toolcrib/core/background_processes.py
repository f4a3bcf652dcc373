"""Background processes: what a call left running on the live tree. Data only."""

from dataclasses import dataclass

from toolcrib.core.change_sets import Author
from toolcrib.core.ids import BackgroundId, ProcessId, WorkspaceId


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """One of them as it is kept. ``author`` answers for what it does to the tree of ``node``.

    ``process`` is the server's, with which it ends. Times are those of the clock that dates the node's files. Without
    an end it runs, or its server died.
    """

    workspace_id: WorkspaceId
    id: BackgroundId
    author: Author
    command: str
    isolation: str
    node: str
    process: ProcessId
    began_ns: int
    ended_ns: int | None = None
    exit_code: int | None = None
    stopped: str | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_ns is None

    def ran_at(self, time_ns: int) -> bool:
        return self.began_ns < time_ns and (self.ended_ns is None or time_ns <= self.ended_ns)

    @property
    def belongs_to(self) -> tuple[object, ...]:
        """Whose it is: a session's, or, outside one, its caller's."""
        author = self.author
        return (author.session_id,) if author.session_id is not None else (author.user_id, author.agent_id)
