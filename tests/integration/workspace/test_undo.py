"""Undo of calls: what is restored, what is left alone, and what is reported."""

import os
from uuid import uuid4

import pytest

from tests.integration.conftest import Crib
from tests.integration.workspace.undo_builders import snapshot
from toolcrib.core.errors import NotFound, ProtectedPath

pytestmark = pytest.mark.req("WS-12", part="undo of calls of file tools")


async def done(crib: Crib, tool: str, **arguments: object) -> str:
    outcome = await crib.call(tool, **arguments)
    assert outcome.succeeded, outcome.error
    return str(outcome.call_id)


async def test_write_change_and_deletion_are_undone_together(crib: Crib) -> None:
    await done(crib, "write", path="/kept.md", content="one\n")
    await done(crib, "write", path="/gone.md", content="two\n")
    before = snapshot(crib.project)
    calls = [
        await done(crib, "write", path="/new/deep.md", content="three\n"),
        await done(crib, "edit", path="/kept.md", old_string="one", new_string="ONE"),
        await done(crib, "rm", path="/gone.md"),
    ]

    result = await crib.result("undo", calls=calls)

    assert snapshot(crib.project) == before
    assert result["conflicts"] == []
    assert {(change["path"], change["change"]) for change in result["changes"]} == {
        ("/new", "deleted"),
        ("/new/deep.md", "deleted"),
        ("/kept.md", "modified"),
        ("/gone.md", "created"),
    }


async def test_swapped_files_are_swapped_back(crib: Crib) -> None:
    await done(crib, "write", path="/a", content="A")
    await done(crib, "write", path="/b", content="B")
    before = snapshot(crib.project)
    calls = [
        await done(crib, "mv", source="/a", destination="/t"),
        await done(crib, "mv", source="/b", destination="/a"),
        await done(crib, "mv", source="/t", destination="/b"),
    ]

    await crib.result("undo", calls=calls)

    assert snapshot(crib.project) == before


async def test_file_and_folder_of_the_same_path_are_not_both_restored_there(crib: Crib) -> None:
    await done(crib, "write", path="/c", content="a file")
    removed = await done(crib, "rm", path="/c")
    await done(crib, "write", path="/c/x", content="someone else's")
    moved = await done(crib, "mv", source="/c", destination="/b")
    after = snapshot(crib.project)

    outcome = await crib.call("undo", calls=[removed, moved])

    assert outcome.succeeded, outcome.error
    assert {conflict["path"] for conflict in outcome.result["conflicts"]} == {"/b", "/b/x"}
    assert snapshot(crib.project) == {**after, "c": ("file", 0o644, b"a file")}
    await crib.result("undo", calls=[str(outcome.call_id)])
    assert snapshot(crib.project) == after


async def test_moved_folder_is_restored_with_its_contents(crib: Crib) -> None:
    for name in ("x", "y/z"):
        await done(crib, "write", path=f"/src/{name}", content=name)
    (crib.project / "src" / "unseen").write_text("only the disk knows it")
    before = snapshot(crib.project)
    call = await done(crib, "mv", source="/src", destination="/lib")

    await crib.result("undo", calls=[call])

    assert snapshot(crib.project) == before


@pytest.mark.parametrize(("unseen", "put"), [("x", "x"), ("x", "x/y"), ("x/y", "x")])
async def test_untracked_file_is_not_overwritten_where_its_folder_moves_it(crib: Crib, unseen: str, put: str) -> None:
    await done(crib, "mkdir", path="/src")
    path = crib.project / "src" / unseen
    path.parent.mkdir(exist_ok=True)
    path.write_text("only the disk knows it")
    moved = await done(crib, "mv", source="/src", destination="/lib")
    await done(crib, "write", path=f"/src/{put}", content="someone else's")
    removed = await done(crib, "rm", path=f"/src/{put}")
    if "/" in put:
        await done(crib, "rm", path="/src/x")
    emptied = await done(crib, "rm", path="/src")

    result = await crib.result("undo", calls=[moved, removed, emptied])

    assert f"/src/{put}" in {conflict["path"] for conflict in result["conflicts"]}
    held = {body for _, _, body in snapshot(crib.project).values()}
    assert b"only the disk knows it" in held


async def test_undoing_the_undo_is_a_redo(crib: Crib) -> None:
    first = await done(crib, "write", path="/a", content="A")
    second = await done(crib, "mv", source="/a", destination="/b")
    after = snapshot(crib.project)

    undone = await crib.result("undo", calls=[first, second])
    assert snapshot(crib.project) == {}
    redone = await crib.result("undo", calls=[undone["call_id"]])

    assert snapshot(crib.project) == after
    assert redone["conflicts"] == []


async def test_partly_undone_call_is_undone_completely_without_conflict(crib: Crib) -> None:
    await done(crib, "write", path="/a.md", content="zero\n")
    before = snapshot(crib.project)
    calls = [
        await done(crib, "edit", path="/a.md", old_string="zero", new_string="one"),
        await done(crib, "edit", path="/a.md", old_string="one", new_string="two"),
    ]
    undone = await done(crib, "undo", calls=calls[1:])
    await done(crib, "undo", calls=[undone])
    await done(crib, "undo", calls=calls[1:])

    result = await crib.result("undo", calls=calls)

    assert result["conflicts"] == []
    assert snapshot(crib.project) == before
    again = await crib.result("undo", calls=calls)
    assert (again["changes"], again["conflicts"]) == ([], [])


