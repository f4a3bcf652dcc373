"""Commands, undo and the history beside virtual files: a chat is in the tree and not on disk."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import ran
from toolcrib.core.paths import Mount, mount_root


async def begun(workspace: WorkspaceFixture) -> str:
    session = await workspace.stores.sessions.create(workspace.tenant, title="Talk")
    return f"/chats/{session.id}.chat"


async def listed(workspace: WorkspaceFixture) -> list[str]:
    return [entry["path"] for entry in (await workspace.result("ls", recursive=True))["entries"]]


async def test_command_does_not_see_virtual_files_and_may_create_their_folder(workspace: WorkspaceFixture) -> None:
    chat = await begun(workspace)

    assert (await ran(workspace, "ls"))["output"].strip() == ""
    await ran(workspace, "mkdir chats && echo mine > chats/notes.md")

    assert (workspace.project / "chats" / "notes.md").read_text() == "mine\n"
    assert await listed(workspace) == ["/chats", chat, "/chats/notes.md"]
    await ran(workspace, "rm -r chats")
    assert await listed(workspace) == ["/chats", chat]


@pytest.mark.parametrize("there", [False, True])
async def test_command_does_not_replace_a_virtual_file(workspace: WorkspaceFixture, *, there: bool) -> None:
    chat = await begun(workspace)
    if there:
        await workspace.result("mkdir", path="/chats")

    outcome = await workspace.call("bash", command=f"mkdir -p chats && echo mine > {chat[1:]}")

    assert outcome.error is not None
    assert "managed by the system" in outcome.error.message
    assert (await workspace.result("read", path=chat))["content"] == "# Talk\n\n"
    assert not (workspace.project / chat[1:]).exists()


async def test_undo_removes_the_folder_of_virtual_files(workspace: WorkspaceFixture) -> None:
    chat = await begun(workspace)
    made = await workspace.call("write", path="/chats/notes.md", content="mine\n")

    undone = await workspace.call("undo", calls=[str(made.call_id)])

    assert undone.succeeded
    assert undone.result["conflicts"] == []
    assert not (workspace.project / "chats").exists()
    assert await listed(workspace) == ["/chats", chat]
    redone = await workspace.result("undo", calls=[str(undone.call_id)])
    assert redone["conflicts"] == []
    assert await listed(workspace) == ["/chats", chat, "/chats/notes.md"]


async def test_folder_on_disk_takes_precedence_over_a_virtual_one(workspace: WorkspaceFixture) -> None:
    chat = await begun(workspace)
    (workspace.project / "chats").mkdir()
    (workspace.project / "chats" / "theirs.md").write_text("x")

    entries = {entry["path"]: entry for entry in (await workspace.result("ls", recursive=True))["entries"]}

    assert list(entries) == ["/chats", chat, "/chats/theirs.md"]
    assert [entries[path]["is_virtual"] for path in entries] == [False, True, False]
    await workspace.result("mv", source="/chats", destination="/talks")
    assert await listed(workspace) == ["/chats", "/talks", chat, "/talks/theirs.md"]


async def test_virtual_files_are_not_part_of_the_history(workspace: WorkspaceFixture) -> None:
    await begun(workspace)

    assert await listed(workspace)
    assert await workspace.stores.files.below(workspace.tenant, [mount_root(Mount.PROJECT)]) == []
