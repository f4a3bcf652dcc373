"""Removes the rows, files, trash and background processes of deleted workspaces. Continues after any crash."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from secrets import token_hex

import structlog

from toolcrib.core.ids import ProcessId, WorkspaceId
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.process_setup import make_private
from toolcrib.sandbox.transaction import remove_staging
from toolcrib.storage.database import OperationalError
from toolcrib.storage.workspaces import DeletedWorkspace, DeletedWorkspaceStore
from toolcrib.workspace.fs.mounts import MountTable

log = structlog.get_logger(__name__)

# Workspaces deleted by this server are removed at once; a poll at this interval finds the others.
_ROUND = 10.0
# Rows of one table to delete per transaction.
_BATCH = 1_000
# Calls that ran when their workspace was deleted have ended by then; a second pass removes what they left.
_AGAIN_AFTER = timedelta(days=1)

EndProcesses = Callable[[WorkspaceId], Awaitable[None]]


class WorkspaceDeletion:
    """One per server. Never removes anything outside ``data_dir``: a person's own directory stays as it is."""

    def __init__(
        self,
        rows: DeletedWorkspaceStore,
        mounts: MountTable,
        end_processes: EndProcesses,
        *,
        data_dir: Path,
        node: str,
        process_id: ProcessId,
        lease: float,
        deleted: asyncio.Event,
    ) -> None:
        self._rows = rows
        self._mounts = mounts
        self._end_processes = end_processes
        self._data_dir = data_dir
        self._node = node
        self._process_id = process_id
        self._lease = lease
        self._deleted = deleted

    async def run(self) -> None:
        """Run until cancelled. Failures are logged and retried."""
        while True:
            try:
                await in_thread(self._drop_leftovers)
                while await self.remove_some():
                    pass
            except OperationalError as error:
                log.warning("workspace_deletion.database_error", error=str(error))
            except Exception:
                log.exception("workspace_deletion.failed", remedy="It will be retried.")
            with suppress(TimeoutError):
                async with asyncio.timeout(_ROUND):
                    await self._deleted.wait()
            self._deleted.clear()

    async def remove_some(self, *, again_after: timedelta = _AGAIN_AFTER) -> int:
        """Remove what is due on this server. Returns how many workspaces that was."""
        due = await self._rows.claim(self._process_id, node=self._node, lease=self._lease, again_after=again_after)
        for one in due:
            await (self._remove_rows(one) if one.is_rows else self._remove_trees(one))
            await self._rows.finish(one)
            log.info("workspace_deletion.completed", workspace_id=str(one.workspace_id), rows=one.is_rows)
        return len(due)

    async def _remove_rows(self, one: DeletedWorkspace) -> None:
        while await self._rows.remove_rows(one.workspace_id, limit=_BATCH):
            pass

    async def _remove_trees(self, one: DeletedWorkspace) -> None:
        await self._end_processes(one.workspace_id)
        self._mounts.forget(one.workspace_id)
        await in_thread(self._drop_trees, one.workspace_id)

    def _drop_trees(self, workspace_id: WorkspaceId) -> None:
        folders = [self._data_dir / above / str(workspace_id) for above in ("workspaces", "mcp")]
        for folder in (*folders, *self._mounts.aside.of(workspace_id)):
            if folder.is_symlink() or not folder.is_dir():
                continue
            make_private(self._bin, self._data_dir)
            # Move the folder away in one step, so that no reader sees half a tree while the rest is deleted.
            aside = self._bin / f"{workspace_id}-{token_hex(4)}"
            folder.rename(aside)
            remove_staging(aside)
            if aside.exists():
                raise OSError(f"{aside} cannot be removed completely.")

    def _drop_leftovers(self) -> None:
        """Remove what a dead process had moved aside."""
        if self._bin.is_dir():
            for left in self._bin.iterdir():
                remove_staging(left)

    @property
    def _bin(self) -> Path:
        return self._data_dir / "deleted"
