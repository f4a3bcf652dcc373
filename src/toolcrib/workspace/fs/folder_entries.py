"""Lists a folder from disk in display order. Blocks on the disk, so call it in a thread."""

from itertools import chain, islice

from toolcrib.core.files import EntryKind
from toolcrib.core.paths import WorkspacePath, is_valid_name
from toolcrib.workspace.fs.mount_writer import MountWriter


def first_paths(
    disk: MountWriter | None, folder: WorkspacePath, known: dict[str, EntryKind], *, recursive: bool, limit: int | None
) -> list[WorkspacePath]:
    """Return the first paths of a listing, folders first. Checks only as many names as it returns."""
    names = disk.names(folder, recursive=recursive) if disk else ()
    kinds = known | {path: kind for path, _, kind in names if kind is not None}
    folders = sorted(path for path, kind in kinds.items() if kind is EntryKind.FOLDER)
    others = sorted(path for path, kind in kinds.items() if kind is not EntryKind.FOLDER)
    paths = (WorkspacePath(folder.mount, path, folder.scope) for path in chain(folders, others))
    depth = len(folder.parts)
    sayable = (workspace_path for workspace_path in paths if all(map(is_valid_name, workspace_path.parts[depth:])))
    return list(islice(sayable, min(limit, len(kinds)) if limit else None))


def paths_in(disk: MountWriter, folder: WorkspacePath, *, recursive: bool) -> dict[WorkspacePath, EntryKind]:
    """Return the entries of a folder on disk by path."""
    found = disk.walk(folder) if recursive else ((folder.child(e.name), e) for e in disk.entries(folder))
    # Skip what no path can name: special files, and names that are not text.
    depth = len(folder.parts)
    return {
        path: entry.kind
        for path, entry in found
        if entry.kind is not None and all(map(is_valid_name, path.parts[depth:]))
    }
