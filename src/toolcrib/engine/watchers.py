"""What the engine needs of whoever shows a session live: a hint that something was committed, and text on its way."""

from typing import Protocol

from toolcrib.domain.events import Delta
from toolcrib.domain.ids import SessionId, WorkspaceId


class Watchers(Protocol):
    """Neither blocks nor raises: nobody who watches can hold up or break what is watched."""

    def wake(self, workspace_id: WorkspaceId, session_id: SessionId) -> None: ...

    def delta(self, delta: Delta) -> None: ...


class Nobody:
    """For an engine without a face. What is committed can be read later all the same."""

    def wake(self, workspace_id: WorkspaceId, session_id: SessionId) -> None:
        pass

    def delta(self, delta: Delta) -> None:
        pass
