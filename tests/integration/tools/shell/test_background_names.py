"""Protected names and background processes: existing ones are hidden or read-only, new ones are moved to the trash."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import new_workspace_fixture
from tests.integration.tools.shell.test_background import ended, minder, said, until
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

SECRET = "hunter2"


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> AsyncIterator[WorkspaceFixture]:
    workspace = await new_workspace_fixture(database, settings)
    yield workspace
    await workspace.engine.background.close()


async def test_existing_protected_name_is_neither_read_nor_written(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".env").write_text(SECRET)
    (workspace.project / ".vscode").mkdir()
    (workspace.project / ".vscode" / "tasks.json").write_text("{}")
    agent = await minder(workspace)

    started = await said(
        workspace,
        "bash_start",
        agent,
        command="cat .env .vscode/tasks.json; echo x > .env; echo x > .vscode/tasks.json; echo x > .vscode/new;"
        " mv .vscode away; rm -rf .vscode .env; echo done; sleep 600",
    )
    tool_result = await until(workspace, started["metadata"]["processId"], "done", agent)

    assert SECRET not in tool_result["output"]
    assert "{}" in tool_result["output"]
    assert tool_result["metadata"]["running"]
    assert (workspace.project / ".env").read_text() == SECRET
    assert [path.name for path in (workspace.project / ".vscode").iterdir()] == ["tasks.json"]
    assert (workspace.project / ".vscode" / "tasks.json").read_text() == "{}"


async def test_repository_is_read_only_for_everyone(workspace: WorkspaceFixture) -> None:
    hooks = workspace.project / "sub" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks.parent / "HEAD").write_text("ref: refs/heads/main\n")

    for caller in (workspace.caller, await minder(workspace)):
        started = await said(
            workspace,
            "bash_start",
            caller,
            command="cat sub/.git/HEAD; echo x > sub/.git/hooks/post-checkout; echo done",
        )
        tool_result = await until(workspace, started["metadata"]["processId"], "done", caller)
        assert "refs/heads/main" in tool_result["output"]
        assert "Read-only file system" in tool_result["output"]

    assert list(hooks.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("echo x > .mcp.json", ".mcp.json"),
        ("mkdir -p a/.vscode; echo x > a/.vscode/tasks.json", "a/.vscode"),
        ("git init -q d", "d/.git"),
        ("ln -s /tmp .husky", ".husky"),
        ("echo x > harmless; mv harmless .ENV", ".ENV"),
    ],
)
async def test_new_protected_name_is_moved_to_the_trash_and_ends_the_process(
    workspace: WorkspaceFixture, command: str, name: str
) -> None:
    agent = await minder(workspace)
    started = await said(workspace, "bash_start", agent, command=f"{command}; echo done; sleep 600")

    tool_result = await ended(workspace, started["metadata"]["processId"], agent)

    assert "this path is protected" in tool_result["metadata"]["stopReason"]
    assert tool_result["metadata"]["quarantined"] == [name]
    assert name in tool_result["output"]
    assert not (workspace.project / name).is_symlink()
    assert not (workspace.project / name).exists()


@pytest.mark.parametrize("command", ["ln -s {target} notes.md; echo done; sleep 600", "ln -s {target} notes.md"])
async def test_new_link_out_of_the_workspace_is_moved_to_the_trash_and_ends_the_process(
    workspace: WorkspaceFixture, command: str
) -> None:
    (workspace.project / "known").symlink_to("/etc")
    (workspace.project / "notes.md").write_text("mine\n")
    agent = await minder(workspace)
    command = "rm notes.md known; ln -s a inside; ln -s /etc known; " + command.format(target="/home/ada/.bashrc")
    outcome = await workspace.call("bash_start", agent, command=command)

    tool_result = await ended(workspace, outcome.result["metadata"]["processId"], agent)

    if "sleep" in command:
        assert tool_result["metadata"]["stopReason"].endswith("it leads out of the workspace")
    assert tool_result["metadata"]["quarantined"] == ["notes.md"]
    assert not (workspace.project / "notes.md").is_symlink()
    assert (workspace.project / "inside").is_symlink()
    assert (workspace.project / "known").is_symlink()
    await workspace.result("undo", calls=[str(outcome.call_id)], force=True)
    assert (workspace.project / "notes.md").read_text() == "mine\n"


async def test_protected_name_created_just_before_the_end_is_moved_and_a_person_can_restore_it(
    workspace: WorkspaceFixture,
) -> None:
    agent = await minder(workspace)
    outcome = await workspace.call("bash_start", agent, command="echo mine > x; echo evil > .mcp.json")
    tool_result = await ended(workspace, outcome.result["metadata"]["processId"], agent)
    assert tool_result["metadata"]["quarantined"] == [".mcp.json"]

    await workspace.result("undo", calls=[str(outcome.call_id)])
    assert list(workspace.project.iterdir()) == []

    [deleted] = [
        file for file in (await workspace.result("deleted_files"))["files"] if file["path"].endswith(".mcp.json")
    ]
    await workspace.result("file_restore", file_id=deleted["file_id"])
    assert (workspace.project / ".mcp.json").read_text() == "evil\n"


async def test_protected_name_written_by_a_person_through_the_gate_stays_and_ends_the_process(
    workspace: WorkspaceFixture,
) -> None:
    agent = await minder(workspace)
    started = await said(workspace, "bash_start", agent, command="echo up; sleep 600")
    await workspace.result("write", path="/.env", content=SECRET)

    tool_result = await ended(workspace, started["metadata"]["processId"], agent)

    assert "quarantined" not in tool_result["metadata"]
    assert (workspace.project / ".env").read_text() == SECRET


async def test_unprotected_name_is_written(workspace: WorkspaceFixture) -> None:
    agent = await minder(workspace, unprotected_paths=(".env",))
    started = await said(workspace, "bash_start", agent, command="echo x > .env; echo done; sleep 600")

    await until(workspace, started["metadata"]["processId"], "done", agent)

    assert (workspace.project / ".env").read_text() == "x\n"


async def test_process_that_swaps_folders_for_links_gets_nothing_into_the_next_view(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".profile").write_text(SECRET)
    (workspace.project / "x").mkdir()
    (workspace.project / "x" / ".profile").write_text("harmless")
    agent = await minder(workspace)
    swapping = f"mv x y; while :; do ln -sfn {outside} x; rm x; mkdir x; echo fake > x/z; rm -r x; done"
    first = await said(workspace, "bash_start", agent, command=swapping)

    for _ in range(5):
        outcome = await workspace.call("bash_start", agent, command="cat x/.profile y/.profile; echo done")
        if "processId" in outcome.result["metadata"]:
            assert SECRET not in (await ended(workspace, outcome.result["metadata"]["processId"], agent))["output"]
    await ended(workspace, first["metadata"]["processId"], agent)


async def test_process_cannot_write_its_own_log(workspace: WorkspaceFixture) -> None:
    agent = await minder(workspace)

    started = await said(workspace, "bash_start", agent, command="echo forged > /state/logs/execution.jsonl; echo done")

    tool_result = await until(workspace, started["metadata"]["processId"], "done", agent)
    assert "Read-only file system" in tool_result["output"]
