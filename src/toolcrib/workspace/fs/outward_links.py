"""Symbolic links that lead out of the workspace: what is later written to such a name changes another file."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from toolcrib.core.errors import CallDenied, ToolFailed
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.mounts import WorkspaceDisks

# The programs of the machine, which only its administrator changes: a virtual environment links to its interpreter.
_SYSTEM: Final = (*map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/dev/null")),)


def new_outward_links(disks: WorkspaceDisks, links: Iterable[tuple[WorkspacePath, str]]) -> dict[WorkspacePath, str]:
    """Return those of the links, each with its target, that lead out of the workspace and are not on disk yet."""
    return {
        path: target
        for path, target in links
        if leads_out(disks.root(path), path, target) and not _is_there(disks, path, target)
    }


def leads_out(root: Path, path: WorkspacePath, target: str) -> bool:
    """Whether a link at ``path`` may lead out of its mount, whose directory is ``root``.

    A call may create several links at once, which are not on disk yet. So ``..`` behind a name, which may be such a
    link, counts as leading out.
    """
    parts = PurePosixPath(target).parts
    ups = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    if ".." in parts[ups:] or ups >= len(path.parts):
        return True
    if PurePosixPath(target).is_absolute() and _is_below(Path(target), _SYSTEM):
        return False
    # Through the links that are on disk.
    real = Path(os.path.realpath(root.joinpath(*path.parts[:-1], target)))
    return not _is_below(real, (root, *_SYSTEM))


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _is_there(disks: WorkspaceDisks, path: WorkspacePath, target: str) -> bool:
    try:
        node = disks(path).stat_no_symlinks(path)
    except (ToolFailed, CallDenied):
        return False
    return node is not None and node.target == target
