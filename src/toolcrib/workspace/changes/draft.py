"""A change set under construction. Tools add changes to it; the gate commits it."""

from collections.abc import Collection
from dataclasses import replace

from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import EXTERNAL, Author, ChangeSet, FileChange
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
    Version,
)
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.workspace.fs.trash import list_trashed, token_of, trash_unavailable_reason
from toolcrib.workspace.sync.path_state import PathState
from toolcrib.workspace.text.content import file_state
from toolcrib.workspace.tree import WorkspaceTree


class Draft:
    """Collects changes, each based on the state of the tree when it was planned."""

    def __init__(self, tree: WorkspaceTree) -> None:
        self._tree = tree
        self._changes: list[FileChange] = []
        self._folders: dict[WorkspacePath, PathState] = {}

    @property
    def is_empty(self) -> bool:
        return not self._changes

    def change_set(self, caller: Caller) -> ChangeSet:
        """Return the collected changes with the caller as author."""
        return ChangeSet(author_of(caller), tuple(self._changes))

    async def lookup(self, path: WorkspacePath) -> PathState:
        """Look up a path that is about to be written. Loads the folders above it in the same query."""
        *above, path_state = await self._tree.lookup_all([*self._tree.with_scope(path).ancestors, path])
        self._folders.update((folder.path, folder) for folder in above)
        return path_state

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
        self._tree.check_write(path_state.path)
        self._reject_unwritable(await self._tree.virtual.folder_or(path_state))
        file = path_state.file
        if file is None:
            await self._make_parents(path_state.path)
        mode = file.state.mode if file and file.state.kind is EntryKind.FILE else FILE_MODE
        state = file_state(path_state.path, body, mode=mode, content=content)
        return self._add(file, state, body=body, type=file.type if file and not retype else type)

    async def mkdir(self, path_state: PathState) -> FileId:
        """Create a folder and its parents. Returns the existing folder if there is one."""
        self._tree.check_write(path_state.path)
        _reject_special_file(path_state)
        if path_state.exists and not path_state.is_folder:
            raise Conflict(f"{shown(path_state.path)} is a file. Choose another path, or remove it first.")
        if path_state.exists and path_state.file is None and not path_state.path.is_root:
            [path_state] = await self._tree.track([path_state.path])
        if path_state.file is not None:
            return path_state.file.id
        await self._make_parents(path_state.path)
        return self._add(None, _folder(path_state.path), type=FileType.FOLDER).file_id

    async def touch(self, path_state: PathState) -> FileId:
        """Set a new modification time, or create an empty file."""
        if not path_state.exists:
            return (await self.write(path_state, b"", content=ContentKind.TEXT)).file_id
        self._tree.check_write(path_state.path)
        if path_state.path.is_root or path_state.is_virtual:
            raise BadArguments(
                {"path": f"{shown(path_state.path)} is managed by the system; its timestamps cannot be changed."}
            )
        file = (await self.ensure_tracked(path_state)).file
        assert file is not None
        return self._add(file, file.state).file_id

    async def remove(self, path_state: PathState) -> None:
        """Remove a file, a link or an empty folder.

        Untracked content is imported first, so that undo can restore it.
        """
        self._tree.check_write(path_state.path)
        file = (await self.ensure_tracked(path_state)).file
        assert file is not None
        self._add(file, None)

    async def move(self, source: PathState, target: PathState) -> None:
        """Move a file, or a folder with everything in it, to a free path."""
        destination = target.path
        self._tree.check_write(source.path)
        self._tree.check_write(destination)
        _reject_special_file(target)
        if destination == source.path:
            return
        if destination.mount_key != source.path.mount_key:
            raise Conflict(f"{shown(destination)} is in another mount. Write the file there, then remove the old one.")
        if destination.is_below(source.path):
            raise Conflict(f"{shown(source.path)} cannot be moved into itself. Choose a path outside it.")
        file = (await self.ensure_tracked(source)).file
        assert file is not None
        self._add(file, replace(file.state, path=destination))
        if not source.is_folder:
            return
        await self._tree.check_write_below(source.path, moved_to=destination)
        for child in await self._tree.tracked_below(source.path):
            moved = child.state.path.relocate(source.path, destination)
            self._tree.check_write(child.state.path)
            self._tree.check_write(moved)
            self._add(child, replace(child.state, path=moved))

    async def restore(self, file: File, version: Version) -> FileChange:
        """Restore a version: at the file's current path or, if the file was deleted, at the version's path."""
        path = version.state.path if file.deleted else file.state.path
        self._tree.check_write(path)
        path_state = await self._tree.lookup(path)
        if file.deleted and path_state.exists:
            raise Conflict(f"Another file exists at {shown(path)}. Move it away first, then restore.")
        if not file.deleted:
            # The lookup has just imported changes made on disk. The restored version goes on top of them.
            file = path_state.file if path_state.file and path_state.file.id == file.id else file
        await self._make_parents(path)
        body = await self._tree.history.body(version) if version.state.sha256 else None
        if reason := await self._not_in_trash(file, version.state):
            raise NotFound(f"The content of {shown(path)} is not in the history. {reason}")
        return self._add(file, replace(version.state, path=path), body=body)

    async def revert(
        self, file: File, state: EntryState | None, body: bytes | None, *, freed: Collection[WorkspacePath]
    ) -> None:
        """Revert a file to an earlier state, or remove it. ``freed`` are the paths that this draft vacates."""
        for path in {known.path for known in (None if file.deleted else file.state, state) if known is not None}:
            self._tree.check_write(path)
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
        self._tree.check_write(path_state.path)
        [taken] = await self._tree.track([path_state.path], whole=True)
        if taken.file is None:
            raise NotFound(f"File not found: {shown(path_state.path)}")
        self._add(taken.file, None, whatever_its_size=True)
        if not taken.is_folder:
            return
        await self._tree.check_write_below(taken.path)
        for child in await self._tree.tracked_below(taken.path):
            self._tree.check_write(child.state.path)
            self._add(child, None, whatever_its_size=True)

    async def _not_in_trash(self, file: File, state: EntryState | None) -> str | None:
        """Explain why untracked content of a state cannot be restored. Returns ``None`` if it can."""
        token = token_of(state)
        if state is None or token is None or (not file.deleted and token == token_of(file.state)):
            return None
        return trash_unavailable_reason((await self._tree.history.trashed([state])).get(token))

    async def ensure_tracked(self, path_state: PathState) -> PathState:
        """Return the path state with its file tracked, importing the file if it is only on disk."""
        if path_state.file is not None:
            return path_state
        [taken] = await self._tree.track([path_state.path])
        if taken.file is None:
            raise NotFound(f"File not found: {shown(path_state.path)}")
        return taken

    async def _make_parents(self, path: WorkspacePath, freed: Collection[WorkspacePath] = ()) -> None:
        """Plan every missing folder above the path, and import those that exist only on disk."""
        if not path.ancestors:
            return
        planned = {change.after.path for change in self._changes if change.after is not None}
        if not all(above in self._folders for above in path.ancestors):
            # Where this draft removes a link, the folders below it do not exist yet.
            found = await self._tree.lookup_all(self._tree.with_scope(path).ancestors, past_links=bool(freed))
            self._folders.update((folder.path, folder) for folder in found)
        for above in (self._folders[folder] for folder in path.ancestors):
            if above.path in planned:
                continue
            if not above.exists or above.path in freed:
                self._tree.check_name(above.path)
                self._add(None, _folder(above.path), type=FileType.FOLDER)
                continue
            if not above.is_folder:
                raise Conflict(f"{shown(above.path)} is a file, not a directory. Choose another path.")
            if above.file is None:
                [self._folders[above.path]] = await self._tree.track([above.path])

    def _add(
        self,
        file: File | None,
        after: EntryState | None,
        *,
        body: bytes | None = None,
        type: FileType | None = None,
        whatever_its_size: bool = False,
    ) -> FileChange:
        change = FileChange(
            file_id=file.id if file else FileId(new_id()),
            version_id=VersionId(new_id()),
            type=type or (file.type if file else FileType.DOCUMENT),
            base=file.version_id if file else None,
            before=file.state if file and not file.deleted else None,
            after=after,
            body=body,
        )
        if not whatever_its_size:
            self._reject_to_lose(change)
        self._changes.append(change)
        return change

    def _reject_to_lose(self, change: FileChange) -> None:
        for displaced in list_trashed(ChangeSet(EXTERNAL, (change,))):
            assert change.before is not None
            if not self._tree.history.fits_the_trash(change.before):
                raise TooLarge(
                    f"{shown(displaced.path)} has {displaced.size:,} bytes, too many for the history and the trash, "
                    "so it could not be restored. Nothing was changed. Remove it outside Toolcrib, or ask the "
                    "operator to raise TOOLCRIB_TRASH_MAX_BYTES."
                )

    def _reject_unwritable(self, path_state: PathState) -> None:
        if path_state.is_virtual:
            raise BadArguments(
                {"path": f"{shown(path_state.path)} is managed by the system. Use its own API to change it."}
            )
        if path_state.is_folder:
            raise BadArguments({"path": f"Cannot write to a folder: {shown(path_state.path)}"})
        if path_state.kind is EntryKind.LINK:
            raise SymlinkNotFollowed(
                f"{shown(path_state.path)} is a symbolic link; links are not followed. Remove it first."
            )
        if path_state.node is not None and path_state.node.kind is None:
            raise Conflict(
                f"{shown(path_state.path)} is a special file (a FIFO, socket or device). Choose another path."
            )


def _reject_special_file(path_state: PathState) -> None:
    if path_state.is_special:
        raise Conflict(f"{shown(path_state.path)} is a special file (a FIFO, socket or device). Choose another path.")


def author_of(caller: Caller) -> Author:
    """Return the caller as an author."""
    return Author(
        kind=AuthorKind.AGENT if caller.is_agent else AuthorKind.USER,
        user_id=caller.user_id,
        agent_id=caller.agent_id,
        session_id=caller.session_id,
        run_id=caller.run_id,
        call_id=caller.call_id,
    )


def _folder(path: WorkspacePath) -> EntryState:
    return EntryState(path, EntryKind.FOLDER, FOLDER_MODE)
