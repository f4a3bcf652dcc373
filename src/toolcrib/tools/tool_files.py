"""Files of the workspace as a tool reads and writes them. Every access is checked for the caller."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from toolcrib.core.change_sets import FileChange
from toolcrib.core.errors import BadArguments, Conflict, NotFound, PreconditionFailed, TooLarge, ToolFailed
from toolcrib.core.files import ContentKind, EntryKind, FileContent, PathState
from toolcrib.core.paths import PathLike, WorkspacePath, parse_path
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.tree import WorkspaceTree


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, folder or link. Only files have a size; only tracked ones have a known hash."""

    path: str
    kind: EntryKind
    size: int | None
    sha256: str | None
    tracked: bool
    updated_at: datetime

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class ToolFiles:
    """The files of the workspace. A path is a string such as ``/src/a.py``, or an argument of a path type.

    What a call writes becomes one change set when the tool returns, and nothing if it fails. The call itself sees its
    changes at once; a file that it changes several times has one change.

    Raises: ``NotFound``, ``BadArguments``, ``Conflict``, ``PermissionDenied``, ``ProtectedPath``,
    ``PathOutsideMount``, ``SymlinkNotFollowed``, ``TooLarge`` and ``PreconditionFailed``.
    """

    def __init__(self, tree: WorkspaceTree, draft: Draft) -> None:
        self._tree = tree
        self._draft = draft

    async def exists(self, path: PathLike) -> bool:
        """Whether a file, folder or link is there."""
        return (await self._lookup(parse_path(path))).exists

    async def stat(self, path: PathLike) -> FileEntry:
        """Return what is known about a path without reading it."""
        return _entry(await self._existing(parse_path(path)))

    async def list(
        self, path: PathLike = "/", *, recursive: bool = False, limit: int | None = None
    ) -> "list[FileEntry]":
        """List a folder, folders first, then by path."""
        folder = parse_path(path)
        if not self._draft.changes:
            listed = await self._tree.list_directory(folder, recursive=recursive, limit=limit)
            return [_entry(path_state) for path_state in listed]
        state = await self._existing(folder)
        if not state.is_folder:
            raise BadArguments({"path": f"Not a folder: {folder.display}."})
        is_new = state.node is None and not folder.is_root
        before = [] if is_new else await self._tree.list_directory(folder, recursive=recursive, limit=None)
        found = {one.path: one for one in before}
        for change in self._draft.changes.values():
            if change.before is not None:
                found.pop(change.before.path, None)
        for change in self._draft.changes.values():
            if change.after is None or not change.after.path.is_below(state.path):
                continue
            if recursive or change.after.path.parent == state.path:
                found[change.after.path] = await self._lookup(change.after.path)
        entries = sorted(found.values(), key=lambda one: (not one.is_folder, one.path.path))
        return [_entry(one) for one in entries[:limit]]

    async def read_text(self, path: PathLike, *, encoding: str = "utf-8") -> str:
        """Return the text of a file. Line ends stay as they are."""
        body = await self.read_bytes(path)
        try:
            return body.decode(encoding)
        except UnicodeDecodeError:
            raise ToolFailed(f"{parse_path(path).display} is not {encoding} text. Read its bytes instead.") from None

    async def read_bytes(self, path: PathLike) -> bytes:
        """Return the content of a file."""
        return (await self._read(parse_path(path))).body

    async def write_text(
        self, path: PathLike, text: str, *, encoding: str = "utf-8", if_match: str | None = None
    ) -> None:
        """Create or replace a text file; see ``write_bytes``."""
        try:
            body = text.encode(encoding)
        except UnicodeEncodeError as error:
            raise ToolFailed(f"Character {error.start} of the text cannot be written as {encoding}.") from None
        await self.write_bytes(path, body, if_match=if_match)

    async def write_bytes(self, path: PathLike, data: bytes, *, if_match: str | None = None) -> None:
        """Create or replace a file, and create the folders above it.

        With ``if_match``, the content must still have this SHA-256, in hexadecimal.
        """
        most = self._tree.max_file_bytes
        if len(data) > most:
            raise TooLarge(f"{parse_path(path).display} would have {len(data):,} bytes; the limit is {most:,}.")
        state = await self._draft.lookup(parse_path(path))
        await self._tree.reject_symlink(state)
        if if_match is not None:
            await self._require_unchanged(state, if_match)
        if state.exists and not state.is_folder:
            state = await self._draft.ensure_tracked(state)
        kind = state.file.state.content_kind if state.file else ContentKind.TEXT
        await self._draft.write(state, data, content=kind)

    async def mkdir(self, path: PathLike) -> None:
        """Create a folder and those above it. Succeeds if it exists."""
        folder = parse_path(path)
        if not folder.is_root:
            await self._draft.mkdir(await self._draft.lookup(folder))

    async def delete(self, path: PathLike) -> None:
        """Delete a file, a link or an empty folder."""
        state = await self._changeable(parse_path(path))
        if state.is_folder and not await self._is_empty(state):
            raise Conflict(f"Folder is not empty: {state.path.display}. Delete what is in it first.")
        await self._draft.remove(state)

    async def move(self, source: PathLike, destination: PathLike) -> None:
        """Move a file, or a folder with everything in it, to a free path. Creates the folders above that."""
        old, new = await self._changeable(parse_path(source)), parse_path(destination)
        target = await self._draft.lookup(new)
        if target.exists:
            raise Conflict(f"Destination already exists: {new.display}. Choose another name, or delete it first.")
        await self.mkdir(target.path.parent)
        await self._draft.move(old, target)

    async def _lookup(self, path: WorkspacePath) -> PathState:
        self._tree.guard.check_read(path)
        return await (self._draft.lookup(path) if self._draft.changes else self._tree.view(path))

    async def _existing(self, path: WorkspacePath) -> PathState:
        state = await self._lookup(path)
        if not state.exists and not path.is_root:
            raise NotFound(f"File not found: {path.display}")
        return state

    async def _changeable(self, path: WorkspacePath) -> PathState:
        state = await self._draft.lookup(path)
        if path.is_root:
            raise BadArguments({"path": "The root folder can be neither moved nor deleted."})
        if not state.exists:
            raise NotFound(f"File not found: {path.display}")
        if state.is_virtual:
            raise BadArguments({"path": f"{path.display} is managed by the system. Use its own API to change it."})
        return state

    async def _read(self, path: WorkspacePath) -> FileContent:
        if not self._draft.changes:
            return await self._tree.read(path)
        state = await self._existing(path)
        change = self._change_of(state)
        if change is None:
            return await self._tree.read(path)
        if change.body is not None:
            return FileContent(state, change.body, sha256(change.body).digest())
        if state.is_folder or change.before is None:
            raise BadArguments({"path": f"{path.display} is not a file."})
        # Moved by this call. A caller that may not read the old path may not read it at the new one.
        reading = await self._tree.read(change.before.path)
        return FileContent(state, reading.body, reading.sha256)

    async def _require_unchanged(self, state: PathState, if_match: str) -> None:
        if not state.exists:
            raise PreconditionFailed(f"{state.path.display} does not exist any more. Nothing was changed.")
        await self._tree.require_unchanged(await self._read(state.path), if_match)

    async def _is_empty(self, folder: PathState) -> bool:
        if await self.list(folder.path):
            return False
        emptied = any(
            one.before is not None and one.before.path.is_below(folder.path) for one in self._draft.changes.values()
        )
        return folder.node is None or emptied or await self._tree.is_empty(folder)

    def _change_of(self, state: PathState) -> FileChange | None:
        return self._draft.changes.get(state.file.id) if state.file is not None else None


def _entry(state: PathState) -> FileEntry:
    file, node = state.file, state.node
    size = file.state.size if file else node.fingerprint.size if node else 0
    digest = file.state.sha256 if file else None
    assert state.kind is not None
    return FileEntry(
        path=state.path.display,
        kind=state.kind,
        size=size if state.kind is EntryKind.FILE else None,
        sha256=digest.hex() if digest else None,
        tracked=file is not None,
        updated_at=state.updated_at,
    )
