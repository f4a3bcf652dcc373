"""Symbolic links that lead out of the workspace: what is later written to such a name changes another file."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from toolcrib.core.errors import CallDenied, ToolFailed
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.mounts import WorkspaceDisks

# The programs of the machine: a virtual environment links to its interpreter. Usually only an administrator may write
# there, and nobody else changes anything through a link.
_SYSTEM: Final = (*map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")),)
_NOWHERE: Final = Path("/dev/null")


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
    # Through the links that are on disk.
    real = Path(os.path.realpath(root.joinpath(*path.parts[:-1], target)))
    if real.is_relative_to(root) or real == _NOWHERE:
        return False
    is_of_the_machine = _is_below(real, _SYSTEM) or _is_below(Path(target), _SYSTEM)
    return not is_of_the_machine or _is_writable(real)


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _is_writable(path: Path) -> bool:
    """Whether this user may write to the file, or create it. In local mode that is the person."""
    while not os.path.lexists(path):
        path = path.parent
    return os.access(path, os.W_OK)


def _is_there(disks: WorkspaceDisks, path: WorkspacePath, target: str) -> bool:
    try:
        node = disks(path).stat_no_symlinks(path)
    except (ToolFailed, CallDenied):
        return False
    return node is not None and node.target == target
