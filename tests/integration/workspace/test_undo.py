"""Undo of calls: what comes back, what is left alone, and what a person is told."""

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


async def test_a_write_a_change_and_a_deletion_are_taken_back_together(crib: Crib) -> None:
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


async def test_files_that_traded_places_trade_back(crib: Crib) -> None:
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


async def test_a_file_and_a_folder_that_stood_at_one_place_do_not_both_go_back_there(crib: Crib) -> None:
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


async def test_a_moved_folder_comes_back_with_all_that_is_in_it(crib: Crib) -> None:
    for name in ("x", "y/z"):
        await done(crib, "write", path=f"/src/{name}", content=name)
    (crib.project / "src" / "unseen").write_text("only the disk knows it")
    before = snapshot(crib.project)
    call = await done(crib, "mv", source="/src", destination="/lib")

    await crib.result("undo", calls=[call])

    assert snapshot(crib.project) == before


@pytest.mark.parametrize(("unseen", "put"), [("x", "x"), ("x", "x/y"), ("x/y", "x")])
async def test_what_only_the_disk_knows_is_not_overwritten_where_its_folder_takes_it(
    crib: Crib, unseen: str, put: str
) -> None:
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


async def test_what_was_undone_in_part_is_undone_as_a_whole_without_conflict(crib: Crib) -> None:
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


async def test_an_undo_of_more_than_is_undone_now_is_someone_elses_change(crib: Crib) -> None:
    await done(crib, "write", path="/a.md", content="zero\n")
    ours = await done(crib, "edit", path="/a.md", old_string="zero", new_string="one")
    theirs = await done(crib, "edit", path="/a.md", old_string="one", new_string="two")
    redone = await done(crib, "undo", calls=[await done(crib, "undo", calls=[ours, theirs])])
    assert redone

    result = await crib.result("undo", calls=[ours])

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/a.md"]


async def test_a_dry_run_shows_the_same_and_does_nothing(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="A")
    before = snapshot(crib.project)

    shown = await crib.result("undo", calls=[call], dry_run=True)
    assert snapshot(crib.project) == before
    real = await crib.result("undo", calls=[call])

    assert shown["changes"] == real["changes"]
    assert snapshot(crib.project) == {}


@pytest.mark.req("WS-12", part="what others changed since is a conflict, with both versions kept")
async def test_what_someone_else_changed_since_is_reported_with_both_versions_and_left_alone(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="ours\n")
    other = await done(crib, "edit", path="/a", old_string="ours", new_string="theirs")

    result = await crib.result("undo", calls=[call])

    assert result["changes"] == []
    [conflict] = result["conflicts"]
    assert conflict["path"] == "/a"
    assert conflict["ours"]["author"]["call_id"] == call
    assert conflict["theirs"]["author"]["call_id"] == other
    assert (crib.project / "a").read_text() == "theirs\n"


async def test_a_change_on_disk_that_nobody_had_seen_counts_as_someone_elses(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="ours\n")
    (crib.project / "a").write_text("edited by hand\n")

    result = await crib.result("undo", calls=[call])

    assert [conflict["theirs"]["author"]["kind"] for conflict in result["conflicts"]] == ["external"]
    assert (crib.project / "a").read_text() == "edited by hand\n"


async def test_force_takes_back_also_what_others_changed_and_keeps_it_in_the_history(crib: Crib) -> None:
    file_id = (await crib.result("write", path="/a", content="base\n"))["file_id"]
    call = await done(crib, "edit", path="/a", old_string="base", new_string="ours")
    await done(crib, "edit", path="/a", old_string="ours", new_string="theirs")

    await crib.result("undo", calls=[call], force=True)

    assert (crib.project / "a").read_text() == "base\n"
    versions = (await crib.result("file_versions", file_id=file_id))["versions"]
    assert len(versions) == 4


async def test_a_change_by_another_that_left_the_content_as_it_was_is_no_conflict(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="ours\n")
    await done(crib, "touch", path="/a")

    result = await crib.result("undo", calls=[call])

    assert result["conflicts"] == []
    assert snapshot(crib.project) == {}


async def test_a_folder_that_holds_someone_elses_file_stays(crib: Crib) -> None:
    call = await done(crib, "mkdir", path="/d")
    await done(crib, "write", path="/d/theirs", content="x")

    result = await crib.result("undo", calls=[call])

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/d"]
    assert (crib.project / "d" / "theirs").read_text() == "x"


async def test_a_deleted_file_does_not_come_back_onto_another_that_took_its_place(crib: Crib) -> None:
    await done(crib, "write", path="/a", content="old\n")
    call = await done(crib, "rm", path="/a")
    await done(crib, "write", path="/a", content="new\n")

    result = await crib.result("undo", calls=[call])

    assert [conflict["reason"] for conflict in result["conflicts"]] == ["Another file exists at its old path."]
    assert (crib.project / "a").read_text() == "new\n"


@pytest.mark.req("WS-12", part="modes and links")
async def test_modes_and_links_come_back(crib: Crib) -> None:
    (crib.project / "run.sh").write_text("true\n")
    (crib.project / "run.sh").chmod(0o755)
    os.symlink("run.sh", crib.project / "link")
    before = snapshot(crib.project)
    calls = [await done(crib, "rm", path="/run.sh"), await done(crib, "rm", path="/link")]

    await crib.result("undo", calls=calls)

    assert snapshot(crib.project) == before


async def test_calls_that_changed_nothing_are_told_so(crib: Crib) -> None:
    outcome = await crib.call("undo", calls=[str(uuid4())])
    assert isinstance(outcome.error, NotFound)


async def test_an_agent_undoes_its_own_deeds_only(crib: Crib) -> None:
    call = await done(crib, "write", path="/a", content="a person's")
    agent = await crib.agent(
        trust="autonomous", toolsets=("workspace", "history"), tool_permissions={"undo": {"allowed": True}}
    )

    outcome = await crib.call("undo", agent, calls=[call])

    assert isinstance(outcome.error, NotFound)
    assert (crib.project / "a").exists()


async def test_an_agent_cannot_bring_a_protected_file_back(crib: Crib) -> None:
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
