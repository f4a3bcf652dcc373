"""Commands, undo and the history beside virtual files: a chat is in the tree and not on disk."""

import pytest

from tests.integration.conftest import Crib
from tests.integration.tools.shell.builders import ran
from toolcrib.core.paths import Mount, mount_root
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore
from toolcrib.storage.sessions import SessionStore

pytestmark = pytest.mark.req("WS-10", part="not on disk")


async def begun(crib: Crib) -> str:
    session = await SessionStore(crib.database).create(Tenant.of(crib.caller), title="Talk")
    return f"/chats/{session.id}.chat"


async def listed(crib: Crib) -> list[str]:
    return [entry["path"] for entry in (await crib.result("ls", recursive=True))["entries"]]


async def test_command_does_not_see_virtual_files_and_may_create_their_folder(crib: Crib) -> None:
    chat = await begun(crib)

    assert (await ran(crib, "ls"))["output"].strip() == ""
    await ran(crib, "mkdir chats && echo mine > chats/notes.md")

    assert (crib.project / "chats" / "notes.md").read_text() == "mine\n"
    assert await listed(crib) == ["/chats", chat, "/chats/notes.md"]
    await ran(crib, "rm -r chats")
    assert await listed(crib) == ["/chats", chat]


@pytest.mark.parametrize("there", [False, True])
async def test_command_does_not_replace_a_virtual_file(crib: Crib, *, there: bool) -> None:
    chat = await begun(crib)
    if there:
        await crib.result("mkdir", path="/chats")

    outcome = await crib.call("bash", command=f"mkdir -p chats && echo mine > {chat[1:]}")

    assert outcome.error is not None
    assert "managed by the system" in outcome.error.message
    assert (await crib.result("read", path=chat))["content"] == "# Talk\n\n"
    assert not (crib.project / chat[1:]).exists()


async def test_undo_removes_the_folder_of_virtual_files(crib: Crib) -> None:
    chat = await begun(crib)
    made = await crib.call("write", path="/chats/notes.md", content="mine\n")

    undone = await crib.call("undo", calls=[str(made.call_id)])

    assert undone.succeeded
    assert undone.result["conflicts"] == []
    assert not (crib.project / "chats").exists()
    assert await listed(crib) == ["/chats", chat]
    redone = await crib.result("undo", calls=[str(undone.call_id)])
    assert redone["conflicts"] == []
    assert await listed(crib) == ["/chats", chat, "/chats/notes.md"]


async def test_folder_on_disk_takes_precedence_over_a_virtual_one(crib: Crib) -> None:
    chat = await begun(crib)
    (crib.project / "chats").mkdir()
    (crib.project / "chats" / "theirs.md").write_text("x")

    entries = {entry["path"]: entry for entry in (await crib.result("ls", recursive=True))["entries"]}

    assert list(entries) == ["/chats", chat, "/chats/theirs.md"]
    assert [entries[path]["is_virtual"] for path in entries] == [False, True, False]
    await crib.result("mv", source="/chats", destination="/talks")
    assert await listed(crib) == ["/chats", "/talks", chat, "/talks/theirs.md"]


async def test_virtual_files_are_not_part_of_the_history(crib: Crib) -> None:
    await begun(crib)

    assert await listed(crib)
    assert await FileStore(crib.database).below(Tenant.of(crib.caller), mount_root(Mount.PROJECT)) == []
