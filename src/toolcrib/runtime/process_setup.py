"""Process setup: garbage collector, platform check, and a data directory that other users cannot read."""

import gc
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolcrib.core.errors import Misconfigured

_PRIVATE: Final = 0o700
_OTHERS: Final = 0o077
# Folders to make private, which makes everything below them private. A workspace's trees follow when they are opened.
_KEPT: Final = ("*", "workspaces/*")


class _Frozen:
    """How many modules were loaded when objects were last excluded from collections."""

    modules = 0


def freeze_gc() -> None:
    """Exclude all current objects from full collections: modules and their classes, which stay to the end.

    They are some 300,000 objects. Scanning them took a third of a second, in which every stream paused. Does nothing
    unless modules were loaded since the last time: other objects may be garbage by then, and would never be freed.
    """
    if len(sys.modules) > _Frozen.modules:
        _Frozen.modules = len(sys.modules)
        gc.freeze()


def require_linux() -> None:
    """Raise ``Misconfigured`` on other systems. Only the Linux kernel can confine paths to a workspace."""
    if sys.platform == "linux":
        return
    raise Misconfigured(
        f"Toolcrib runs on Linux only, and this is {sys.platform}: workspaces and `bash` cannot be isolated here. "
        "Run the server in a Linux virtual machine or container, and use it from here with --server."
    )


def make_private(folder: Path, data_dir: Path) -> None:
    """Create ``folder``, which is ``data_dir`` or below, and all folders in between, accessible only to the owner."""
    if folder != data_dir:
        make_private(folder.parent, data_dir)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE)
    _close(folder)


def keep_private(data_dir: Path) -> None:
    """Make private what an earlier version, or an operator, left open. Creates nothing."""
    if not data_dir.is_dir():
        return
    _close(data_dir)
    for pattern in _KEPT:
        for folder in data_dir.glob(pattern):
            _close(folder)


def _close(folder: Path) -> None:
    """Remove access of others to a directory that the server owns. Works on a descriptor, as the path may be a link."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        mode = os.fstat(opened).st_mode
        if mode & _OTHERS:
            # An operator's own directory, in which the server may only write, stays: what it creates there is private.
            with suppress(PermissionError):
                os.fchmod(opened, stat.S_IMODE(mode) & ~_OTHERS)
    finally:
        os.close(opened)
