"""What files were: what calls did to them, their versions, and what lies in the trash. Changes nothing."""

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
    """The history as one caller may see it. ``find_all`` books what others did on disk, and says what stands there."""

    def __init__(
        self, shelves: WorkspaceServices, tenant: Tenant, guard: Guard, find_all: FindAll, *, needs: WorkspaceRole
    ) -> None:
        self._shelves = shelves
        self._tenant = tenant
        self._guard = guard
        self._find_all = find_all
        self._needs = needs

    async def histories(self, deeds: UndoScope) -> list[FileTimeline]:
        """What some calls did to each file, after booking what others did to those files on disk."""
        found = await self._shelves.undoing.timelines(self._tenant, deeds, self._needs)
        live = [history.file.state.place for history in found if not history.file.deleted]
        heads = {history.file.id: history.file.version_id for history in found if not history.file.deleted}
        for standing in await self._find_all(live) if live else []:
            if standing.file is None or heads.get(standing.file.id) != standing.file.version_id:
                # Something was booked just now: it belongs to the history that is judged.
                return await self._shelves.undoing.timelines(self._tenant, deeds, self._needs)
        return found

    async def file(self, file_id: FileId) -> File:
        """A file of the history, deleted or not."""
        file = await self._shelves.files.by_id(self._tenant, file_id, self._needs)
        self._guard.check_read(file.state.place)
        return file

    async def versions(self, file: File, *, before: int | None, limit: int) -> list[Version]:
        return await self._shelves.files.versions(self._tenant, file.id, before=before, limit=limit)

    async def version(self, version_id: VersionId) -> Version:
        version = await self._shelves.files.version(self._tenant, version_id)
        self._guard.check_read(version.state.place)
        # What stands under a protected name now is not given under the name it had before either.
        await self.file(version.file_id)
        return version

    async def body(self, version: Version) -> bytes:
        """A version's content."""
        assert version.state.sha256 is not None
        return await self._shelves.blobs.get(self._tenant, version.state.sha256)

    async def trashed(self, states: Sequence[EntryState]) -> dict[UUID, TrashEntry]:
        """What the trash knows of the contents that these states had and the history does not keep.

        One that is not on disk any more, whatever the rows say, is not among them.
        """
        tokens = [token for state in states if (token := token_of(state))]
        if not tokens:
            return {}
        found = await self._shelves.trash.find(self._tenant, tokens)
        trash = self._shelves.mounts.trash(self._tenant.workspace_id)
        return {token: entry for token, entry in found.items() if entry.gone_at or trash.holds(token)}

    def fits_the_trash(self, state: EntryState) -> bool:
        return state.size <= self._shelves.trash_bytes

    async def now(self) -> HistorySnapshot:
        """This moment, as the database knows it."""
        return await self._shelves.since.now(self._tenant)

    async def changed_since(
        self, moment: HistorySnapshot, places: Sequence[WorkspacePath]
    ) -> dict[WorkspacePath, VersionId]:
        """Of these places, those that calls changed after a moment, with the version that they left there."""
        return await self._shelves.since.changed_since(self._tenant, moment, places) if places else {}

    async def deleted(self, *, limit: int) -> list[File]:
        """What was deleted from @project, the latest first."""
        return await self._shelves.files.deleted(self._tenant, mount_root(Mount.PROJECT).mount_key, limit=limit)
