"""External changes on disk are detected, tracked as external, and never overwritten silently."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import rows
from tests.integration.workspace.drift_builders import CONTENT, OTHERWISE, authors, history, wipe


@pytest.mark.parametrize("how", CONTENT)
async def test_file_changed_on_disk_is_read_as_it_is_and_tracked_as_external(
    workspace: WorkspaceFixture, how: str
) -> None:
    file_id = (await workspace.result("write", path="/d/a.txt", content="mine!\n"))["file_id"]
    await workspace.result("read", path="/d/a.txt")
    path = workspace.project / "d" / "a.txt"

    CONTENT[how](path)

    read = await workspace.result("read", path="/d/a.txt")
    assert (read["content"], read["synced"]) == (path.read_text(), True)
    assert await authors(workspace, file_id) == ["user", "external"]
    first, second = await history(workspace, file_id)
    assert (await workspace.result("file_version", version_id=first["version_id"]))["content"] == "mine!\n"
    assert second["hash"] == read["hash"]
    # Once tracked, it is not tracked again.
    await workspace.result("read", path="/d/a.txt")
    assert await authors(workspace, file_id) == ["user", "external"]


@pytest.mark.parametrize("how", CONTENT)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write", {"path": "/a.txt", "content": "mine again\n", "overwrite": True}),
        ("edit", {"path": "/a.txt", "insert_line": 0, "insert_content": "mine again"}),
        ("touch", {"path": "/a.txt"}),
        ("rm", {"path": "/a.txt"}),
        ("mv", {"source": "/a.txt", "destination": "/b.txt"}),
    ],
    ids=["write", "edit", "touch", "rm", "mv"],
)
async def test_external_content_is_in_the_history_before_it_is_overwritten(
    workspace: WorkspaceFixture, how: str, tool: str, arguments: dict[str, Any]
) -> None:
    file_id = (await workspace.result("write", path="/a.txt", content="mine!\n"))["file_id"]
    CONTENT[how](workspace.project / "a.txt")
    theirs = (workspace.project / "a.txt").read_text()

    await workspace.result(tool, **arguments)

    assert await authors(workspace, file_id) == ["user", "external", "user"]
    second = (await history(workspace, file_id))[1]
    assert (await workspace.result("file_version", version_id=second["version_id"]))["content"] == theirs


async def test_changed_mode_is_tracked_and_kept(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/run.sh", content="#!/bin/sh\n"))["file_id"]
    (workspace.project / "run.sh").chmod(0o755)

    await workspace.result("edit", path="/run.sh", insert_line=1, insert_content="echo")

    assert await authors(workspace, file_id) == ["user", "external", "user"]
    assert [version["mode"] for version in await history(workspace, file_id)] == ["0644", "0755", "0755"]
    assert (workspace.project / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_file_deleted_on_disk_is_deleted_in_the_history_and_can_be_restored(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a.txt", content="mine\n"))["file_id"]
    OTHERWISE["deleted"](workspace.project / "a.txt")

    outcome = await workspace.call("read", path="/a.txt")

    assert outcome.error is not None
    assert outcome.error.code == "NOT_FOUND"
    assert await authors(workspace, file_id) == ["user", "external"]
    assert [file["file_id"] for file in (await workspace.result("deleted_files"))["files"]] == [file_id]
    await workspace.result("file_restore", file_id=file_id)
    assert (workspace.project / "a.txt").read_text() == "mine\n"


async def test_path_deleted_on_disk_is_free_for_a_new_file(workspace: WorkspaceFixture) -> None:
    old = await workspace.result("write", path="/a.txt", content="mine\n")
    OTHERWISE["deleted"](workspace.project / "a.txt")

    new = await workspace.result("write", path="/a.txt", content="new\n")

    assert new["file_id"] != old["file_id"]
    assert await authors(workspace, old["file_id"]) == ["user", "external"]
    assert (workspace.project / "a.txt").read_text() == "new\n"


async def test_file_replaced_by_a_folder_becomes_a_folder(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a", content="mine\n"))["file_id"]
    OTHERWISE["folder now"](workspace.project / "a")

    write = await workspace.call("write", path="/a", content="x", overwrite=True)

    assert write.error is not None
    assert write.error.code == "VALIDATION_ERROR"
    assert (workspace.project / "a" / "inside").read_text() == "theirs\n"
    info = await workspace.result("file_info", path="/a")
    assert (info["file_type"], info["synced"]) == ("folder", True)
    assert [version["kind"] for version in await history(workspace, file_id)] == ["file", "folder"]
    assert (await workspace.result("read", path="/a/inside"))["content"] == "theirs\n"


async def test_file_replaced_by_a_link_is_not_followed_and_not_replaced(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a", content="mine\n"))["file_id"]
    OTHERWISE["link now"](workspace.project / "a")

    for tool, arguments in (
        ("read", {"path": "/a"}),
        ("write", {"path": "/a", "content": "x", "overwrite": True}),
        ("edit", {"path": "/a", "insert_line": 0, "insert_content": "x"}),
    ):
        outcome = await workspace.call(tool, **arguments)
        assert outcome.error is not None, tool
        assert outcome.error.code == "VALIDATION_ERROR"

    assert os.readlink(workspace.project / "a") == "elsewhere"
    assert [version["kind"] for version in await history(workspace, file_id)] == ["file", "link"]
    assert await authors(workspace, file_id) == ["user", "external"]


async def test_file_replaced_by_a_fifo_is_deleted_and_its_path_is_not_reused(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a", content="mine\n"))["file_id"]
    (workspace.project / "a").unlink()
    os.mkfifo(workspace.project / "a")

    outcome = await workspace.call("write", path="/a", content="x", overwrite=True)

    assert outcome.error is not None
    assert outcome.error.code == "CONFLICT"
    assert await authors(workspace, file_id) == ["user", "external"]
    assert (workspace.project / "a").is_fifo()


async def test_folder_deleted_on_disk_deletes_its_children(workspace: WorkspaceFixture) -> None:
    ids = {
        path: (await workspace.result("write", path=path, content=path))["file_id"]
        for path in ("/d/a.txt", "/d/e/b.txt", "/dd.txt")
    }
    wipe(workspace.project / "d")

    listed = await workspace.result("ls", path="/", recursive=True)
    outcome = await workspace.call("ls", path="/d")

    assert [entry["path"] for entry in listed["entries"]] == ["/dd.txt"]
    assert outcome.error is not None
    assert outcome.error.code == "NOT_FOUND"
    assert {path: (await authors(workspace, id_))[1:] for path, id_ in ids.items()} == {
        "/d/a.txt": ["external"],
        "/d/e/b.txt": ["external"],
        "/dd.txt": [],
    }
    live = await rows(workspace, "select path from toolcrib.files where not deleted and workspace_id = %s")
    assert live == [("/dd.txt",)]


async def test_folder_replaced_by_a_file_deletes_its_children(workspace: WorkspaceFixture) -> None:
    child = (await workspace.result("write", path="/d/a.txt", content="a"))["file_id"]
    wipe(workspace.project / "d")
    (workspace.project / "d").write_text("a file now\n")

    assert (await workspace.result("read", path="/d"))["content"] == "a file now\n"

    assert (await workspace.call("read", path="/d/a.txt")).error is not None
    assert await authors(workspace, child) == ["user", "external"]
    live = await rows(workspace, "select path, kind from toolcrib.files where not deleted and workspace_id = %s")
    assert live == [("/d", "file")]


async def test_change_in_the_same_clock_tick_as_our_own_write_is_not_overwritten(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a.txt", content="mine!\n"))["file_id"]
    path = workspace.project / "a.txt"
    path.write_text("their\n")
    # As if both had happened within one tick of the kernel's clock: `stat` returns the same for both.
    seen = path.stat()
    await rows(
        workspace,
        "update toolcrib.files set fingerprint = %s where workspace_id = %s",
        [seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ctime_ns + 1],
    )

    await workspace.result("write", path="/a.txt", content="mine again\n", overwrite=True)

    assert await authors(workspace, file_id) == ["user", "external", "user"]
    theirs = (await history(workspace, file_id))[1]
    assert (await workspace.result("file_version", version_id=theirs["version_id"]))["content"] == "their\n"


@pytest.mark.parametrize("tool", ["mv", "rm"])
async def test_child_deleted_on_disk_does_not_block_changes_of_its_folder(
    workspace: WorkspaceFixture, tool: str
) -> None:
    child = (await workspace.result("write", path="/d/a.txt", content="a"))["file_id"]
    (workspace.project / "d" / "a.txt").unlink()

    arguments = {"mv": {"source": "/d", "destination": "/e"}, "rm": {"path": "/d"}}[tool]
    await workspace.result(tool, **arguments)

    assert not (workspace.project / "d").exists()
    assert (await workspace.call("read", path="/d/a.txt")).error is not None
    assert (await workspace.call("read", path="/e/a.txt")).error is not None
    assert await authors(workspace, child) == ["user", "external"]


# Untracked files


def lay(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


async def test_untracked_file_is_listed_and_read_without_being_imported(workspace: WorkspaceFixture) -> None:
    lay(workspace.project, src__main="print()\n")

    [folder] = (await workspace.result("ls"))["entries"]
    read = await workspace.result("read", path="/src/main")
    info = await workspace.result("file_info", path="/src/main")

    assert (folder["path"], folder["id"], folder["synced"]) == ("/src", None, False)
    assert (read["content"], read["synced"]) == ("print()\n", False)
    assert (info["synced"], info["line_count"], info["hash"]) == (False, 1, read["hash"])
    assert await rows(workspace, "select id from toolcrib.files where workspace_id = %s") == []


@pytest.mark.parametrize(
    ("tool", "arguments", "kinds"),
    [
        ("edit", {"path": "/src/main", "insert_line": 0, "insert_content": "x"}, ["external", "user"]),
        ("write", {"path": "/src/main", "content": "x", "overwrite": True}, ["external", "user"]),
        ("touch", {"path": "/src/main"}, ["external", "user"]),
        ("mv", {"source": "/src/main", "destination": "/src/other"}, ["external", "user"]),
    ],
    ids=["edit", "write", "touch", "mv"],
)
async def test_changing_an_untracked_file_first_imports_it_with_its_folders(
    workspace: WorkspaceFixture, tool: str, arguments: dict[str, Any], kinds: list[str]
) -> None:
    lay(workspace.project, src__main="print()\n", src__beside="")

    await workspace.result(tool, **arguments)

    known = dict(await rows(workspace, "select path, id::text from toolcrib.files where workspace_id = %s"))
    path = arguments.get("destination", "/src/main")
    assert set(known) == {"/src", path}
    assert await authors(workspace, known["/src"]) == ["external"]
    assert await authors(workspace, known[path]) == kinds
    first = (await history(workspace, known[path]))[0]
    assert (await workspace.result("file_version", version_id=first["version_id"]))["content"] == "print()\n"


async def test_deleting_an_untracked_file_returns_no_id_and_keeps_its_bytes(workspace: WorkspaceFixture) -> None:
    lay(workspace.project, old="precious\n")

    removed = await workspace.result("rm", path="/old")

    assert removed["file_id"] is None
    assert not (workspace.project / "old").exists()
    [gone] = (await workspace.result("deleted_files"))["files"]
    await workspace.result("file_restore", file_id=gone["file_id"])
    assert (workspace.project / "old").read_text() == "precious\n"


async def test_mkdir_tracks_an_untracked_folder(workspace: WorkspaceFixture) -> None:
    (workspace.project / "made" / "by-hand").mkdir(parents=True)

    made = await workspace.result("mkdir", path="/made/by-hand")

    assert await authors(workspace, made["file_id"]) == ["external"]
    listed = (await workspace.result("ls", recursive=True))["entries"]
    assert [(entry["path"], entry["synced"]) for entry in listed] == [("/made", True), ("/made/by-hand", True)]
