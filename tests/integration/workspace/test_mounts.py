"""The four mounts of a workspace: which are writable, and whose @state is whose."""

from dataclasses import replace

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import get, put, rows, shift, with_tools
from tests.integration.gate.test_approvals import in_session
from toolcrib.core.callers import Caller
from toolcrib.core.errors import NotFound, ReadOnlyMount
from toolcrib.core.ids import RunId, new_id


@pytest.fixture
def workspace(workspace: WorkspaceFixture) -> WorkspaceFixture:
    return with_tools(workspace, put, get, shift)


async def text_at(workspace: WorkspaceFixture, path: str, caller: Caller | None = None) -> object:
    outcome = await workspace.call("get", caller or workspace.caller, path=path)
    return outcome.result if outcome.error is None else type(outcome.error)


@pytest.mark.parametrize("mount", ["project", "central", "state"])
async def test_writable_mount_keeps_its_own_history_and_tree(workspace: WorkspaceFixture, mount: str) -> None:
    outcome = await workspace.call("put", path=f"@{mount}/notes/a.txt", text=mount)

    assert outcome.succeeded
    tree = f"state/{workspace.caller.user_id}" if mount == "state" else mount
    assert (workspace.mount(tree) / "notes" / "a.txt").read_text() == mount
    assert await text_at(workspace, f"@{mount}/notes/a.txt") == mount
    stored = await rows(workspace, "select mount, path from toolcrib.files where workspace_id = %s order by path")
    assert stored == [(tree, "/notes"), (tree, "/notes/a.txt")]
    others = {"project", "central", "state", "pkg"} - {mount}
    assert {await text_at(workspace, f"@{other}/notes/a.txt") for other in others} == {NotFound}


async def test_nothing_is_moved_from_one_mount_to_another(workspace: WorkspaceFixture) -> None:
    await workspace.call("put", path="@central/a.txt", text="a")

    away = await workspace.call("shift", source="@central/a.txt", destination="@project/a.txt")
    within = await workspace.call("shift", source="@central/a.txt", destination="@central/b.txt")

    assert away.error is not None
    assert away.error.code == "CONFLICT"
    assert within.succeeded
    assert await text_at(workspace, "@central/b.txt") == "a"
    assert list(workspace.project.iterdir()) == []


async def test_workspace_tool_paths_refer_to_the_project(workspace: WorkspaceFixture) -> None:
    await workspace.call("put", path="@project/a.txt", text="here")

    assert (await workspace.result("read", path="/a.txt"))["content"] == "here"


async def test_pkg_is_read_only(workspace: WorkspaceFixture) -> None:
    (workspace.mount("pkg") / "guide.md").write_text("# Guide\n")
    agent = await workspace.agent(
        trust="autonomous", tool_permissions={name: {"allowed": True} for name in ("put", "get")}
    )

    for caller in (workspace.caller, agent):
        assert await text_at(workspace, "@pkg/guide.md", caller) == "# Guide\n"
        for path in ("@pkg/guide.md", "@pkg/new.md", "@pkg/new/folder/x"):
            outcome = await workspace.call("put", caller, path=path, text="x")
            assert type(outcome.error) is ReadOnlyMount

    assert [(path.name, path.read_text()) for path in workspace.mount("pkg").iterdir()] == [("guide.md", "# Guide\n")]
    assert await rows(workspace, "select id from toolcrib.files where workspace_id = %s") == []


@pytest.mark.parametrize("path", ["@state/logs/execution.jsonl", "@state/logs/a/b", "@state/logs"])
async def test_no_tool_writes_the_logs(workspace: WorkspaceFixture, path: str) -> None:
    outcome = await workspace.call("put", path=path, text="forged\n")

    assert type(outcome.error) is ReadOnlyMount
    assert list(workspace.mount(f"state/{workspace.caller.user_id}").iterdir()) == []


async def test_logs_are_readable_and_similar_names_are_writable(workspace: WorkspaceFixture) -> None:
    logs = workspace.mount(f"state/{workspace.caller.user_id}/logs")
    (logs / "execution.jsonl").write_text("{}\n")

    assert await text_at(workspace, "@state/logs/execution.jsonl") == "{}\n"
    assert (await workspace.call("put", path="@state/logs2", text="x")).succeeded
    assert (await workspace.call("put", path="@state/a/logs/x", text="x")).succeeded


async def test_every_session_and_every_caller_outside_sessions_has_its_own_state(workspace: WorkspaceFixture) -> None:
    permissions = {name: {"allowed": True} for name in ("put", "get")}
    agent = await workspace.agent(trust="autonomous", tool_permissions=permissions)
    other = await workspace.agent(trust="autonomous", tool_permissions=permissions)
    first, second = await in_session(workspace, agent), await in_session(workspace, agent)
    callers = [workspace.caller, agent, other, first, second]

    for number, caller in enumerate(callers):
        assert await text_at(workspace, "@state/a.txt", caller) is NotFound
        assert (await workspace.call("put", caller, path="@state/a.txt", text=str(number))).succeeded

    assert [await text_at(workspace, "@state/a.txt", caller) for caller in callers] == ["0", "1", "2", "3", "4"]
    # It persists between runs.
    assert await text_at(workspace, "@state/a.txt", replace(first, run_id=RunId(new_id()))) == "3"
