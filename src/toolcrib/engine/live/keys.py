"""How a session is told from all others: ids alone are a workspace's own."""

from toolcrib.domain.events import Delta
from toolcrib.domain.ids import SessionId, WorkspaceId

Key = tuple[WorkspaceId, SessionId]


def key_of(delta: Delta) -> Key:
    return delta.workspace_id, delta.session_id
