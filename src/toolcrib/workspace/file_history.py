"""The history of files: versions, what calls did, and the trash. Also imports files that are only on disk."""

from collections.abc import Callable, Collection, Sequence

from toolcrib.core.change_sets import LastUndoable, TrashedFile, UndoScope
from toolcrib.core.files import EntryState, File, PathState, Version
from toolcrib.core.ids import CallId, FileId, SessionId, VersionId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.storage.file_history import FileTimeline, ReopenedFile, UnreviewedChanges
from toolcrib.storage.trash import TrashEntry
from toolcrib.workspace.fs.trash import TrashDirectory
from toolcrib.workspace.sync.path_state import author_in_words
from toolcrib.workspace.tree import WorkspaceTree

# Files that are compared with the disk between two reports of progress.
_COMPARED = 1_000


class FileHistory:
    """The history as one caller may see it. Those who track files check the guard themselves."""

    def __init__(self, tree: WorkspaceTree) -> None:
        self._tree = tree
        self._services = tree.services
        self._tenant = tree.tenant

    async def histories(
        self, scope: UndoScope, progress: Callable[[int, int], None] = lambda _, __: None
    ) -> list[FileTimeline]:
        """Return what the calls did to each file, after importing outside changes to those files.

        ``progress`` receives how many files were compared with the disk, and their number.
        """
        found = await self._services.undoing.timelines(self._tenant, scope, self._tree.needs)
        if await self._are_current(found, progress):
            return found
        return await self._services.undoing.timelines(self._tenant, scope, self._tree.needs)

    async def unreviewed(self, session_id: SessionId) -> UnreviewedChanges:
        """Return what the session's agent changed since the last review, after importing outside changes."""
        found = await self._services.undoing.unreviewed(self._tenant, session_id, self._tree.needs)
        if await self._are_current(found.timelines):
            return found
        return await self._services.undoing.unreviewed(self._tenant, session_id, self._tree.needs)

    async def _are_current(
        self, found: Sequence[FileTimeline], progress: Callable[[int, int], None] = lambda _, __: None
    ) -> bool:
        """Look up the files, which imports outside changes. Returns False if there were any."""
        live = [history.file for history in found if not history.file.deleted]
        heads = {file.id: file.version_id for file in live}
        are_current = True
        for start in range(0, len(live), _COMPARED):
            progress(start, len(live))
            for state in await self._tree.lookup_all([one.state.path for one in live[start : start + _COMPARED]]):
                are_current &= state.file is not None and heads.get(state.file.id) == state.file.version_id
        return are_current

    async def reopened(self, calls: Sequence[CallId]) -> list[ReopenedFile]:
        """Return the files that wait for a review again when these calls are undone."""
        return await self._services.undoing.reopened(self._tenant, calls, self._tree.needs)

    async def last_undoable(self, last: LastUndoable) -> UndoScope | None:
        """Return what the newest change that is still in effect belongs to, or None if there is none."""
        return await self._services.undoing.last(self._tenant, last, self._tree.needs)

    async def file(self, file_id: FileId) -> File:
        """Return a file of the history, deleted or not."""
        file = await self._services.files.by_id(self._tenant, file_id, self._tree.needs)
        self._tree.guard.check_read(file.state.path)
        return file

    async def versions(self, file: File, *, before: int | None, limit: int) -> list[Version]:
        """List versions of a file, newest first. ``before`` is a version number for paging."""
        return await self._services.files.versions(self._tenant, file.id, before=before, limit=limit)

    async def all_versions(self, files: Sequence[File]) -> dict[FileId, list[Version]]:
        """Return all versions of these files, oldest first."""
        return await self._services.undoing.versions(self._tenant, [file.id for file in files])

    async def version(self, version_id: VersionId) -> Version:
        """Return a version, if the caller may read the file."""
        version = await self._services.files.version(self._tenant, version_id)
        self._tree.guard.check_read(version.state.path)
        # A file that is protected under its current name is protected under its earlier names too.
        await self.file(version.file_id)
        return version

    async def body(self, version: Version) -> bytes:
        """Return a version's content."""
        assert version.state.sha256 is not None
        return await self._services.blobs.get(self._tenant, version.state.sha256)

    async def bodies(self, versions: Collection[Version]) -> dict[bytes, bytes]:
        """Return the contents of these versions by their hashes; without those that have none."""
        hashes = {version.state.sha256 for version in versions if version.state.sha256 is not None}
        return await self._services.blobs.get_all(self._tenant, list(hashes))

    async def unavailable(self, wanted: Sequence[tuple[File, EntryState]]) -> dict[FileId, str]:
        """Return those files whose untracked content of a state cannot be restored from the trash, with the reason."""
        asked = {
            state.trash_id: file.id
            for file, state in wanted
            if state.trash_id is not None and (file.deleted or state.trash_id != file.state.trash_id)
        }
        if not asked:
            return {}
        entries = await self._services.trash.find(self._tenant, list(asked))
        trash = self._services.mounts.trash(self._tenant.workspace_id)
        # An entry that is missing on disk is not there, whatever its row says.
        there = {key: entry for key, entry in entries.items() if entry.expired_at or trash.holds(key)}
        return {file_id: reason for key, file_id in asked.items() if (reason := _reason(there.get(key)))}

    def fits_the_trash(self, state: EntryState) -> bool:
        """Whether the content of a state is small enough for the trash."""
        return state.size <= self._services.trash_bytes

    async def deleted(self, *, limit: int) -> list[File]:
        """List files deleted from @project, latest first."""
        return await self._services.files.deleted(self._tenant, mount_root(Mount.PROJECT).mount_key, limit=limit)

    async def track(
        self, paths: Sequence[WorkspacePath], *, whole: bool = False, aliases: bool = False
    ) -> list[PathState]:
        """Import files that are only on disk, with the folders above them.

        Args:
            whole: Import without content, folders with everything in them.
            aliases: As in ``WorkspaceTree.lookup_all``.
        """
        if self._tree.caller.is_agent and not aliases:
            self._tree.reject_aliases(await self._tree.lookup_all(paths))
        wanted = [self._tree.with_scope(path) for path in paths]
        everything = {above for path in wanted for above in (*path.ancestors, path)}
        await self._services.sync.reconcile(self._tenant, sorted(everything), track=True, whole=wanted if whole else ())
        return await self._tree.lookup_all(paths, aliases=aliases)

    async def below(self, *folders: WorkspacePath) -> list[File]:
        """Return everything tracked below these folders, after importing changes made on disk."""
        files = await self._services.files.below(self._tenant, [self._tree.with_scope(folder) for folder in folders])
        path_states = await self._tree.lookup_all([file.state.path for file in files]) if files else []
        return [path_state.file for path_state in path_states if path_state.file is not None]

    async def wait_until_applied(self) -> None:
        """Wait until all changes are on disk. Applies those that a crash left."""
        await self._services.sync.wait_until_applied(self._tenant)

    async def stage(self, staged: Sequence[TrashedFile]) -> TrashDirectory:
        """Record what is about to be moved into the trash, until a change set brings it into the tree."""
        await self._services.trash.stage(self._tenant, staged, node=self._services.node)
        return self._services.mounts.trash(self._tenant.workspace_id)

    async def author_of(self, version_id: VersionId | None) -> str:
        """Describe who made a version. Without a version, it was an outside program."""
        if version_id is None:
            return "a program outside Toolcrib"
        return author_in_words(await self._services.files.version(self._tenant, version_id), self._tree.caller)


def _reason(entry: TrashEntry | None) -> str | None:
    """Explain why content cannot be restored from the trash. Returns ``None`` if it can."""
    if entry is None:
        return "Its content is neither in the history nor in the trash."
    if entry.expired_at is None:
        return None
    if not entry.was_kept:
        return f"Its {entry.size:,} bytes were too large for the trash, so it was not stored."
    return f"It has expired: it was in the trash until {entry.expired_at:%Y-%m-%d %H:%M} UTC."
