"""A run leaves its changes for a review: it is announced, it blocks nothing, and the model is told what was decided."""

from dataclasses import replace

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.runs.conftest import RunFixture, says, yes
from toolcrib.core.agents import TrustLevel
from toolcrib.core.runs import RunState


@pytest.fixture
async def reviewed(run_fixture: RunFixture) -> RunFixture:
    await run_fixture.workspace.stores.sessions.set_trust(run_fixture.tenant, run_fixture.session_id, TrustLevel.REVIEW)
    return run_fixture


async def _write(run_fixture: RunFixture, path: str) -> None:
    run = await run_fixture.send("Write.", says("", ("write", {"path": path, "content": "text\n"})), says("Done."))
    if run.state is RunState.WAITING:
        await run_fixture.decide(yes())
        await run_fixture.carry_on()
    assert (await run_fixture.run(run.id)).state is RunState.ENDED


async def _decide(workspace: WorkspaceFixture, run_fixture: RunFixture, decision: str) -> None:
    shown = await workspace.result("review", session_id=str(run_fixture.session_id))
    person = replace(workspace.caller, session_id=run_fixture.session_id)
    outcome = await workspace.call("review_decide", person, all=decision, version=shown["version"])
    assert outcome.succeeded, outcome.error


async def test_runs_go_on_while_a_review_is_open_and_it_grows(reviewed: RunFixture) -> None:
    await _write(reviewed, "/a.md")
    await _write(reviewed, "/b.md")

    events = await reviewed.events()
    opened = [payload for type_, payload in events if type_ == "review"]
    assert [one["files"] for one in opened if one["state"] == "open"][-1] == 2
    # Clients stop reading at the end of the run, so the review is announced before.
    assert [type_ for type_, _ in events][-2:] == ["review", "run-state"]
    shown = await reviewed.workspace.result("review", session_id=str(reviewed.session_id))
    assert [one["path"] for one in shown["files"]] == ["/a.md", "/b.md"]


async def test_the_model_is_told_with_the_next_message_what_was_reverted(reviewed: RunFixture) -> None:
    await _write(reviewed, "/a.md")
    await _decide(reviewed.workspace, reviewed, "revert")
    assert not (reviewed.workspace.project / "a.md").exists()

    await reviewed.send("And now?", says("I see."))

    last = reviewed.model_input()[-1]["content"]
    assert "[The person reviewed your changes: reverted /a.md." in last
    assert last.endswith("And now?")
    message = (await reviewed.messages())[-2]
    assert (message.content, bool(message.metadata and message.metadata["review"])) == ("And now?", True)
    await reviewed.send("Again?", says("Yes."))
    assert reviewed.model_input()[-1]["content"] == "Again?"


async def test_the_model_is_told_with_the_next_message_what_was_undone_and_redone(run_fixture: RunFixture) -> None:
    await run_fixture.send("Write.", says("", ("write", {"path": "/a.txt", "content": "a\n"})), says("Done."))

    undone = await run_fixture.workspace.result("undo", last="run")
    await run_fixture.send("And now?", says("It is gone."))
    assert run_fixture.model_input()[-1]["content"].startswith(f"[{undone['note']}]")
    assert "undone changes to /a.txt" in undone["note"]

    redone = await run_fixture.workspace.result("undo", last="undo")
    await run_fixture.send("And now?", says("It is back."))
    assert run_fixture.model_input()[-1]["content"].startswith(f"[{redone['note']}]")
    assert "redone changes to /a.txt" in redone["note"]

    # It is told once.
    await run_fixture.send("And now?", says("As before."))
    assert run_fixture.model_input()[-1]["content"] == "And now?"


async def test_other_trust_announces_no_review(run_fixture: RunFixture) -> None:
    await _write(run_fixture, "/a.md")
    assert "review" not in [type_ for type_, _ in await run_fixture.events()]
    shown = await run_fixture.workspace.result("review", session_id=str(run_fixture.session_id))
    assert [one["path"] for one in shown["files"]] == ["/a.md"]
