"""Changes outside the server: detected, kept as versions by ``external``, never silently overwritten."""

import os
from typing import Any

import pytest

from tests.acceptance.shapes import Says, refused, result_of, sha256_of
from tests.acceptance.workspace import Workspace


def test_a_change_on_disk_becomes_a_version_by_external(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.put_file("/a.md", "theirs\n")

    seen = workspace.result("read", path="/a.md")

    assert (seen["content"], seen["hash"], seen["synced"]) == ("theirs\n", sha256_of("theirs\n"), True)
    assert workspace.history(file_id) == [("user", "ours\n"), ("external", "theirs\n")]
    newest = workspace.versions(file_id)[0]
    assert newest["author"] == {"kind": "external", "user_id": None, "agent_id": None, "run_id": None, "call_id": None}


def test_a_change_that_keeps_size_and_mtime_is_detected(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    file = workspace.on_disk("/a.md")
    before = file.stat()
    with file.open("r+") as opened:
        opened.write("them\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert workspace.result("read", path="/a.md")["content"] == "them\n"
    assert workspace.history(file_id) == [("user", "ours\n"), ("external", "them\n")]


def test_a_new_mtime_alone_is_no_change(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    os.utime(workspace.on_disk("/a.md"))

    workspace.result("read", path="/a.md")
    workspace.result("file_info", path="/a.md")

    assert workspace.history(file_id) == [("user", "ours\n")]


def test_overwriting_keeps_an_undetected_change(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.put_file("/a.md", "theirs\n")

    workspace.result("write", path="/a.md", content="mine\n", overwrite=True)

    assert workspace.history(file_id) == [("user", "ours\n"), ("external", "theirs\n"), ("user", "mine\n")]


def test_edit_works_on_the_content_on_disk(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.put_file("/a.md", "ours and theirs\n")

    workspace.result("edit", path="/a.md", old_string="ours and", new_string="only")

    assert workspace.history(file_id) == [
        ("user", "ours\n"),
        ("external", "ours and theirs\n"),
        ("user", "only theirs\n"),
    ]


def test_rm_keeps_an_undetected_change(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.put_file("/a.md", "theirs\n")

    workspace.result("rm", path="/a.md")

    assert workspace.history(file_id) == [("user", "ours\n"), ("external", "theirs\n"), ("user", None)]
    result_of(workspace.post(f"/files/{file_id}/restore", {}))
    assert workspace.on_disk("/a.md").read_text() == "theirs\n"


def test_mv_keeps_an_undetected_change(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.put_file("/a.md", "theirs\n")

    workspace.result("mv", source="/a.md", destination="/b.md")

    assert workspace.history(file_id) == [("user", "ours\n"), ("external", "theirs\n"), ("user", "theirs\n")]
    assert workspace.on_disk("/b.md").read_text() == "theirs\n"


def test_mv_of_a_folder_keeps_undetected_changes(workspace: Workspace) -> None:
    file_id = workspace.write("/src/a.md", "ours\n")["file_id"]
    workspace.put_file("/src/a.md", "theirs\n")

    workspace.result("mv", source="/src", destination="/lib")

    assert workspace.result("read", path="/lib/a.md")["content"] == "theirs\n"
    authors = [author for author, content in workspace.history(file_id) if content == "theirs\n"]
    assert "external" in authors


def test_mv_of_a_folder_records_deletions_on_disk(workspace: Workspace) -> None:
    gone = workspace.write("/src/a.md", "a\n")["file_id"]
    workspace.write("/src/b.md", "b\n")
    workspace.on_disk("/src/a.md").unlink()

    workspace.result("mv", source="/src", destination="/lib")

    assert workspace.names(recursive=True) == ["/lib", "/lib/b.md"]
    assert workspace.history(gone) == [("user", "a\n"), ("external", None)]


def test_restore_keeps_an_undetected_change(workspace: Workspace) -> None:
    first = workspace.write("/a.md", "ours\n")
    workspace.put_file("/a.md", "theirs\n")

    result_of(workspace.post(f"/files/{first['file_id']}/restore", {"version_id": first["version_id"]}))

    assert workspace.on_disk("/a.md").read_text() == "ours\n"
    assert workspace.history(first["file_id"]) == [("user", "ours\n"), ("external", "theirs\n"), ("user", "ours\n")]


def test_a_file_deleted_on_disk_is_gone_and_can_be_restored(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.on_disk("/a.md").unlink()

    refused(workspace.call("read", path="/a.md"), 404, "NOT_FOUND", "File not found: /a.md")
    assert workspace.names() == []
    assert workspace.history(file_id) == [("user", "ours\n"), ("external", None)]
    result_of(workspace.post(f"/files/{file_id}/restore", {}))
    assert workspace.on_disk("/a.md").read_text() == "ours\n"


def test_a_path_freed_on_disk_can_be_written_again(workspace: Workspace) -> None:
    old = workspace.write("/a.md", "ours\n")["file_id"]
    workspace.on_disk("/a.md").unlink()

    new = workspace.write("/a.md", "new\n")["file_id"]

    assert new != old
    assert workspace.history(old) == [("user", "ours\n"), ("external", None)]


def test_a_mode_changed_on_disk_becomes_a_version_and_is_kept(workspace: Workspace) -> None:
    file_id = workspace.write("/run.sh", "one\n")["file_id"]
    workspace.on_disk("/run.sh").chmod(0o755)

    workspace.result("edit", path="/run.sh", old_string="one", new_string="two")

    assert [(v["author"]["kind"], v["mode"]) for v in workspace.versions(file_id)] == [
        ("user", "0755"),
        ("external", "0755"),
        ("user", "0644"),
    ]
    assert workspace.on_disk("/run.sh").stat().st_mode & 0o777 == 0o755


def test_a_file_replaced_by_a_folder_on_disk_is_detected(workspace: Workspace) -> None:
    workspace.write("/a", "ours\n")
    workspace.on_disk("/a").unlink()
    workspace.put_file("/a/b.md", "theirs\n")

    response = workspace.call("read", path="/a")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("folder")})
    assert workspace.result("file_info", path="/a")["file_type"] == "folder"
    assert workspace.names(path="/a") == ["/a/b.md"]


# Neither a file nor a folder


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("write", {"path": "/pipe", "content": "x"}),
        ("touch", {"path": "/pipe"}),
        ("mkdir", {"path": "/pipe"}),
        ("mv", {"source": "/a.md", "destination": "/pipe"}),
    ],
)
def test_a_special_file_is_never_overwritten(workspace: Workspace, tool: str, args: dict[str, Any]) -> None:
    workspace.write("/a.md", "x")
    os.mkfifo(workspace.on_disk("/pipe"))

    refused(workspace.call(tool, **args), 409, "CONFLICT", Says("/pipe", "special file"))
    assert workspace.on_disk("/pipe").is_fifo()
    assert workspace.names() == ["/a.md"]


@pytest.mark.parametrize("name", ["pipe", "back\\slash"])
def test_a_folder_with_an_unlisted_entry_is_not_empty(workspace: Workspace, name: str) -> None:
    workspace.result("mkdir", path="/a")
    os.mkfifo(workspace.on_disk(f"/a/{name}"))

    refused(workspace.call("rm", path="/a"), 409, "CONFLICT", Says("not empty", "/a"))
    assert workspace.on_disk(f"/a/{name}").is_fifo()


@pytest.mark.parametrize("target", ["../outside.txt", "inside.txt", "nowhere"])
def test_a_link_is_neither_followed_nor_replaced_and_can_be_removed(workspace: Workspace, target: str) -> None:
    outside, inside = workspace.project.parent / "outside.txt", workspace.put_file("/inside.txt", "inside")
    outside.write_text("outside")
    workspace.on_disk("/link").symlink_to(target)

    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "/link"}),
        ("write", {"path": "/link", "content": "x", "overwrite": True}),
        ("edit", {"path": "/link", "old_string": "side", "new_string": "x"}),
    ]
    for tool, args in calls:
        refused(workspace.call(tool, **args), 400, "VALIDATION_ERROR", Says("/link", "symbolic link"))
    assert os.readlink(workspace.on_disk("/link")) == target
    assert (outside.read_text(), inside.read_text()) == ("outside", "inside")
    assert workspace.result("rm", path="/link")["path"] == "/link"
    assert workspace.names() == ["/inside.txt"]
