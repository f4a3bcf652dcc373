"""Undo of calls: what is restored, what is left alone, and what is reported."""

import os
from uuid import uuid4

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import trusted
from tests.integration.workspace.undo_builders import snapshot
from toolcrib.core.errors import NotFound, ProtectedPath


async def done(workspace: WorkspaceFixture, tool: str, **arguments: object) -> str:
    outcome = await workspace.call(tool, **arguments)
    assert outcome.succeeded, outcome.error
    return str(outcome.call_id)


async def test_write_change_and_deletion_are_undone_together(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/kept.md", content="one\n")
    await done(workspace, "write", path="/gone.md", content="two\n")
    before = snapshot(workspace.project)
    calls = [
        await done(workspace, "write", path="/new/deep.md", content="three\n"),
        await done(workspace, "edit", path="/kept.md", old_string="one", new_string="ONE"),
        await done(workspace, "rm", path="/gone.md"),
    ]

    result = await workspace.result("undo", calls=calls)

    assert snapshot(workspace.project) == before
    assert result["conflicts"] == []
    assert {(change["path"], change["change"]) for change in result["changes"]} == {
        ("/new", "deleted"),
        ("/new/deep.md", "deleted"),
        ("/kept.md", "modified"),
        ("/gone.md", "created"),
    }


async def test_swapped_files_are_swapped_back(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/a", content="A")
    await done(workspace, "write", path="/b", content="B")
    before = snapshot(workspace.project)
    calls = [
        await done(workspace, "mv", source="/a", destination="/t"),
        await done(workspace, "mv", source="/b", destination="/a"),
        await done(workspace, "mv", source="/t", destination="/b"),
    ]

    await workspace.result("undo", calls=calls)

    assert snapshot(workspace.project) == before


async def test_file_and_folder_of_the_same_path_are_not_both_restored_there(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/c", content="a file")
    removed = await done(workspace, "rm", path="/c")
    await done(workspace, "write", path="/c/x", content="someone else's")
    moved = await done(workspace, "mv", source="/c", destination="/b")
    after = snapshot(workspace.project)

    outcome = await workspace.call("undo", calls=[removed, moved])

    assert outcome.succeeded, outcome.error
    assert {conflict["path"] for conflict in outcome.result["conflicts"]} == {"/b", "/b/x"}
    assert snapshot(workspace.project) == {**after, "c": ("file", 0o644, b"a file")}
    await workspace.result("undo", calls=[str(outcome.call_id)])
    assert snapshot(workspace.project) == after


async def test_moved_folder_is_restored_with_its_contents(workspace: WorkspaceFixture) -> None:
    for name in ("x", "y/z"):
        await done(workspace, "write", path=f"/src/{name}", content=name)
    (workspace.project / "src" / "unseen").write_text("only the disk knows it")
    before = snapshot(workspace.project)
    call = await done(workspace, "mv", source="/src", destination="/lib")

    await workspace.result("undo", calls=[call])

    assert snapshot(workspace.project) == before


@pytest.mark.parametrize("change", ["write", "edit"])
async def test_moved_folder_stays_with_what_others_changed_in_it(workspace: WorkspaceFixture, change: str) -> None:
    (workspace.project / "src").mkdir()
    (workspace.project / "src" / "unseen").write_text("only the disk knows it")
    call = await done(workspace, "mv", source="/src", destination="/lib")
    if change == "write":
        await done(workspace, "write", path="/lib/new", content="someone else's")
    else:
        await done(workspace, "edit", path="/lib/unseen", insert_line=0, insert_content="someone else's\n")
    now = snapshot(workspace.project)

    result = await workspace.result("undo", calls=[call])

    assert {conflict["path"] for conflict in result["conflicts"]} == {"/lib"}
    assert snapshot(workspace.project) == now


@pytest.mark.parametrize(("unseen", "put"), [("x", "x"), ("x", "x/y"), ("x/y", "x")])
async def test_untracked_file_is_not_overwritten_where_its_folder_moves_it(
    workspace: WorkspaceFixture, unseen: str, put: str
) -> None:
    await done(workspace, "mkdir", path="/src")
    path = workspace.project / "src" / unseen
    path.parent.mkdir(exist_ok=True)
    path.write_text("only the disk knows it")
    moved = await done(workspace, "mv", source="/src", destination="/lib")
    await done(workspace, "write", path=f"/src/{put}", content="someone else's")
    removed = await done(workspace, "rm", path=f"/src/{put}")
    if "/" in put:
        await done(workspace, "rm", path="/src/x")
    emptied = await done(workspace, "rm", path="/src")

    result = await workspace.result("undo", calls=[moved, removed, emptied])

    assert f"/src/{put}" in {conflict["path"] for conflict in result["conflicts"]}
    held = {body for _, _, body in snapshot(workspace.project).values()}
    assert b"only the disk knows it" in held


async def test_undoing_the_undo_is_a_redo(workspace: WorkspaceFixture) -> None:
    first = await done(workspace, "write", path="/a", content="A")
    second = await done(workspace, "mv", source="/a", destination="/b")
    after = snapshot(workspace.project)

    undone = await workspace.result("undo", calls=[first, second])
    assert snapshot(workspace.project) == {}
    redone = await workspace.result("undo", calls=[undone["call_id"]])

    assert snapshot(workspace.project) == after
    assert redone["conflicts"] == []


async def test_partly_undone_call_is_undone_completely_without_conflict(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/a.md", content="zero\n")
    before = snapshot(workspace.project)
    calls = [
        await done(workspace, "edit", path="/a.md", old_string="zero", new_string="one"),
        await done(workspace, "edit", path="/a.md", old_string="one", new_string="two"),
    ]
    undone = await done(workspace, "undo", calls=calls[1:])
    await done(workspace, "undo", calls=[undone])
    await done(workspace, "undo", calls=calls[1:])

    result = await workspace.result("undo", calls=calls)

    assert result["conflicts"] == []
    assert snapshot(workspace.project) == before
    again = await workspace.result("undo", calls=calls)
    assert (again["changes"], again["conflicts"]) == ([], [])


async def test_undo_that_covers_more_calls_counts_as_another_change(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/a.md", content="zero\n")
    ours = await done(workspace, "edit", path="/a.md", old_string="zero", new_string="one")
    theirs = await done(workspace, "edit", path="/a.md", old_string="one", new_string="two")
    redone = await done(workspace, "undo", calls=[await done(workspace, "undo", calls=[ours, theirs])])
    assert redone

    result = await workspace.result("undo", calls=[ours])

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/a.md"]


async def test_dry_run_shows_the_same_and_changes_nothing(workspace: WorkspaceFixture) -> None:
    call = await done(workspace, "write", path="/a", content="A")
    before = snapshot(workspace.project)

    shown = await workspace.result("undo", calls=[call], dry_run=True)
    assert snapshot(workspace.project) == before
    real = await workspace.result("undo", calls=[call])

    assert shown["changes"] == real["changes"]
    assert snapshot(workspace.project) == {}


async def test_later_change_by_another_is_reported_with_both_versions_and_left_alone(
    workspace: WorkspaceFixture,
) -> None:
    call = await done(workspace, "write", path="/a", content="ours\n")
    other = await done(workspace, "edit", path="/a", old_string="ours", new_string="theirs")

    result = await workspace.result("undo", calls=[call])

    assert result["changes"] == []
    [conflict] = result["conflicts"]
    assert conflict["path"] == "/a"
    assert conflict["ours"]["author"]["call_id"] == call
    assert conflict["theirs"]["author"]["call_id"] == other
    assert (workspace.project / "a").read_text() == "theirs\n"


async def test_undetected_change_on_disk_counts_as_anothers(workspace: WorkspaceFixture) -> None:
    call = await done(workspace, "write", path="/a", content="ours\n")
    (workspace.project / "a").write_text("edited by hand\n")

    result = await workspace.result("undo", calls=[call])

    assert [conflict["theirs"]["author"]["kind"] for conflict in result["conflicts"]] == ["external"]
    assert (workspace.project / "a").read_text() == "edited by hand\n"


async def test_force_also_undoes_changes_by_others_and_keeps_them_in_the_history(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a", content="base\n"))["file_id"]
    call = await done(workspace, "edit", path="/a", old_string="base", new_string="ours")
    await done(workspace, "edit", path="/a", old_string="ours", new_string="theirs")

    await workspace.result("undo", calls=[call], force=True)

    assert (workspace.project / "a").read_text() == "base\n"
    versions = (await workspace.result("file_versions", file_id=file_id))["versions"]
    assert len(versions) == 4


async def test_change_by_another_without_a_new_content_is_no_conflict(workspace: WorkspaceFixture) -> None:
    call = await done(workspace, "write", path="/a", content="ours\n")
    await done(workspace, "touch", path="/a")

    result = await workspace.result("undo", calls=[call])

    assert result["conflicts"] == []
    assert snapshot(workspace.project) == {}


async def test_folder_with_another_authors_file_stays(workspace: WorkspaceFixture) -> None:
    call = await done(workspace, "mkdir", path="/d")
    await done(workspace, "write", path="/d/theirs", content="x")

    result = await workspace.result("undo", calls=[call])

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/d"]
    assert (workspace.project / "d" / "theirs").read_text() == "x"


async def test_deleted_file_is_not_restored_over_another_at_its_path(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/a", content="old\n")
    call = await done(workspace, "rm", path="/a")
    await done(workspace, "write", path="/a", content="new\n")

    result = await workspace.result("undo", calls=[call])

    assert [conflict["reason"] for conflict in result["conflicts"]] == ["Another file exists at its old path."]
    assert (workspace.project / "a").read_text() == "new\n"


async def test_modes_and_links_are_restored(workspace: WorkspaceFixture) -> None:
    (workspace.project / "run.sh").write_text("true\n")
    (workspace.project / "run.sh").chmod(0o755)
    os.symlink("run.sh", workspace.project / "link")
    before = snapshot(workspace.project)
    calls = [await done(workspace, "rm", path="/run.sh"), await done(workspace, "rm", path="/link")]

    await workspace.result("undo", calls=calls)

    assert snapshot(workspace.project) == before


async def test_calls_without_changes_are_reported(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("undo", calls=[str(uuid4())])
    assert isinstance(outcome.error, NotFound)


async def test_agent_undoes_only_its_own_calls(workspace: WorkspaceFixture) -> None:
    call = await done(workspace, "write", path="/a", content="a person's")
    agent = await workspace.agent(
        trust="autonomous", toolsets=("workspace", "history"), tool_permissions={"undo": {"allowed": True}}
    )

    outcome = await workspace.call("undo", agent, calls=[call])

    assert isinstance(outcome.error, NotFound)
    assert (workspace.project / "a").exists()


async def test_agent_cannot_restore_a_protected_file(workspace: WorkspaceFixture) -> None:
    agent = await workspace.agent(
        trust="autonomous",
        toolsets=("workspace", "history"),
        tool_permissions={name: {"allowed": True} for name in ("undo", "write", "mv")},
        unprotected_paths=(".env",),
    )
    outcome = await workspace.call("write", agent, path="/.env", content="KEY=1")
    assert outcome.succeeded
    bound = await workspace.agent(
        trust="autonomous", toolsets=("history",), tool_permissions={"undo": {"allowed": True}}
    )

    refused = await workspace.call("undo", bound, calls=[str(outcome.call_id)])

    assert isinstance(refused.error, NotFound | ProtectedPath)
    assert (workspace.project / ".env").read_text() == "KEY=1"


async def test_last_change_is_undone_and_redone_without_its_id(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/a", content="one")
    second = await done(workspace, "write", path="/a", content="two", overwrite=True)

    previewed = await workspace.result("undo", last="call", dry_run=True)
    undone = await workspace.result("undo", last="run")
    assert previewed["undone"] == undone["undone"] == {"calls": [second]}
    assert (workspace.project / "a").read_text() == "one"

    redone = await workspace.result("undo", last="undo")
    assert redone["undone"] == {"calls": [undone["call_id"]]}
    assert (workspace.project / "a").read_text() == "two"

    await workspace.result("undo", last="call")
    await workspace.result("undo", last="call")
    assert not (workspace.project / "a").exists()
    nothing = await workspace.call("undo", last="call")
    assert isinstance(nothing.error, NotFound)


async def test_agent_does_not_undo_the_last_change_of_others(workspace: WorkspaceFixture) -> None:
    permissions = {name: {"allowed": True} for name in ("undo", "write")}
    agent = await trusted(workspace, tool_permissions=permissions)
    assert (await workspace.call("write", agent, path="/a", content="agent")).succeeded
    await done(workspace, "write", path="/b", content="person")

    outcome = await workspace.call("undo", agent, last="call")

    assert outcome.succeeded, outcome.error
    assert snapshot(workspace.project).keys() == {"b"}


async def test_agent_does_not_undo_again_what_a_person_has_undone(workspace: WorkspaceFixture) -> None:
    permissions = {name: {"allowed": True} for name in ("undo", "write")}
    agent = await trusted(workspace, tool_permissions=permissions)
    written = await workspace.call("write", agent, path="/a", content="agent")
    await done(workspace, "undo", calls=[str(written.call_id)])

    assert isinstance((await workspace.call("undo", agent, last="call")).error, NotFound)
    assert isinstance((await workspace.call("undo", agent, last="undo")).error, NotFound)
    assert not (workspace.project / "a").exists()
