"""Changes to a file on disk without the history, and the history's versions of it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.conftest import WorkspaceFixture


def changed(path: Path) -> None:
    path.write_text("theirs, and longer\n")


def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("more\n")


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("their\n")
    other.rename(path)


def same_size_and_mtime(path: Path) -> None:
    """With the same length and the same mtime as before."""
    before = path.stat()
    path.write_text("their\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_same_size_and_mtime(path: Path) -> None:
    before = path.stat()
    replaced(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def mode_changed(path: Path) -> None:
    path.chmod(0o700)


def deleted(path: Path) -> None:
    path.unlink()


def folder_now(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("theirs\n")


def link_now(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def fifo_now(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CONTENT: dict[str, Callable[[Path], None]] = {
    "changed": changed,
    "appended": appended,
    "replaced": replaced,
    "same size and mtime": same_size_and_mtime,
    "replaced, same size and mtime": replaced_same_size_and_mtime,
}
OTHERWISE: dict[str, Callable[[Path], None]] = {
    "mode changed": mode_changed,
    "deleted": deleted,
    "folder now": folder_now,
    "link now": link_now,
}


async def history(workspace: WorkspaceFixture, file_id: str) -> list[dict[str, Any]]:
    """Return a file's versions, oldest first."""
    return list((await workspace.result("file_versions", file_id=file_id))["versions"])[::-1]


async def authors(workspace: WorkspaceFixture, file_id: str) -> list[str]:
    return [version["author"]["kind"] for version in await history(workspace, file_id)]


def wipe(path: Path) -> None:
    shutil.rmtree(path)
