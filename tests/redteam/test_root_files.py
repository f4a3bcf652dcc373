"""A server that runs as root, and another user of the machine who tries to use its files. Run as root."""

import os
import stat
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.tools.shell.builders import new_workspace_fixture, ran
from tests.integration.tools.shell.test_background import ended, until
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

pytestmark = pytest.mark.root

# A user without any rights: the kernel's overflow uid, which Debian calls `nobody`.
STRANGER = 65534
ATTACK = (
    "echo 'ign*/' > .gitignore; mkdir -p ign2; cp /bin/sh ign2/s; chmod 4755 ign2/s; chmod u+s,g+s ign2/s; "
    "chmod 777 ign2; python3 -c 'import os; os.open(\"ign2/o\", os.O_CREAT | os.O_WRONLY, 0o4755)'; "
    "mkdir -p kept; cp /bin/sh kept/s; chmod 4755 kept/s; mknod ign2/null c 1 3; "
    "echo secret > ign2/secret; chmod 666 ign2/secret; echo done"
)


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> AsyncIterator[WorkspaceFixture]:
    """Its data is in a path that everyone can enter: pytest has closed none of the parent folders."""
    assert os.geteuid() == 0, "these attacks are for root: make campaigns ONLY=redteam-root"
    with TemporaryDirectory(prefix="toolcrib-root-") as folder:
        Path(folder).chmod(0o755)
        workspace = await new_workspace_fixture(
            database, settings.model_copy(update={"data_dir": Path(folder) / "data"})
        )
        yield workspace
        await workspace.engine.background.close()


def as_stranger(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, check=False
    )


def set_id_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if not path.is_symlink() and path.lstat().st_mode & 0o6000]


def foreign_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.lstat().st_uid != os.geteuid()]


async def attacked(workspace: WorkspaceFixture, tool: str) -> None:
    if tool == "bash":
        assert (await ran(workspace, ATTACK))["output"].endswith("done\n")
        return
    started = await workspace.result("bash_start", command=ATTACK)
    model_input = await ended(workspace, started["metadata"]["processId"])
    assert "done\n" in started["output"] + model_input["output"]


@pytest.mark.parametrize("tool", ["bash", "bash_start"])
async def test_file_left_by_a_command_makes_no_user_root(workspace: WorkspaceFixture, tool: str) -> None:
    await attacked(workspace, tool)

    assert (workspace.project / "ign2" / "s").exists()
    assert set_id_below(workspace.settings.data_dir) == []
    assert foreign_below(workspace.settings.data_dir) == []
    assert not (workspace.project / "ign2" / "null").exists()
    for path in (workspace.project / "ign2" / "s", workspace.project / "kept" / "s"):
        # Even if its parent folders were open.
        for above in (workspace.settings.data_dir, *workspace.project.parents, workspace.project):
            if above.is_relative_to(workspace.settings.data_dir):
                above.chmod(0o755)
        assert "euid=0" not in as_stranger(path, "-p", "-c", "id").stdout


@pytest.mark.parametrize("tool", ["bash", "bash_start"])
async def test_another_user_of_the_machine_cannot_reach_the_tree(workspace: WorkspaceFixture, tool: str) -> None:
    await attacked(workspace, tool)

    for path in (workspace.project / "ign2" / "secret", workspace.project / ".gitignore"):
        assert path.stat().st_mode & stat.S_IRGRP
        assert "Permission denied" in as_stranger("cat", path).stderr
    assert as_stranger("ls", workspace.settings.data_dir).stdout == ""
    assert as_stranger("ls", workspace.settings.data_dir / "staging").stdout == ""


async def test_file_restored_from_the_trash_makes_no_user_root(workspace: WorkspaceFixture) -> None:
    await ran(workspace, ATTACK)
    for path in (workspace.project / "ign2" / "s", workspace.project / "kept" / "s"):
        path.chmod(0o6755)

    outcome = await workspace.call("bash", command="rm -rf ign2 kept")
    assert outcome.succeeded, outcome.error
    assert not (workspace.project / "ign2").exists()
    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert (workspace.project / "ign2" / "s").exists()
    assert set_id_below(workspace.project) == []


async def test_commands_of_different_workspaces_run_as_different_users_who_own_nothing(
    workspace: WorkspaceFixture,
) -> None:
    other = replace(workspace, caller=await new_caller(workspace.engine))
    seen = {await user_of(workspace), await user_of(workspace), await user_of(other)}

    assert len(seen) == 2
    assert min(seen) >= 2_000_000_000


async def user_of(workspace: WorkspaceFixture) -> int:
    """Return the uid on the host under which a command of this workspace runs."""
    before = set(descendants(os.getpid()))
    started = await workspace.result("bash_start", command="echo up; exec sleep 100")
    process = started["metadata"]["processId"]
    await until(workspace, process, "up")
    users = {os.stat(f"/proc/{number}").st_uid for number in set(descendants(os.getpid())) - before} - {0}
    await workspace.result("bash_stop", process_id=process)
    [user] = users
    return user
