"""Folders that a command leaves locked against their owner: written, changed, deleted and undone like any other."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import ran

LOCKED = "mkdir -p d/e; echo a > d/e/a; echo b > d/b; chmod 400 d/b; chmod 500 d/e d"


@pytest.mark.parametrize(
    "command",
    [
        "chmod 700 d; echo new > d/new; chmod 500 d",
        "chmod -R u+w d; rm -rf d",
        "chmod -R u+w d; echo changed > d/e/a; mv d/b d/e/b; chmod 500 d/e d",
        "chmod -R u+w d; rm -rf d; echo file > d",
        "chmod 755 d",
    ],
)
async def test_locked_folder_is_changed_and_restored(workspace: WorkspaceFixture, command: str) -> None:
    made = await ran(workspace, LOCKED)
    assert made["is_error"] is False, made
    assert (workspace.project / "d").stat().st_mode & 0o777 == 0o500
    assert (workspace.project / "d" / "e" / "a").read_text() == "a\n"
    outcome = await workspace.call("bash", command=command)
    assert outcome.succeeded, outcome.error

    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert (workspace.project / "d").stat().st_mode & 0o777 == 0o500
    found = await ran(workspace, "find d -printf '%p %m\\n' | sort; cat d/b d/e/a")
    assert found["output"] == "d 500\nd/b 400\nd/e 500\nd/e/a 644\nb\na\n"


@pytest.mark.parametrize(("count", "mode"), [(0, 0o600), (1, 0o000)])
async def test_file_that_nobody_may_read_is_undone_and_redone(
    workspace: WorkspaceFixture, count: int, mode: int
) -> None:
    wip = workspace.project / "wip.py"
    wip.write_text("x = 1\n")
    wip.chmod(0o600)
    calls = []
    for command in ("chmod 000 wip.py", "echo 1 > one.txt", "chmod 600 wip.py"):
        outcome = await workspace.call("bash", command=command)
        assert outcome.succeeded, (command, outcome.error)
        calls.append(str(outcome.call_id))

    undone = await workspace.result("undo", calls=calls[count:])

    assert undone["conflicts"] == []
    assert wip.stat().st_mode & 0o777 == mode
    assert not (workspace.project / "one.txt").exists()
    await workspace.result("undo", calls=[undone["call_id"]])
    assert (wip.stat().st_mode & 0o777, wip.read_text()) == (0o600, "x = 1\n")
    assert (workspace.project / "one.txt").exists()
