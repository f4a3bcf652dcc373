"""A server that runs as root, and another user of the machine who tries to use its files. Run as root."""

import os
import stat
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.conftest import Crib, new_caller
from tests.integration.tools.shell.builders import new_crib, ran
from tests.integration.tools.shell.test_background import ended, until
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

pytestmark = [pytest.mark.root, pytest.mark.req("SY-2", part="a server that runs as root")]

# A user without any rights: the kernel's overflow uid, which Debian calls `nobody`.
STRANGER = 65534
ATTACK = (
    "echo 'ign*/' > .gitignore; mkdir -p ign2; cp /bin/sh ign2/s; chmod 4755 ign2/s; chmod u+s,g+s ign2/s; "
    "chmod 777 ign2; python3 -c 'import os; os.open(\"ign2/o\", os.O_CREAT | os.O_WRONLY, 0o4755)'; "
    "mkdir -p kept; cp /bin/sh kept/s; chmod 4755 kept/s; mknod ign2/null c 1 3; "
    "echo secret > ign2/secret; chmod 666 ign2/secret; echo done"
)


@pytest.fixture
async def crib(database: Database, settings: Settings) -> AsyncIterator[Crib]:
    """Its data is in a path that everyone can enter: pytest has closed none of the parent folders."""
    assert os.geteuid() == 0, "these attacks are for root: make redteam-root"
    with TemporaryDirectory(prefix="toolcrib-root-") as folder:
        Path(folder).chmod(0o755)
        crib = await new_crib(database, settings.model_copy(update={"data_dir": Path(folder) / "data"}))
        yield crib
        await crib.engine.background.close()


def as_stranger(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, check=False
    )


def set_id_below(root: Path) -> list[Path]:
    return [place for place in root.rglob("*") if not place.is_symlink() and place.lstat().st_mode & 0o6000]


def foreign_below(root: Path) -> list[Path]:
    return [place for place in root.rglob("*") if place.lstat().st_uid != os.geteuid()]


async def attacked(crib: Crib, tool: str) -> None:
    if tool == "bash":
        assert (await ran(crib, ATTACK))["output"].endswith("done\n")
        return
    started = await crib.result("bash_start", command=ATTACK)
    told = await ended(crib, started["metadata"]["processId"])
    assert "done\n" in started["output"] + told["output"]


@pytest.mark.parametrize("tool", ["bash", "bash_start"])
async def test_file_left_by_a_command_makes_no_user_root(crib: Crib, tool: str) -> None:
    await attacked(crib, tool)

    assert (crib.project / "ign2" / "s").exists()
    assert set_id_below(crib.settings.data_dir) == []
    assert foreign_below(crib.settings.data_dir) == []
    assert not (crib.project / "ign2" / "null").exists()
    for place in (crib.project / "ign2" / "s", crib.project / "kept" / "s"):
        # Even if its parent folders were open.
        for above in (crib.settings.data_dir, *crib.project.parents, crib.project):
            if above.is_relative_to(crib.settings.data_dir):
                above.chmod(0o755)
        assert "euid=0" not in as_stranger(place, "-p", "-c", "id").stdout


@pytest.mark.parametrize("tool", ["bash", "bash_start"])
async def test_another_user_of_the_machine_cannot_reach_the_tree(crib: Crib, tool: str) -> None:
    await attacked(crib, tool)

    for place in (crib.project / "ign2" / "secret", crib.project / ".gitignore"):
        assert place.stat().st_mode & stat.S_IRGRP
        assert "Permission denied" in as_stranger("cat", place).stderr
    assert as_stranger("ls", crib.settings.data_dir).stdout == ""
    assert as_stranger("ls", crib.settings.data_dir / "staging").stdout == ""


async def test_file_restored_from_the_trash_makes_no_user_root(crib: Crib) -> None:
    await ran(crib, ATTACK)
    for place in (crib.project / "ign2" / "s", crib.project / "kept" / "s"):
        place.chmod(0o6755)

    outcome = await crib.call("bash", command="rm -rf ign2 kept")
    assert outcome.succeeded, outcome.error
    assert not (crib.project / "ign2").exists()
    await crib.result("undo", calls=[str(outcome.call_id)])

    assert (crib.project / "ign2" / "s").exists()
    assert set_id_below(crib.project) == []


async def test_commands_of_different_workspaces_run_as_different_users_who_own_nothing(
    database: Database, crib: Crib
) -> None:
    other = replace(crib, caller=await new_caller(database, crib.settings))
    seen = {await user_of(crib), await user_of(crib), await user_of(other)}

    assert len(seen) == 2
    assert min(seen) >= 2_000_000_000


async def user_of(crib: Crib) -> int:
    """Return the uid on the host under which a command of this workspace runs."""
    before = set(descendants(os.getpid()))
    started = await crib.result("bash_start", command="echo up; exec sleep 100")
    process = started["metadata"]["processId"]
    await until(crib, process, "up")
    users = {os.stat(f"/proc/{number}").st_uid for number in set(descendants(os.getpid())) - before} - {0}
    await crib.result("bash_stop", process_id=process)
    [user] = users
    return user
