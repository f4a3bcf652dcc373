"""The directories that a mount table keeps open."""

import os
from pathlib import Path

from toolcrib.core.ids import WorkspaceId, new_id
from toolcrib.core.paths import Mount, mount_root
from toolcrib.workspace.fs.mounts import MountTable


def test_close_leaves_no_directory_open_that_nobody_uses(tmp_path: Path) -> None:
    mounts = MountTable(tmp_path)
    workspaces = [WorkspaceId(new_id()) for _ in range(3)]
    for workspace in workspaces:
        for mount in (Mount.PROJECT, Mount.CENTRAL):
            mounts.disk(workspace, None, mount_root(mount))
    used = mounts.disk(workspaces[0], None, mount_root(Mount.PROJECT))
    assert len(open_below(tmp_path)) == 6

    mounts.close()

    assert open_below(tmp_path) == [str(tmp_path / "workspaces" / str(workspaces[0]) / "project")]
    del used
    assert open_below(tmp_path) == []


def open_below(folder: Path) -> list[str]:
    opened = (os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path))
    return [path for path in opened if path.startswith(f"{folder}/")]
