"""Finds folders in which nothing may be changed: their mode, owner or disk forbids it.

A folder that a call left locked is opened for later calls, as its owner could. One that someone locked outside Toolcrib
is not: that was meant.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from toolcrib.core.change_sets import FileChange
from toolcrib.core.errors import ToolFailed
from toolcrib.core.files import AuthorKind, File, Version
from toolcrib.core.ids import VersionId
from toolcrib.core.paths import WorkspacePath
from toolcrib.runtime.disk_threads import FEW_FILES, in_thread
from toolcrib.workspace.fs.mount_reader import FolderAccess, is_locked_mode
from toolcrib.workspace.fs.mounts import WorkspaceDisks

GetVersions = Callable[[Sequence[VersionId]], Awaitable[Mapping[VersionId, Version]]]


async def find_read_only(
    disk_of: WorkspaceDisks,
    folders: Iterable[WorkspacePath],
    files: Callable[[Sequence[WorkspacePath]], Awaitable[Sequence[File | None]]],
    versions: GetVersions,
) -> dict[WorkspacePath, str]:
    """Return those of the folders in which nothing may be changed, with the reason and the remedy.

    ``files`` and ``versions`` load what the history has of the few folders that are not open.
    """
    asked = sorted(set(folders))
    accesses = _accesses(disk_of, asked) if len(asked) <= FEW_FILES else await in_thread(_accesses, disk_of, asked)
    denied = {folder: _DENIED for folder, access in accesses.items() if access is FolderAccess.DENIED}
    locked = [folder for folder, access in accesses.items() if access is FolderAccess.LOCKED]
    if not locked:
        return denied
    # A head that is not locked means that the lock is new, and not in the history yet.
    known = [file.version_id if file and is_locked_mode(file.state.mode) else None for file in await files(locked)]
    heads = await versions([version_id for version_id in known if version_id is not None])
    by_others = (id_ is None or heads[id_].author_kind is AuthorKind.EXTERNAL for id_ in known)
    return denied | {folder: _LOCKED for folder, is_by_others in zip(locked, by_others, strict=True) if is_by_others}


_LOCKED = "is read-only. Make it writable with `chmod u+rwx`, then repeat."
_DENIED = (
    "cannot be changed by the server: it belongs to another user, or its disk is read-only. Correct that, then repeat."
)


def read_only_error(folder: WorkspacePath, reason: str) -> ToolFailed:
    """Build the error for a change in such a folder."""
    return ToolFailed(f"Nothing was changed: the directory {folder.display} {reason}")


def folders_changed_by(changes: Iterable[FileChange]) -> set[WorkspacePath]:
    """Return the folders whose entries are replaced, created or removed. Changes of a mode replace none."""
    return {
        state.path.parent
        for change in changes
        if change.vacates_path or change.before is None or change.body is not None or change.trashed or change.restored
        for state in change.states
    }


def _accesses(disk_of: WorkspaceDisks, folders: Sequence[WorkspacePath]) -> dict[WorkspacePath, FolderAccess]:
    accesses = {folder: disk_of(folder).access_to(folder) for folder in folders}
    return {folder: access for folder, access in accesses.items() if access is not FolderAccess.OPEN}
