"""Keeps the server's data directory closed to the machine's other users."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_PRIVATE: Final = 0o700
_OTHERS: Final = 0o077
# Of what lies in these all is as closed as they are; a workspace's trees are closed when they are opened.
_KEPT: Final = ("*", "workspaces/*")


def make_private(folder: Path, data_dir: Path) -> None:
    """Make ``folder``, which is ``data_dir`` or below it, and every folder between; each is its owner's alone."""
    if folder != data_dir:
        make_private(folder.parent, data_dir)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE)
    _close(folder)


def keep_private(data_dir: Path) -> None:
    """Close what an earlier version, or an operator, left open. Nothing is made."""
    if not data_dir.is_dir():
        return
    _close(data_dir)
    for pattern in _KEPT:
        for folder in data_dir.glob(pattern):
            _close(folder)


def _close(folder: Path) -> None:
    """Close a directory to others, if it is ours. Its path may be a link; what is changed is what was looked at."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        mode = os.fstat(opened).st_mode
        if mode & _OTHERS:
            # An operator's own directory, which only lets us write, stays: what we make in it is closed.
            with suppress(PermissionError):
                os.fchmod(opened, stat.S_IMODE(mode) & ~_OTHERS)
    finally:
        os.close(opened)
