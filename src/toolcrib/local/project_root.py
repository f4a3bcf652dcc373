"""Finds the project that a directory is in: the nearest git repository, or directory that was opened before."""

import os
from pathlib import Path

from toolcrib.local.state_directory import LocalDirectories


def project_of(directory: Path, directories: LocalDirectories) -> Path:
    """Returns the project of a directory; the directory itself if it is in none.

    A home directory is no project of what is below it, nor is a directory of another user, who could choose what an
    agent is told and may read.
    """
    for folder in (directory, *directory.parents):
        is_above = folder != directory
        if is_above and (folder in (Path.home().resolve(), Path("/")) or folder.stat().st_uid != os.getuid()):
            break
        if (folder / ".git").exists() or directories.is_known(folder):
            return folder
    return directory
