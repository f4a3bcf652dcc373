"""Reads the history of files: their versions, what calls did to them, and the trash."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.files import EntryState, File, Version
from toolcrib.core.ids import FileId, VersionId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.storage.database import Tenant
from toolcrib.storage.file_history import FileTimeline, HistorySnapshot, UndoScope
from toolcrib.storage.trash import TrashEntry
from toolcrib.workspace.fs.trash import token_of
from toolcrib.workspace.sync.path_state import PathState
from toolcrib.workspace.workspace_services import Guard, WorkspaceServices

FindAll = Callable[[Sequence[WorkspacePath]], Awaitable[list[PathState]]]


class FileHistory:
    """The history as one caller may see it. ``find_all`` imports outside changes and returns path states."""

    def __init__(
        self,
        workspace_services: WorkspaceServices,
        tenant: Tenant,
        guard: Guard,
        find_all: FindAll,
        *,
        needs: WorkspaceRole,
    ) -> None:
        self._workspace_services = workspace_services
        self._tenant = tenant
        self._guard = guard
        self._find_all = find_all
        self._needs = needs

    async def histories(self, scope: UndoScope) -> list[FileTimeline]:
        """Return what the calls did to each file, after importing outside changes to those files."""
        found = await self._workspace_services.undoing.timelines(self._tenant, scope, self._needs)
        live = [history.file.state.path for history in found if not history.file.deleted]
        heads = {history.file.id: history.file.version_id for history in found if not history.file.deleted}
        for path_state in await self._find_all(live) if live else []:
            if path_state.file is None or heads.get(path_state.file.id) != path_state.file.version_id:
                # The lookup imported a new version, so load the timelines again.
                return await self._workspace_services.undoing.timelines(self._tenant, scope, self._needs)
        return found

    async def file(self, file_id: FileId) -> File:
        """Return a file of the history, deleted or not."""
        file = await self._workspace_services.files.by_id(self._tenant, file_id, self._needs)
        self._guard.check_read(file.state.path)
        return file

    async def versions(self, file: File, *, before: int | None, limit: int) -> list[Version]:
        """List versions of a file, newest first. ``before`` is a version number for paging."""
        return await self._workspace_services.files.versions(self._tenant, file.id, before=before, limit=limit)

    async def version(self, version_id: VersionId) -> Version:
        """Return a version, if the caller may read the file."""
        version = await self._workspace_services.files.version(self._tenant, version_id)
        self._guard.check_read(version.state.path)
        # A file that is protected under its current name is protected under its earlier names too.
        await self.file(version.file_id)
        return version

    async def body(self, version: Version) -> bytes:
        """Return a version's content."""
        assert version.state.sha256 is not None
        return await self._workspace_services.blobs.get(self._tenant, version.state.sha256)

    async def trashed(self, states: Sequence[EntryState]) -> dict[UUID, TrashEntry]:
        """Return the trash entries of untracked content that these states had.

        Skips entries that are missing on disk, whatever the rows say.
        """
        tokens = [token for state in states if (token := token_of(state))]
        if not tokens:
            return {}
        found = await self._workspace_services.trash.find(self._tenant, tokens)
        trash = self._workspace_services.mounts.trash(self._tenant.workspace_id)
        return {token: entry for token, entry in found.items() if entry.expired_at or trash.holds(token)}

    def fits_the_trash(self, state: EntryState) -> bool:
        """Whether the content of a state is small enough for the trash."""
        return state.size <= self._workspace_services.trash_bytes

    async def now(self) -> HistorySnapshot:
        """Return the current database snapshot."""
        return await self._workspace_services.since.now(self._tenant)

    async def changed_since(
        self, moment: HistorySnapshot, paths: Sequence[WorkspacePath]
    ) -> dict[WorkspacePath, VersionId]:
        """Return those of the paths that calls changed after a snapshot, with the version each now has."""
        return await self._workspace_services.since.changed_since(self._tenant, moment, paths) if paths else {}

    async def deleted(self, *, limit: int) -> list[File]:
        """List files deleted from @project, latest first."""
        return await self._workspace_services.files.deleted(
            self._tenant, mount_root(Mount.PROJECT).mount_key, limit=limit
        )
