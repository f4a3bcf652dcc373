"""Versions, contents, restoring, and the details of conflicts."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.gate.builders import joined, rows, trusted
from tests.integration.workspace.drift_builders import history, wipe
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import RunId, new_id


async def test_every_change_creates_a_version_with_its_kind_and_author(workspace: WorkspaceFixture) -> None:
    agent = replace(await trusted(workspace), run_id=RunId(new_id()))
    made = await workspace.result("write", path="/a.txt", content="one\n")
    edited = await workspace.call("edit", agent, path="/a.txt", old_string="one", new_string="one\ntwo")

    first, second = await history(workspace, made["file_id"])

    assert (first["version_id"], second["version_id"]) == (made["version_id"], edited.result["version_id"])
    assert all(UUID(version["version_id"]).version == 7 for version in (first, second))
    assert UUID(made["file_id"]).version == 7
    assert (first["number"], first["size"], first["line_count"], first["mode"]) == (1, 4, 1, "0644")
    assert (second["number"], second["size"], second["line_count"]) == (2, 8, 2)
    assert second["hash"] == sha256(b"one\ntwo\n").hexdigest() == edited.result["hash"]
    assert first["author"]["kind"] == "user"
    assert first["author"]["user_id"] == str(workspace.caller.user_id)
    assert second["author"] == {
        "kind": "agent",
        "user_id": str(workspace.caller.user_id),
        "agent_id": str(agent.agent_id),
        "run_id": str(agent.run_id),
        "call_id": str(edited.call_id),
    }
    assert first["created_at"] < second["created_at"]


async def test_content_is_stored_once_for_each_hash_and_workspace(workspace: WorkspaceFixture) -> None:
    other = replace(workspace, caller=await new_caller(workspace.engine))
    for one in (workspace, other):
        for path in ("/a.txt", "/b.txt"):
            await one.result("write", path=path, content="same\n")
        await one.result("write", path="/a.txt", content="same\n", overwrite=True)

    for one in (workspace, other):
        stored = await rows(one, "select sha256, size, encoding, body from toolcrib.blobs where workspace_id = %s")
        assert stored == [(sha256(b"same\n").digest(), 5, "raw", b"same\n")]


async def test_long_content_is_stored_compressed_and_read_back_completely(workspace: WorkspaceFixture) -> None:
    text = "all work and no play\n" * 10_000
    made = await workspace.result("write", path="/a.txt", content=text)

    [(size, encoding, stored)] = await rows(
        workspace, "select size, encoding, length(body) from toolcrib.blobs where workspace_id = %s"
    )
    assert (size, encoding) == (210_000, "zlib")
    assert stored < 21_000
    assert (await workspace.result("file_version", version_id=made["version_id"]))["content"] == text


@pytest.mark.parametrize(
    "value", [{"a": [1, 2.5, None, True], "é": "ü"}, [], {}, 0, False, None, 10**30, [[["deep"]]]], ids=repr
)
async def test_json_value_is_stored_as_text_and_returned_as_a_value(workspace: WorkspaceFixture, value: Any) -> None:
    made = await workspace.result("write", path="/a.json", content=value)

    on_disk = (workspace.project / "a.json").read_bytes()
    assert json.loads(on_disk) == value
    assert made["hash"] == sha256(on_disk).hexdigest()
    read = await workspace.result("read", path="/a.json")
    assert read["content"] == value
    assert type(read["content"]) is type(value)
    info = await workspace.result("file_info", path="/a.json")
    assert (info["size"], info["line_count"]) == (len(on_disk), on_disk.count(b"\n"))
    assert (await workspace.result("file_version", version_id=made["version_id"]))["content"] == value


async def test_conflict_names_who_changed_the_file_and_when(workspace: WorkspaceFixture) -> None:
    member = await joined(workspace, WorkspaceRole.MEMBER)
    agent = await trusted(workspace)
    running = replace(agent, run_id=RunId(new_id()))
    path = workspace.project / "a.txt"

    async def conflict_after(change: Any, reader: Any = None) -> str:
        read = await workspace.result("write", path="/a.txt", content=f"{new_id()}\n", overwrite=True)
        outcome = await change()
        assert outcome is None or outcome.succeeded
        edit = {"path": "/a.txt", "insert_line": 0, "insert_content": "x", "last_read_hash": read["hash"]}
        refused = await workspace.call("edit", reader, **edit)
        assert refused.error is not None
        assert refused.error.code == "CONFLICT"
        return refused.error.message

    def write_as(caller: Any) -> Any:
        return lambda: workspace.call("write", caller, path="/a.txt", content=f"{new_id()}", overwrite=True)

    async def by_hand() -> None:
        path.write_text("by hand\n")

    assert f"(by user {member.user_id}, 0 s ago)" in await conflict_after(write_as(member))
    assert f"(by agent {agent.agent_id}, 0 s ago)" in await conflict_after(write_as(agent))
    assert f"(by run {running.run_id}, 0 s ago)" in await conflict_after(write_as(running))
    assert "(by you, 0 s ago)" in await conflict_after(write_as(workspace.caller))
    assert f"(by user {workspace.caller.user_id}, " in await conflict_after(write_as(workspace.caller), agent)
    assert "(by a program outside Toolcrib, 0 s ago)" in await conflict_after(by_hand)
    message = await conflict_after(by_hand)
    assert message.startswith("/a.txt changed since you read it")
    assert message.endswith("Read it again, then repeat the edit.")


async def test_edit_with_the_current_hash_succeeds(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a\n")
    read = await workspace.result("read", path="/a.txt")
    edit = {"path": "/a.txt", "old_string": "a", "new_string": "b"}

    assert (await workspace.call("edit", **edit, last_read_hash=read["hash"].upper())).succeeded
    assert (await workspace.call("edit", path="/a.txt", old_string="b", new_string="c")).succeeded


async def test_conflict_over_an_untracked_file_names_an_external_author(workspace: WorkspaceFixture) -> None:
    (workspace.project / "a.txt").write_text("now\n")

    edit = {"path": "/a.txt", "old_string": "now", "new_string": "then", "last_read_hash": "0" * 64}
    refused = await workspace.call("edit", **edit)

    assert refused.error is not None
    assert "someone outside Toolcrib" in refused.error.message


async def test_earlier_version_is_restored_as_a_new_one(workspace: WorkspaceFixture) -> None:
    made = await workspace.result("write", path="/a.txt", content="one\n")
    await workspace.result("write", path="/a.txt", content="two\n", overwrite=True)

    await workspace.result("file_restore", file_id=made["file_id"], version_id=made["version_id"])

    assert (workspace.project / "a.txt").read_text() == "one\n"
    assert [version["hash"] for version in await history(workspace, made["file_id"])] == [
        sha256(text).hexdigest() for text in (b"one\n", b"two\n", b"one\n")
    ]


async def test_deleted_file_in_a_deleted_folder_is_restored_with_its_folder(workspace: WorkspaceFixture) -> None:
    (workspace.project / "d").mkdir()
    made = await workspace.result("write", path="/d/e/a.txt", content="kept\n")
    (workspace.project / "d" / "e" / "a.txt").chmod(0o600)
    await workspace.result("read", path="/d/e/a.txt")
    for path in ("/d/e/a.txt", "/d/e", "/d"):
        await workspace.result("rm", path=path)
    assert list(workspace.project.iterdir()) == []

    restored = await workspace.result("file_restore", file_id=made["file_id"])

    assert restored["path"] == "/d/e/a.txt"
    assert (workspace.project / "d" / "e" / "a.txt").read_text() == "kept\n"
    assert (workspace.project / "d" / "e" / "a.txt").stat().st_mode & 0o777 == 0o600
    read = await workspace.result("read", path="/d/e/a.txt")
    assert (read["content"], read["synced"]) == ("kept\n", True)
    assert [version["deleted"] for version in await history(workspace, made["file_id"])][-2:] == [True, False]


async def test_file_whose_folder_was_deleted_on_disk_is_restored_there(workspace: WorkspaceFixture) -> None:
    made = await workspace.result("write", path="/d/a.txt", content="kept\n")
    wipe(workspace.project / "d")
    assert (await workspace.result("ls"))["entries"] == []

    assert (await workspace.call("read", path="/d/a.txt")).error is not None
    await workspace.result("file_restore", file_id=made["file_id"])

    assert (workspace.project / "d" / "a.txt").read_text() == "kept\n"


async def test_file_is_not_restored_over_another(workspace: WorkspaceFixture) -> None:
    old = await workspace.result("write", path="/a.txt", content="old\n")
    await workspace.result("rm", path="/a.txt")
    await workspace.result("write", path="/a.txt", content="new\n")

    refused = await workspace.call("file_restore", file_id=old["file_id"])

    assert refused.error is not None
    assert refused.error.code == "CONFLICT"
    assert (workspace.project / "a.txt").read_text() == "new\n"


async def test_two_versions_are_compared(workspace: WorkspaceFixture) -> None:
    one = await workspace.result("write", path="/a.txt", content="same\nold\n")
    two = await workspace.result("write", path="/a.txt", content="same\nnew\nmore", overwrite=True)

    found = await workspace.result("file_compare", from_version=one["version_id"], to_version=two["version_id"])

    assert (found["added"], found["removed"]) == (2, 1)
    assert " same\n-old\n+new\n+more\n\\ No newline at end of file\n" in found["diff"]


@pytest.mark.parametrize("before", [0, -1, 2**31, 2**63, 10**30])
async def test_page_of_versions_may_start_anywhere(workspace: WorkspaceFixture, before: int) -> None:
    made = await workspace.result("write", path="/a.txt", content="a")

    outcome = await workspace.call("file_versions", file_id=made["file_id"], before=before)

    assert outcome.succeeded or (outcome.error is not None and outcome.error.code == "VALIDATION_ERROR")
