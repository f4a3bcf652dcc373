"""A change set under construction. Tools add changes to it; the gate commits it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import Author, ChangeSet, FileChange
from toolcrib.core.errors import BadArguments, Conflict, NotFound, SymlinkNotFollowed, TooLarge
from toolcrib.core.files import (
    FILE_MODE,
    FOLDER_MODE,
    AuthorKind,
    ContentKind,
    EntryKind,
    EntryState,
    File,
    FileType,
    PathState,
    Version,
)
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath, folders_above, in_order
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.text.content import file_state
from toolcrib.workspace.tree import WorkspaceTree


@dataclass(slots=True)
class Draft:
    """Collects changes, each based on the state of the tree when it was planned.

    A file has one change, however often the call changes it. ``lookup`` and every method see the earlier changes.
    """

    tree: WorkspaceTree
    changes: dict[FileId, FileChange] = field(default_factory=dict, init=False)
    # What the draft leaves at a path: a file, or nothing.
    _occupants: dict[WorkspacePath, FileId | None] = field(default_factory=dict, init=False)
    _folders: dict[WorkspacePath, PathState] = field(default_factory=dict, init=False)

    def change_set(self, caller: Caller) -> ChangeSet:
        """Return the collected changes with the caller as author."""
        return ChangeSet(author_of(caller), tuple(self.changes.values()))

    @property
    def _history(self) -> FileHistory:
        return FileHistory(self.tree)

    async def lookup(self, path: WorkspacePath) -> PathState:
        """Look up a path that is about to be written. Loads the folders above it in the same query."""
        *above, path_state = await self.tree.lookup_all([*self.tree.with_scope(path).ancestors, path])
        self._folders.update((folder.path, folder) for folder in above)
        return self._current(path_state)

    async def write(
        self,
        path_state: PathState,
        body: bytes,
        *,
        content: ContentKind,
        type: FileType = FileType.DOCUMENT,
        retype: bool = False,
    ) -> FileChange:
        """Create a file or replace its content. An existing file keeps its type unless ``retype`` is set."""
        self.tree.guard.check_write(path_state.path)
        path_state = self._current(path_state)
        _reject_unwritable(await self.tree.or_virtual_folder(path_state))
        file = path_state.file
        if file is None:
            await self._make_parents(path_state.path)
        mode = file.state.mode if file and file.state.kind is EntryKind.FILE else FILE_MODE
        state = file_state(path_state.path, body, mode=mode, content=content)
        return self._add(file, state, body=body, type=file.type if file and not retype else type)

    async def mkdir(self, path_state: PathState) -> FileId:
        """Create a folder and its parents. Returns the existing folder if there is one."""
        self.tree.guard.check_write(path_state.path)
        path_state = self._current(path_state)
        _reject_special_file(path_state)
        if path_state.exists and not path_state.is_folder:
            raise Conflict(f"{path_state.path.display} is a file. Choose another path, or remove it first.")
        if path_state.exists and path_state.file is None and not path_state.path.is_root:
            [path_state] = await self._history.track([path_state.path])
        if path_state.file is not None:
            return path_state.file.id
        await self._make_parents(path_state.path)
        return self._add(None, _folder(path_state.path), type=FileType.FOLDER).file_id

    async def touch(self, path_state: PathState) -> FileId:
        """Set a new modification time, or create an empty file."""
        path_state = self._current(path_state)
        if not path_state.exists:
            return (await self.write(path_state, b"", content=ContentKind.TEXT)).file_id
        self.tree.guard.check_write(path_state.path)
        if path_state.path.is_root or path_state.is_virtual:
            raise BadArguments(
                {"path": f"{path_state.path.display} is managed by the system; its timestamps cannot be changed."}
            )
        file = (await self.ensure_tracked(path_state)).file
        assert file is not None
        return self._add(file, file.state).file_id

    async def remove(self, path_state: PathState) -> None:
        """Remove a file, a link or an empty folder.

        Untracked content is imported first, so that undo can restore it.
        """
        self.tree.guard.check_write(path_state.path)
        file = (await self.ensure_tracked(path_state)).file
        assert file is not None
        self._add(file, None)

    async def move(self, source: PathState, target: PathState) -> None:
        """Move a file, or a folder with everything in it, to a free path."""
        source, target = self._current(source), self._current(target)
        destination = target.path
        self.tree.guard.check_write(source.path)
        self.tree.guard.check_write(destination)
        _reject_special_file(target)
        if destination == source.path:
            return
        if destination.mount_key != source.path.mount_key:
            raise Conflict(f"{destination.display} is in another mount. Write the file there, then remove the old one.")
        if destination.is_below(source.path):
            raise Conflict(f"{source.path.display} cannot be moved into itself. Choose a path outside it.")
        file = (await self.ensure_tracked(source)).file
        assert file is not None
        self._add(file, replace(file.state, path=destination))
        if not source.is_folder:
            return
        await self.tree.check_write_below(source.path, moved_to=destination)
        for child in await self._below(source.path):
            moved = child.state.path.relocate(source.path, destination)
            self.tree.guard.check_write(child.state.path)
            self.tree.guard.check_write(moved)
            self._add(child, replace(child.state, path=moved))

    async def restore(self, file: File, version: Version) -> FileChange:
        """Restore a version: at the file's current path or, if the file was deleted, at the version's path."""
        path = version.state.path if file.deleted else file.state.path
        self.tree.guard.check_write(path)
        path_state = self._current(await self.tree.lookup(path))
        if file.deleted and path_state.exists:
            raise Conflict(f"Another file exists at {path.display}. Move it away first, then restore.")
        if not file.deleted:
            # The lookup has just imported changes made on disk. The restored version goes on top of them.
            file = path_state.file if path_state.file and path_state.file.id == file.id else file
        await self._make_parents(path)
        body = await self._history.body(version) if version.state.sha256 else None
        for reason in (await self._history.unavailable([(file, version.state)])).values():
            raise NotFound(f"The content of {path.display} is not in the history. {reason}")
        return self._add(file, replace(version.state, path=path), body=body)

    async def revert(
        self, file: File, state: EntryState | None, body: bytes | None, *, freed: Collection[WorkspacePath]
    ) -> None:
        """Revert a file to an earlier state, or remove it. ``freed`` are the paths that this draft vacates."""
        for path in {known.path for known in (None if file.deleted else file.state, state) if known is not None}:
            self.tree.guard.check_write(path)
        if state is not None:
            await self._make_parents(state.path, freed)
        self._add(file, state, body=body)

    def add_change(
        self,
        file: File | None,
        after: EntryState | None,
        *,
        body: bytes | None = None,
        whatever_its_size: bool = False,
    ) -> FileChange:
        """Add a change to a state computed elsewhere. The caller has already checked the guard and the parents."""
        type_ = file.type if file else FileType.DOCUMENT
        if after is not None and (after.kind is EntryKind.FOLDER) != (type_ is FileType.FOLDER):
            type_ = FileType.FOLDER if after.kind is EntryKind.FOLDER else FileType.DOCUMENT
        return self._add(file, after, body=body, type=type_, whatever_its_size=whatever_its_size)

    async def move_to_trash(self, path_state: PathState) -> None:
        """Move a file, or a folder with everything in it, into the trash without reading it.

        For content that ignore rules keep out of the history. Tracked files inside are deleted from the history too.
        Something larger than the trash is not kept, and undo reports that.
        """
        self.tree.guard.check_write(path_state.path)
        taken = self._current(path_state)
        if path_state.path not in self._occupants:
            [taken] = await self._history.track([path_state.path], whole=True)
        if taken.file is None:
            raise NotFound(f"File not found: {path_state.path.display}")
        self._add(taken.file, None, whatever_its_size=True)
        if not taken.is_folder:
            return
        await self.tree.check_write_below(taken.path)
        for child in await self._below(taken.path):
            self.tree.guard.check_write(child.state.path)
            self._add(child, None, whatever_its_size=True)

    async def ensure_tracked(self, path_state: PathState) -> PathState:
        """Return the path state with its file tracked, importing the file if it is only on disk."""
        path_state = self._current(path_state)
        if path_state.file is not None:
            return path_state
        if not path_state.exists:
            raise NotFound(f"File not found: {path_state.path.display}")
        [taken] = await self._history.track([path_state.path])
        if taken.file is None:
            raise NotFound(f"File not found: {path_state.path.display}")
        return taken

    async def load_folders(self, paths: Sequence[WorkspacePath], *, past_links: bool = False) -> None:
        """Look up the folders above these paths together, so that no path waits for its own query."""

        def above() -> list[WorkspacePath]:
            return in_order(folders_above(map(self.tree.with_scope, paths)) - self._folders.keys())

        missing = await off_loop(paths, above)
        found = await self.tree.lookup_all(missing, past_links=past_links) if missing else []
        self._folders.update((folder.path, folder) for folder in found)

    async def _make_parents(self, path: WorkspacePath, freed: Collection[WorkspacePath] = ()) -> None:
        """Plan every missing folder above the path, and import those that exist only on disk."""
        folders = path.ancestors
        # Where this draft removes a link, the folders below it do not exist yet.
        await self.load_folders([path], past_links=bool(freed))
        for above in (self._current(self._folders[folder]) for folder in folders):
            is_planned = self._occupants.get(above.path) is not None
            if not above.exists or (above.path in freed and not is_planned):
                self.tree.guard.check_name(above.path)
                self._add(None, _folder(above.path), type=FileType.FOLDER)
                continue
            if not above.is_folder:
                raise Conflict(f"{above.path.display} is a file, not a directory. Choose another path.")
            if above.file is None:
                [self._folders[above.path]] = await self._history.track([above.path])

    def _add(
        self,
        file: File | None,
        after: EntryState | None,
        *,
        body: bytes | None = None,
        type: FileType | None = None,
        whatever_its_size: bool = False,
    ) -> FileChange:
        type = type or (file.type if file else FileType.DOCUMENT)
        earlier = self.changes.get(file.id) if file else None
        if earlier is not None:
            kept = after and earlier.after and after.sha256 == earlier.after.sha256
            change = replace(earlier, type=type, after=after, body=earlier.body if body is None and kept else body)
        else:
            change = FileChange(
                file_id=file.id if file else FileId(new_id()),
                version_id=VersionId(new_id()),
                type=type,
                base=file.version_id if file else None,
                before=file.state if file and not file.deleted else None,
                after=after,
                body=body,
            )
        if not whatever_its_size:
            self._reject_to_lose(change)
        self.changes[change.file_id] = change
        if earlier is not None and change.before is None and change.after is None:
            # Created and removed by the same call.
            del self.changes[change.file_id]
        for left in (change.before, earlier.after if earlier else None):
            if left is not None and self._occupants.get(left.path, change.file_id) == change.file_id:
                self._occupants[left.path] = None
        if after is not None:
            self._occupants[after.path] = change.file_id
        return change

    def _current(self, path_state: PathState) -> PathState:
        """Return the state of a path after the changes so far."""
        if path_state.path not in self._occupants:
            return path_state
        file_id = self._occupants[path_state.path]
        return PathState(path_state.path, _planned(self.changes[file_id]) if file_id else None, None)

    async def _below(self, folder: WorkspacePath) -> list[File]:
        """Return everything tracked below a folder after the changes so far."""
        files = [file for file in await self._history.below(folder) if file.id not in self.changes]
        planned = [_planned(change) for change in self.changes.values() if change.after is not None]
        return files + [file for file in planned if file.state.path.is_below(folder)]

    def _reject_to_lose(self, change: FileChange) -> None:
        lost = change.trashed
        if lost is not None and not self._history.fits_the_trash(lost):
            raise TooLarge(
                f"{lost.path.display} has {lost.size:,} bytes, too many for the history and the trash, "
                "so it could not be restored. Nothing was changed. Remove it outside Toolcrib, or ask the "
                "operator to raise TOOLCRIB_TRASH_MAX_BYTES."
            )


def _reject_unwritable(path_state: PathState) -> None:
    if path_state.is_virtual:
        raise BadArguments(
            {"path": f"{path_state.path.display} is managed by the system. Use its own API to change it."}
        )
    kind = path_state.kind
    if kind is EntryKind.FOLDER:
        raise BadArguments({"path": f"Cannot write to a folder: {path_state.path.display}"})
    if kind is EntryKind.LINK:
        raise SymlinkNotFollowed(
            f"{path_state.path.display} is a symbolic link; links are not followed. Remove it first."
        )
    _reject_special_file(path_state)


def _reject_special_file(path_state: PathState) -> None:
    if path_state.is_special:
        raise Conflict(f"{path_state.path.display} is a special file (a FIFO, socket or device). Choose another path.")


def author_of(caller: Caller) -> Author:
    """Return the caller as an author."""
    agent = caller.agent
    return Author(
        kind=AuthorKind.USER if agent is None else AuthorKind.AGENT,
        user_id=caller.user_id,
        agent_id=None if agent is None else agent.id,
        session_id=caller.session_id,
        run_id=caller.run_id,
        call_id=caller.call_id,
    )


def _planned(change: FileChange) -> File:
    """Return a file as the draft leaves it, so that it can be changed again."""
    assert change.after is not None
    now = datetime.now(UTC)
    return File(
        id=change.file_id,
        type=change.type,
        state=change.after,
        version_id=change.version_id,
        version_number=0,
        deleted=False,
        pending=True,
        base_version_id=change.base,
        fingerprint=None,
        created_at=now,
        updated_at=now,
    )


def _folder(path: WorkspacePath) -> EntryState:
    return EntryState(path, EntryKind.FOLDER, FOLDER_MODE)
