"""Commands in a project whose files have another of the person's groups, as in a checkout that a team shares.

Needs root, to be a user with two groups: ``pytest -m root tests/redteam/test_other_groups.py``.
"""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytestmark = pytest.mark.root

TEAM = 54_321
# Runs as the user with both groups.
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from toolcrib.sandbox import transaction
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox

async def main(root, staging, command, largest):
    transaction._LARGEST_FOREIGN = int(largest)
    mounts = [ViewMount("project", Path(root), "/project", writable=True)]
    async with Sandbox().transaction(mounts, Path(staging)) as view:
        result = await view.run(SandboxCommand(command))
        changed = {entry.path: entry.change for entry in await view.effect()}
    print(json.dumps({"code": result.exit_code, "output": result.output.text, "changed": changed}))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def team() -> Iterator[Path]:
    """A project with the setgid bit and the team's group, of a user who is a member."""
    assert os.geteuid() == 0, "To be a user with two groups takes root."
    person = pwd.getpwnam(os.environ.get("TOOLCRIB_TEST_USER", "crib"))
    with TemporaryDirectory(prefix="toolcrib-team-") as folder:
        project = Path(folder, "project")
        (project / "sub").mkdir(parents=True)
        (project / "a.txt").write_text("one\n")
        (project / "sub" / "b.txt").write_text("one\n")
        Path(folder).chmod(0o755)
        Path(folder, "staging").mkdir(mode=0o700)
        os.chown(Path(folder, "staging"), person.pw_uid, person.pw_gid)
        for path in (project, *project.rglob("*")):
            os.chown(path, person.pw_uid, TEAM)
            path.chmod(0o2775 if path.is_dir() else 0o664)
        yield project


def ran(project: Path, command: str, *, largest: int = 1 << 20) -> dict[str, Any]:
    owner = project.stat().st_uid
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, project, project.with_name("staging"), command, str(largest)],
        user=owner,
        group=pwd.getpwuid(owner).pw_gid,
        extra_groups=[TEAM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_files_of_another_group_are_changed(team: Path) -> None:
    command = "set -e; echo two >> a.txt; echo new > sub/new.txt; sed -i s/one/three/ sub/b.txt; mkdir -p sub/deep"

    result = ran(team, command)

    assert (result["code"], result["output"]) == (0, "")
    assert result["changed"] == {
        "a.txt": "modified",
        "sub/b.txt": "modified",
        "sub/deep": "created",
        "sub/new.txt": "created",
    }


def test_project_that_is_too_large_to_copy_can_still_be_read(team: Path) -> None:
    result = ran(team, "cat a.txt; echo two >> a.txt", largest=1)

    assert result["output"].startswith("one\n")
    assert "Value too large for defined data type" in result["output"]
    assert result["changed"] == {}
