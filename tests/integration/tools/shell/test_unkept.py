"""Files that are ignored or too large for the history: moved and not read, named in the effect, undone and redone."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.gate.builders import rows
from tests.integration.gate.test_approvals import asked, carried_out, decide
from tests.integration.sandbox.sandbox_fixture import COPYING
from tests.integration.tools.shell.builders import hand, ran
from toolcrib.core.errors import Conflict, TooLarge
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

INSTALL = "mkdir -p node_modules/a/b && echo one > node_modules/a/x && echo two > node_modules/a/b/y"


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


async def done(workspace: WorkspaceFixture, command: str) -> tuple[str, dict[str, Any]]:
    outcome = await workspace.call("bash", command=command)
    assert outcome.succeeded, outcome.error
    return str(outcome.call_id), outcome.result["metadata"]


async def undone(workspace: WorkspaceFixture, call: str) -> str:
    result = await workspace.result("undo", calls=[call])
    assert result["conflicts"] == []
    return str(result["call_id"])


async def known(workspace: WorkspaceFixture) -> list[str]:
    found = await rows(
        workspace, "select path from toolcrib.files where not deleted and workspace_id = %s order by path"
    )
    return [path for (path,) in found]


def trash(workspace: WorkspaceFixture) -> list[Path]:
    folder = workspace.project.parent / "trash"
    return list(folder.iterdir()) if folder.exists() else []


async def test_new_ignored_folder_is_one_unit_that_undo_and_redo_move(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo node_modules/ > .gitignore")

    call, metadata = await done(workspace, f"{INSTALL}; echo kept > kept")

    assert metadata["untracked"] == [{"path": "node_modules", "bytes": 8}]
    assert await known(workspace) == ["/.gitignore", "/kept", "/node_modules"]
    after = tree(workspace.project)
    assert after["node_modules/a/b/y"] == "two\n"
    assert trash(workspace) == []
    undo = await undone(workspace, call)
    assert tree(workspace.project) == {".gitignore": "node_modules/\n"}
    assert not (workspace.project / "node_modules").exists()
    assert len(trash(workspace)) == 1
    await undone(workspace, undo)
    assert tree(workspace.project) == after
    assert trash(workspace) == []


async def test_ignore_rules_apply_as_the_command_left_them(workspace: WorkspaceFixture) -> None:
    _, metadata = await done(workspace, f"echo node_modules > .gitignore; {INSTALL}")

    assert [one["path"] for one in metadata["untracked"]] == ["node_modules"]


async def test_deleting_an_unknown_ignored_folder_moves_it_to_the_trash_completely(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".gitignore").write_text("node_modules\n")
    for name in ("a", "b"):
        (workspace.project / "node_modules" / name).mkdir(parents=True)
        (workspace.project / "node_modules" / name / "f").write_text(name)
    before = tree(workspace.project)

    call, _ = await done(workspace, "rm -rf node_modules .gitignore")

    assert tree(workspace.project) == {}
    assert len(trash(workspace)) == 1
    await undone(workspace, call)
    assert tree(workspace.project) == before


async def test_changes_within_an_ignored_folder_are_undone_one_by_one(workspace: WorkspaceFixture) -> None:
    await ran(workspace, f"echo node_modules > .gitignore; {INSTALL}")
    before = tree(workspace.project)

    call, metadata = await done(
        workspace, "cd node_modules; echo changed > a/x; rm a/b/y; mkdir c; echo new > c/z; echo z > z"
    )

    after = tree(workspace.project)
    assert after == {
        ".gitignore": "node_modules\n",
        "node_modules/a/x": "changed\n",
        "node_modules/c/z": "new\n",
        "node_modules/z": "z\n",
    }
    assert {one["path"] for one in metadata["untracked"]} == {"node_modules/a/x", "node_modules/c", "node_modules/z"}
    undo = await undone(workspace, call)
    assert tree(workspace.project) == before
    await undone(workspace, undo)
    assert tree(workspace.project) == after


async def test_file_too_large_for_the_history_is_moved(workspace: WorkspaceFixture) -> None:
    size = workspace.settings.max_file_bytes + 1

    call, metadata = await done(workspace, f"head -c {size} /dev/zero > large; chmod 600 large")

    assert metadata["untracked"] == [{"path": "large", "bytes": size}]
    assert (workspace.project / "large").stat().st_size == size
    assert (workspace.project / "large").stat().st_mode & 0o777 == 0o600
    assert await rows(workspace, "select from toolcrib.blobs where workspace_id = %s") == []
    undo = await undone(workspace, call)
    assert not (workspace.project / "large").exists()
    await undone(workspace, undo)
    assert (workspace.project / "large").stat().st_size == size


async def test_tracked_file_stays_tracked_although_a_rule_ignores_it(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo one > build.log")

    call, metadata = await done(workspace, "echo '*.log' > .gitignore; echo two > build.log; echo x > other.log")

    assert [one["path"] for one in metadata["untracked"]] == ["other.log"]
    await undone(workspace, call)
    assert tree(workspace.project) == {"build.log": "one\n"}


async def test_git_folder_is_tracked_whatever_the_rules(workspace: WorkspaceFixture) -> None:
    call, metadata = await done(workspace, "echo '*' > .gitignore; git init -q; echo a > a")

    assert [one["path"] for one in metadata["untracked"]] == [".gitignore", "a"]
    await undone(workspace, call)
    assert list(workspace.project.iterdir()) == []


async def test_unstorable_names_and_links_are_allowed_inside_an_ignored_folder(workspace: WorkspaceFixture) -> None:
    call, _ = await done(
        workspace, "echo out > .gitignore; mkdir out; touch \"out/$(printf '\\377')\"; ln -s /etc out/l; mkfifo out/p"
    )

    assert sorted(entry.name for entry in (workspace.project / "out").iterdir()) == ["l", "\udcff"]
    await undone(workspace, call)
    assert list(workspace.project.iterdir()) == []


@pytest.mark.parametrize("command", ["rm out/link", "rm out/link; mkdir out/link; echo a > out/link/a", "rm -r out"])
async def test_link_in_an_ignored_folder_is_removed_and_restored(workspace: WorkspaceFixture, command: str) -> None:
    link = workspace.project / "out" / "link"
    link.parent.mkdir()
    link.symlink_to("nowhere")
    (workspace.project / ".gitignore").write_text("out/\n")

    call, _ = await done(workspace, command)

    assert not link.is_symlink()
    await undone(workspace, call)
    assert str(link.readlink()) == "nowhere"


async def test_special_file_in_an_ignored_folder_is_not_removed(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo out/ > .gitignore; mkdir out")
    os.mkfifo(workspace.project / "out" / "pipe")

    outcome = await workspace.call("bash", command="rm out/pipe; echo a > a")

    assert isinstance(outcome.error, Conflict)
    assert [path.name for path in workspace.project.iterdir() if path.name == "a"] == []


async def test_untracked_files_of_a_pending_effect_are_in_the_trash_and_move_on_approval(
    workspace: WorkspaceFixture,
) -> None:
    agent = await hand(workspace)
    approval = await asked(
        workspace, agent, "bash", command=f"echo node_modules > .gitignore; {INSTALL}; echo x > .envrc"
    )
    assert len(trash(workspace)) == 1
    assert list(workspace.project.iterdir()) == []

    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)

    assert outcome.succeeded, outcome.error
    assert tree(workspace.project)["node_modules/a/x"] == "one\n"
    assert trash(workspace) == []


async def test_losing_pending_untracked_files_asks_for_approval_again(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace)
    approval = await asked(
        workspace, agent, "bash", command=f"echo node_modules > .gitignore; {INSTALL}; echo x > .envrc"
    )
    [lying] = trash(workspace)
    lying.rename(workspace.project.parent / "lost")

    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)

    assert outcome.is_waiting, outcome
    assert list(workspace.project.iterdir()) == []


async def test_ten_thousand_ignored_files_are_moved_and_not_read(workspace: WorkspaceFixture) -> None:
    script = "mkdir node_modules; cd node_modules; seq 10000 | xargs touch"

    call, metadata = await done(workspace, f"echo node_modules > .gitignore; {script}")

    assert metadata["changed"]["created"] == 2
    assert len(list((workspace.project / "node_modules").iterdir())) == 10_000
    await undone(workspace, call)
    assert list(workspace.project.iterdir()) == []


async def test_without_an_overlay_the_same_works_on_a_copy(database: Database, settings: Settings) -> None:
    workspace = await new_workspace(database, settings, sandbox=COPYING)
    (workspace.project / "known").write_text("before\n")

    call, metadata = await done(
        workspace, f"echo node_modules > .gitignore; {INSTALL}; echo after > known; ln -s known l"
    )

    assert metadata["untracked"] == [{"path": "node_modules", "bytes": 8}]
    after = tree(workspace.project)
    assert after["known"] == "after\n"
    undo = await undone(workspace, call)
    assert tree(workspace.project) == {"known": "before\n"}
    await undone(workspace, undo)
    assert tree(workspace.project) == after


async def test_tree_too_large_to_copy_rejects_the_command(database: Database, settings: Settings) -> None:
    workspace = await new_workspace(database, settings, sandbox=Sandbox(overlay=False, largest_copy=10))
    (workspace.project / "large").write_text("more than ten bytes")

    outcome = await workspace.call("bash", command="true")

    assert isinstance(outcome.error, TooLarge)
