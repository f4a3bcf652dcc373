"""The paths of a tree that an agent's `paths` do not cover. A command of that agent sees them empty."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from toolcrib.core.agents import ToolPermission
from toolcrib.core.errors import TooLarge
from toolcrib.core.paths import WorkspacePath
from toolcrib.policy.permissions import covers_whole, may_cover_below, path_allowed

# Each one is a file to create for every command.
MOST: Final = 50_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def outside_paths(root: Path, workspace_path: WorkspacePath, permission: ToolPermission) -> frozenset[str]:
    """Return the paths below ``root``, mounted at ``path``, that are not covered; whole folders where possible."""
    if covers_whole(permission, workspace_path):
        return frozenset()
    opened = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        found: set[str] = set()
        for path in _outside(opened, workspace_path, permission):
            found.add(path)
            if len(found) > MOST:
                raise TooLarge(
                    f"More than {MOST:,} single files are outside this agent's `paths`: too many to hide from a "
                    "command. Ask an owner to list directories instead of single files."
                )
        return frozenset(found)
    finally:
        os.close(opened)


def _outside(root: int, workspace_path: WorkspacePath, permission: ToolPermission) -> Iterator[str]:
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            opened = os.open(folder or ".", _FOLDER, dir_fd=root)
        except OSError:
            # It is gone or locked, so that its content is unknown.
            yield folder
            continue
        try:
            with os.scandir(opened) as entries:
                listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(opened)
        for name, is_folder in listed:
            path = f"{folder}/{name}" if folder else name
            here = WorkspacePath(workspace_path.mount, f"/{path}", workspace_path.scope)
            if not is_folder:
                if not path_allowed(permission, here):
                    yield path
            elif covers_whole(permission, here):
                continue
            elif path_allowed(permission, here) or may_cover_below(permission, here):
                pending.append(path)
            else:
                yield path
