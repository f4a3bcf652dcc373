"""Reads the history of a directory from its database. A command that only reads need not start a server."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from toolcrib.core.ids import SessionId, UserId, WorkspaceId
from toolcrib.schemas.agents import AgentOut
from toolcrib.schemas.audit import AuditRecordOut
from toolcrib.schemas.sessions import SessionOut
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.storage.users import ActingUser, UserStore
from toolcrib.storage.workspaces import WorkspaceStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The methods of ``Client`` that read the history, as the owner of the directory."""

    _runner: asyncio.Runner
    _database: Database
    _owner: UserId
    workspace_id: WorkspaceId

    def audit(self, workspace_id: UUID, *, limit: int = 100, before: int | None = None) -> list[AuditRecordOut]:
        """Return the audit records, newest first."""
        reading = AuditStore(self._database).page(self._tenant(workspace_id), before=before, limit=limit)
        return [AuditRecordOut.model_validate(one) for one in self._runner.run(reading).records]

    def agents(self, workspace_id: UUID) -> list[AgentOut]:
        """Return the agents of a workspace."""
        reading = AgentStore(self._database).list(self._tenant(workspace_id))
        return [AgentOut.model_validate(one) for one in self._runner.run(reading)]

    def session(self, workspace_id: UUID, session_id: UUID) -> SessionOut:
        """Return one session."""
        reading = SessionStore(self._database).get(self._tenant(workspace_id), SessionId(session_id))
        return SessionOut.model_validate(self._runner.run(reading))

    def _tenant(self, workspace_id: UUID) -> Tenant:
        return Tenant(WorkspaceId(workspace_id), self._owner)


@contextmanager
def stored_history(
    app_url: str, system_url: str, *, node: str, email: str, root_path: str
) -> Iterator[StoredHistory | None]:
    """Provide the history of a directory that no process serves.

    ``None`` if only a server can tell: the directory is new, or the process that served it last was killed, and what it
    left behind is recorded when the next one starts.
    """
    with asyncio.Runner() as runner:
        opened = AsyncExitStack()
        try:
            database = runner.run(opened.enter_async_context(Database.open(app_url, system_url, pool_size=1)))
            yield runner.run(_find(runner, database, node=node, email=email, root_path=root_path))
        finally:
            runner.run(opened.aclose())


async def _find(
    runner: asyncio.Runner, database: Database, *, node: str, email: str, root_path: str
) -> StoredHistory | None:
    if await ServerProcessStore(database).any_of(node):
        return None
    login = await UserStore(database).find_login(email)
    if login is None:
        return None
    workspaces = WorkspaceStore(database)
    workspace = await workspaces.find_by_root_path(ActingUser(login.user_id), root_path=root_path, node=node)
    return None if workspace is None else StoredHistory(runner, database, login.user_id, workspace.id)
