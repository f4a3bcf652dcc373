"""Folders that calls moved, and where their content was before.

Moving a folder takes untracked content along, which has no version then. What is imported later has the new path in
every version, so that undo must work out the old one.
"""

from collections.abc import Iterable

from toolcrib.core.files import AuthorKind, EntryKind, Version
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.file_history import FileTimeline


class MovedFolders:
    """The folders that calls moved, of the files that they changed."""

    def __init__(self, histories: Iterable[FileTimeline]) -> None:
        self._folders = [history for history in histories if _is_moved_folder(history)]

    @property
    def paths(self) -> list[WorkspacePath]:
        """Where they are now, without those inside of others."""
        paths = {history.file.state.path for history in self._folders if not history.file.deleted}
        return sorted(path for path in paths if paths.isdisjoint(path.ancestors))

    def old_path(self, version: Version) -> WorkspacePath:
        """Return the path that the content of a version had before the calls."""
        path = version.state.path
        if version.author_kind is not AuthorKind.EXTERNAL:
            return path
        found: tuple[WorkspacePath, Version] | None = None
        for folder in self._folders:
            earlier = [one for one in folder.versions if one.id < version.id]
            # The innermost folder, where it was when the version was imported.
            if earlier and not earlier[-1].deleted and path.is_below(then := earlier[-1].state.path):
                found = max(found or (then, earlier[0]), (then, earlier[0]), key=lambda one: len(one[0].parts))
        return path if found is None else path.relocate(found[0], self.old_path(found[1]))


def _is_moved_folder(history: FileTimeline) -> bool:
    before = history.versions[0]
    if history.file.state.kind is not EntryKind.FOLDER or before.id in history.ours or before.deleted:
        return False
    return any(version.state.path != before.state.path for version in history.versions)