async def test_undo_that_covers_more_calls_counts_as_another_change(crib: Crib) -> None:
    await done(crib, "write", path="/a.md", content="zero\n")
    ours = await done(crib, "edit", path="/a.md", old_string="zero", new_string="one")
    theirs = await done(crib, "edit", path="/a.md", old_string="one", new_string="two")
    redone = await done(crib, "undo", calls=[await done(crib, "undo", calls=[ours, theirs])])
    assert redone

    result = await crib.result("undo", calls=[ours])

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/a.md"]


async def test_dry_run_shows_the_same_and_changes_nothing(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="A")
    before = snapshot(crib.project)

    shown = await crib.result("undo", calls=[call], dry_run=True)
    assert snapshot(crib.project) == before
    real = await crib.result("undo", calls=[call])

    assert shown["changes"] == real["changes"]
    assert snapshot(crib.project) == {}


@pytest.mark.req("WS-12", part="what others changed since is a conflict, with both versions kept")
async def test_later_change_by_another_is_reported_with_both_versions_and_left_alone(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="ours\n")
    other = await done(crib, "edit", path="/a", old_string="ours", new_string="theirs")

    result = await crib.result("undo", calls=[call])

    assert result["changes"] == []
    [conflict] = result["conflicts"]
    assert conflict["path"] == "/a"
    assert conflict["ours"]["author"]["call_id"] == call
    assert conflict["theirs"]["author"]["call_id"] == other
    assert (crib.project / "a").read_text() == "theirs\n"


async def test_undetected_change_on_disk_counts_as_anothers(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="ours\n")
    (crib.project / "a").write_text("edited by hand\n")

    result = await crib.result("undo", calls=[call])

    assert [conflict["theirs"]["author"]["kind"] for conflict in result["conflicts"]] == ["external"]
    assert (crib.project / "a").read_text() == "edited by hand\n"


async def test_force_also_undoes_changes_by_others_and_keeps_them_in_the_history(crib: Crib) -> None:
    file_id = (await crib.result("write", path="/a", content="base\n"))["file_id"]
    call = await done(crib, "edit", path="/a", old_string="base", new_string="ours")
    await done(crib, "edit", path="/a", old_string="ours", new_string="theirs")

    await crib.result("undo", calls=[call], force=True)

    assert (crib.project / "a").read_text() == "base\n"
    versions = (await crib.result("file_versions", file_id=file_id))["versions"]
    assert len(versions) == 4


async def test_change_by_another_without_a_new_content_is_no_conflict(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="ours\n")
    await done(crib, "touch", path="/a")

    result = await crib.result("undo", calls=[call])

    assert result["conflicts"] == []
    assert snapshot(crib.project) == {}


async def test_folder_with_another_authors_file_stays(crib: Crib) -> None:
    call = await done(crib, "mkdir", path="/d")
    await done(crib, "write", path="/d/theirs", content="x")

    result = await crib.result("undo", calls=[call])

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/d"]
    assert (crib.project / "d" / "theirs").read_text() == "x"


async def test_deleted_file_is_not_restored_over_another_at_its_path(crib: Crib) -> None:
    await done(crib, "write", path="/a", content="old\n")
    call = await done(crib, "rm", path="/a")
    await done(crib, "write", path="/a", content="new\n")

    result = await crib.result("undo", calls=[call])

    assert [conflict["reason"] for conflict in result["conflicts"]] == ["Another file exists at its old path."]
    assert (crib.project / "a").read_text() == "new\n"


@pytest.mark.req("WS-12", part="modes and links")
async def test_modes_and_links_are_restored(crib: Crib) -> None:
    (crib.project / "run.sh").write_text("true\n")
    (crib.project / "run.sh").chmod(0o755)
    os.symlink("run.sh", crib.project / "link")
    before = snapshot(crib.project)
    calls = [await done(crib, "rm", path="/run.sh"), await done(crib, "rm", path="/link")]

    await crib.result("undo", calls=calls)

    assert snapshot(crib.project) == before


async def test_calls_without_changes_are_reported(crib: Crib) -> None:
    outcome = await crib.call("undo", calls=[str(uuid4())])
    assert isinstance(outcome.error, NotFound)


async def test_agent_undoes_only_its_own_calls(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="a person's")
    agent = await crib.agent(
        trust="autonomous", toolsets=("workspace", "history"), tool_permissions={"undo": {"allowed": True}}
    )

    outcome = await crib.call("undo", agent, calls=[call])

    assert isinstance(outcome.error, NotFound)
    assert (crib.project / "a").exists()


async def test_agent_cannot_restore_a_protected_file(crib: Crib) -> None:
    agent = await crib.agent(
        trust="autonomous",
        toolsets=("workspace", "history"),
        tool_permissions={name: {"allowed": True} for name in ("undo", "write", "mv")},
        unprotected_paths=(".env",),
    )
    outcome = await crib.call("write", agent, path="/.env", content="KEY=1")
    assert outcome.succeeded
    bound = await crib.agent(trust="autonomous", toolsets=("history",), tool_permissions={"undo": {"allowed": True}})

    refused = await crib.call("undo", bound, calls=[str(outcome.call_id)])

    assert isinstance(refused.error, NotFound | ProtectedPath)
    assert (crib.project / ".env").read_text() == "KEY=1"
