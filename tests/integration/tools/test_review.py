"""The review of what a session's agent changed: what is shown, and what keeping and reverting do."""

import asyncio
import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of, joined, rows, trusted
from tests.integration.tools.review_builders import ReviewFixture, edit_of, keep_of, revert_of, review_of
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, PermissionDenied
from toolcrib.core.ids import CallId

TWENTY = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
async def session(workspace: WorkspaceFixture) -> ReviewFixture:
    return await review_of(workspace)


async def test_every_changed_file_is_shown_with_its_hunks(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/kept.md", content=TWENTY)
    await session.workspace.result("write", path="/gone.md", content="two\n")
    await session.does("write", path="/new/deep.md", content="three\nfour\n")
    await session.does("edit", path="/kept.md", old_string="line 3\n", new_string="three\n")
    await session.does("edit", path="/kept.md", old_string="line 15\n", new_string="fifteen\n")
    await session.does("rm", path="/gone.md")

    shown = await session.shown()

    assert [(one["path"], one["change"], one["added"], one["removed"]) for one in shown["files"]] == [
        ("/gone.md", "deleted", 0, 1),
        ("/kept.md", "modified", 2, 2),
        ("/new/deep.md", "created", 2, 0),
    ]
    kept = shown["files"][1]
    assert [hunk["diff"].splitlines()[0] for hunk in kept["hunks"]] == ["@@ -1,7 +1,7 @@", "@@ -13,7 +13,7 @@"]
    assert (shown["added"], shown["removed"], shown["total"]) == (4, 3, 3)


async def test_changes_of_a_person_are_not_in_the_review(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/mine.md", content="mine\n")
    await session.does("write", path="/a.md", content="a\n")
    assert [one["path"] for one in (await session.shown())["files"]] == ["/a.md"]


async def test_one_hunk_is_reverted_and_the_other_kept(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/a.md", content=TWENTY)
    await session.does("edit", path="/a.md", old_string="line 3\n", new_string="three\n")
    await session.does("edit", path="/a.md", old_string="line 15\n", new_string="fifteen\n")
    [first, second] = (await session.file("/a.md"))["hunks"]

    result = await session.revert("/a.md", second["id"])

    assert session.text("/a.md") == TWENTY.replace("line 3\n", "three\n")
    assert result["reverted"] == [{"path": "/a.md", "hunks": 1, "of": 2}]
    assert result["note"].startswith("The person reviewed your changes: reverted /a.md (1 of 2 hunks).")
    assert (await session.shown())["files"] == []
    assert first["id"] != second["id"]


async def test_everything_is_reverted_and_that_is_undone(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/a.md", content="one\n")
    await session.workspace.result("write", path="/old.md", content="old\n")
    await session.does("edit", path="/a.md", old_string="one", new_string="two")
    await session.does("write", path="/new/b.md", content="b\n")
    await session.does("mv", source="/old.md", destination="/new/moved.md")

    result = await session.decided(all="revert", version=(await session.shown())["version"])

    assert session.text("/a.md") == "one\n"
    assert session.text("/old.md") == "old\n"
    assert not (session.workspace.project / "new").exists()
    assert (await session.shown())["files"] == []
    [record] = await audit_records_of(session.workspace, CallId(UUID(result["call_id"])))
    assert (record.tool, record.outcome) == ("review_decide", "done")
    await session.workspace.result("undo", calls=[result["call_id"]])
    assert session.text("/a.md") == "two\n"
    assert session.text("/new/b.md") == "b\n"
    assert session.text("/new/moved.md") == "old\n"


async def test_what_is_kept_is_the_base_of_the_next_review(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="one\n")
    await session.decided(all="keep", version=(await session.shown())["version"])
    assert (await session.shown())["total"] == 0
    await session.does("edit", path="/a.md", old_string="one", new_string="two")

    shown = await session.file("/a.md")

    assert (shown["change"], shown["added"], shown["removed"]) == ("modified", 1, 1)
    await session.revert("/a.md")
    assert session.text("/a.md") == "one\n"


async def test_files_that_are_not_decided_stay_open(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="a\n")
    await session.does("write", path="/b.md", content="b\n")
    result = await session.decided(decisions=[keep_of(await session.file("/a.md"))])
    assert result["open"] == 1
    assert [one["path"] for one in (await session.shown())["files"]] == ["/b.md"]


async def test_what_was_undone_is_not_reviewed(session: ReviewFixture) -> None:
    call = await session.does("write", path="/a.md", content="a\n")
    await session.workspace.result("undo", calls=[call])
    assert (await session.shown())["files"] == []


async def test_a_file_that_changed_since_it_was_shown_is_not_reverted(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="a\n")
    shown = await session.file("/a.md")
    (session.workspace.project / "a.md").write_text("someone's\n")

    outcome = await session.decide(decisions=[revert_of(shown)])

    assert isinstance(outcome.error, Conflict)
    assert "/a.md changed since it was shown" in outcome.error.message
    assert session.text("/a.md") == "someone's\n"


async def test_hunks_of_a_person_stay_when_the_agents_are_reverted(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/a.md", content=TWENTY)
    await session.does("edit", path="/a.md", old_string="line 3\n", new_string="three\n")
    await session.workspace.result("edit", path="/a.md", old_string="line 5\n", new_string="mine\n")

    shown = await session.file("/a.md")
    assert [hunk["author"] for hunk in shown["hunks"]] == ["agent", "others"]
    assert shown["changed_by_others"]
    await session.revert("/a.md")

    assert session.text("/a.md") == TWENTY.replace("line 5\n", "mine\n")


async def test_lines_that_a_person_changed_too_are_a_conflict(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/a.md", content=TWENTY)
    await session.does("edit", path="/a.md", old_string="line 3\n", new_string="three\n")
    await session.workspace.result("edit", path="/a.md", old_string="three\n", new_string="three, mine\n")

    result = await session.revert("/a.md")

    assert result["conflicts"] == [{"path": "/a.md", "reason": "Someone else changed the same lines."}]
    assert "three, mine" in session.text("/a.md")
    assert [one["path"] for one in (await session.shown())["files"]] == ["/a.md"]


async def test_the_second_of_two_deciders_is_told_who_was_faster(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="a\n")
    shown = await session.file("/a.md")
    other = await joined(session.workspace, WorkspaceRole.MEMBER)

    outcomes = await asyncio.gather(
        session.decide(decisions=[revert_of(shown)]), session.decide(other, decisions=[keep_of(shown)])
    )

    [lost] = [one for one in outcomes if not one.succeeded]
    assert isinstance(lost.error, Conflict)
    late = await session.decide(decisions=[revert_of(shown)])
    assert late.error is not None
    assert "/a.md was already decided: " in late.error.message
    assert " by " in late.error.message


async def test_agents_and_viewers_decide_nothing(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="a\n")
    shown = await session.shown()
    given = {"all": "keep", "version": shown["version"]}
    agent = await trusted(session.workspace, toolsets=["workspace", "history", "review"])
    agent = replace(agent, session_id=None)
    for tool, arguments in (("review_decide", given), ("review", {"session_id": str(session.session_id)})):
        outcome = await session.workspace.call(tool, agent, **arguments)
        assert isinstance(outcome.error, PermissionDenied)
    viewer = await joined(session.workspace, WorkspaceRole.VIEWER)
    with pytest.raises(Forbidden):
        await session.decide(viewer, **given)
    assert (await session.shown())["total"] == 1


async def test_a_decision_is_an_event_and_a_note_for_the_model(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="a\n")
    await session.revert("/a.md")
    [[payload]] = await rows(
        session.workspace, "select payload from toolcrib.events where type = 'review' and workspace_id = %s"
    )
    assert payload["state"] == "decided"
    assert payload["reverted"] == [{"path": "/a.md", "hunks": None, "of": None}]
    [[note]] = await rows(session.workspace, "select review_note from toolcrib.sessions where workspace_id = %s")
    assert note == payload["note"]


async def test_an_edit_is_a_version_of_the_person_and_leaves_the_file_open(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/a.md", content=TWENTY)
    await session.does("edit", path="/a.md", old_string="line 3\n", new_string="three\n")
    edited = session.text("/a.md").replace("line 12\n", "twelve\n")

    result = await session.decided(decisions=[edit_of(await session.file("/a.md"), edited)])

    assert session.text("/a.md") == edited
    assert (result["edited"], result["kept"], result["open"]) == ([{"path": "/a.md", "added": 1, "removed": 1}], [], 1)
    shown = await session.file("/a.md")
    assert [hunk["author"] for hunk in shown["hunks"]] == ["agent", "others"]
    person = str(session.workspace.caller.user_id)
    assert shown["others"] == [{"kind": "user", "user_id": person, "agent_id": None}]
    [record] = await audit_records_of(session.workspace, CallId(UUID(result["call_id"])))
    assert (record.tool, record.outcome) == ("review_decide", "done")


async def test_an_edit_is_told_to_the_model_as_a_diff_and_is_an_event(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="one\ntwo\n")
    result = await session.decided(decisions=[edit_of(await session.file("/a.md"), "one\nthree\n")])
    assert result["note"].startswith(
        "The person reviewed your changes: edited /a.md. Read edited files again before you edit them.\n"
    )
    assert result["note"].endswith("@@ -1,2 +1,2 @@\n one\n-two\n+three\n")
    [[payload]] = await rows(
        session.workspace, "select payload from toolcrib.events where type = 'review' and workspace_id = %s"
    )
    assert payload["edited"] == [{"path": "/a.md", "added": 1, "removed": 1}]
    [[note]] = await rows(session.workspace, "select review_note from toolcrib.sessions where workspace_id = %s")
    assert note == result["note"]


async def test_an_undone_edit_leaves_the_agents_change_as_it_was(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="one\n")
    before = await session.file("/a.md")
    result = await session.decided(decisions=[edit_of(before, "two\n")])
    await session.workspace.result("undo", calls=[result["call_id"]])
    after = await session.file("/a.md")
    assert session.text("/a.md") == "one\n"
    assert after["hunks"] == before["hunks"]
    assert after["others"] == []


async def test_a_file_that_changed_since_it_was_shown_is_not_edited(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="a\n")
    shown = await session.file("/a.md")
    (session.workspace.project / "a.md").write_text("someone's\n")
    outcome = await session.decide(decisions=[edit_of(shown, "mine\n")])
    assert isinstance(outcome.error, Conflict)
    assert session.text("/a.md") == "someone's\n"


async def test_only_text_can_be_edited(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/gone.md", content="a\n")
    await session.does("rm", path="/gone.md")
    await session.does("write", path="/a.md", content="a\n")
    for path, content in (("/gone.md", "b\n"), ("/a.md", "b\0\n"), ("/a.md", "ü" * 150_000)):
        outcome = await session.decide(decisions=[edit_of(await session.file(path), content)])
        assert isinstance(outcome.error, BadArguments)
    outcome = await session.decide(decisions=[{**keep_of(await session.file("/a.md")), "content": "b\n"}])
    assert isinstance(outcome.error, BadArguments)
    assert session.text("/a.md") == "a\n"


async def test_an_undone_decision_puts_the_changes_back_into_the_review(session: ReviewFixture) -> None:
    await session.workspace.result("write", path="/a.md", content=TWENTY)
    await session.does("edit", path="/a.md", old_string="line 3\n", new_string="three\n")
    await session.does("edit", path="/a.md", old_string="line 15\n", new_string="fifteen\n")
    await session.does("write", path="/kept.md", content="kept\n")
    before = await session.shown()
    [_, second] = (await session.file("/a.md"))["hunks"]
    decisions = [revert_of(await session.file("/a.md"), second["id"]), keep_of(await session.file("/kept.md"))]
    call = (await session.decided(decisions=decisions))["call_id"]
    assert (await session.shown())["total"] == 0

    preview = await session.workspace.result("undo", calls=[call], dry_run=True)
    assert (await session.shown())["total"] == 0
    undone = await session.workspace.result("undo", calls=[call])

    assert [one["path"] for one in preview["reopened"]] == [one["path"] for one in undone["reopened"]]
    assert sorted(one["path"] for one in undone["reopened"]) == ["/a.md", "/kept.md"]
    after = await session.shown()
    hunks = [[(one["path"], one["changed_by_others"], one["hunks"]) for one in of["files"]] for of in (before, after)]
    assert hunks[0] == hunks[1]
    # And the agent's next change does not make the person an author of the earlier ones.
    await session.does("edit", path="/a.md", old_string="line 9\n", new_string="nine\n")
    again = await session.file("/a.md")
    assert (again["changed_by_others"], {hunk["author"] for hunk in again["hunks"]}) == (False, {"agent"})
    await session.revert("/a.md")
    assert session.text("/a.md") == TWENTY


async def test_keeping_everything_can_be_taken_back(session: ReviewFixture) -> None:
    for number in range(12):
        await session.does("write", path=f"/{number:02}.md", content="one\n")
    call = (await session.decided(all="keep", version=(await session.shown())["version"]))["call_id"]
    await session.does("edit", path="/03.md", old_string="one", new_string="two")

    undone = await session.workspace.result("undo", calls=[call])

    assert (undone["total_changes"], len(undone["reopened"])) == (0, 12)
    shown = await session.shown()
    assert (shown["total"], shown["added"], shown["removed"]) == (12, 12, 0)
    [[note]] = await rows(session.workspace, "select review_note from toolcrib.sessions where workspace_id = %s")
    assert "took a review decision back" in note
    # Once: now there is nothing that it decided.
    again = await session.workspace.call("undo", calls=[call])
    assert again.error is not None
    await session.decided(all="keep", version=shown["version"])
    assert (await session.shown())["total"] == 0


async def test_a_decision_that_was_followed_by_another_is_not_taken_back(session: ReviewFixture) -> None:
    await session.does("write", path="/a.md", content="one\n")
    first = (await session.decided(all="keep", version=(await session.shown())["version"]))["call_id"]
    await session.does("edit", path="/a.md", old_string="one", new_string="two")
    second = (await session.decided(all="keep", version=(await session.shown())["version"]))["call_id"]

    assert (await session.workspace.call("undo", calls=[first])).error is not None
    undone = await session.workspace.result("undo", calls=[first, second])

    assert [one["version_number"] for one in undone["reopened"]] == [0]
    assert (await session.file("/a.md"))["change"] == "created"


async def test_a_file_that_could_not_be_compared_says_so_and_is_not_kept_with_the_others(
    session: ReviewFixture,
) -> None:
    long = "".join(f"line {number}\n" for number in range(3_000))
    await session.workspace.result("write", path="/long.txt", content=long)
    await session.does("edit", path="/long.txt", old_string="line 3\n", new_string="three\n")
    await session.does("write", path="/short.txt", content="short\n")
    is_over = threading.Event()
    killing = threading.Thread(target=_kill_workers, args=(is_over,))
    killing.start()
    try:
        shown = await session.shown()
    finally:
        is_over.set()
        killing.join()

    [long_file, short_file] = shown["files"]
    assert "failure of the server" in long_file["flaw"]
    assert (long_file["hunks"], long_file["note"], long_file["added"]) == ([], None, None)
    assert (short_file["flaw"], short_file["added"], shown["unshown"]) == (None, 1, ["/long.txt"])
    refused = await session.decide(all="keep", version=shown["version"])
    assert isinstance(refused.error, Conflict)
    assert (await session.shown())["total"] == 2
    # Named, it is kept too; and the next look shows it.
    assert (await session.file("/long.txt"))["added"] == 1
    kept = await session.decided(all="keep", version=shown["version"], unshown=["/long.txt"])
    assert kept["kept"] == ["/long.txt", "/short.txt"]


def _kill_workers(is_over: threading.Event) -> None:
    """Kill each worker process of this one as soon as it is there."""
    while not is_over.is_set():
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    if "worker_program" in Path(f"/proc/{child}/cmdline").read_text():
                        os.kill(int(child), signal.SIGKILL)
