"""Plan mode: an agent reads, asks and plans; the server decides whether it may start to build."""

from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.runs.conftest import RunFixture, opened_office, says
from toolcrib.core.callers import SessionMode
from toolcrib.core.runs import RunEnding, RunState

PLAN = "/plans/bold-meadow-revelation.plan"
WRITE_PLAN = ("write", {"path": PLAN, "content": "# Plan\n", "file_type": "plan"})
EXIT = ("exit_plan_mode", {"plan_file_path": PLAN})
REVIEW: dict[str, Any] = {
    "questions": [
        {
            "name": "approval",
            "question": "Review the implementation plan. Ready to proceed to Build Mode?",
            "schema": '{"type": "string", "enum": ["Accept", "Reject"]}',
            "buttons": [{"label": "Accept", "value": "Accept"}, {"label": "Reject", "value": "Reject"}],
        }
    ]
}


@pytest.fixture
async def planning(workspace: WorkspaceFixture, run_fixture: RunFixture) -> RunFixture:
    return await opened_office(workspace, run_fixture.model, run_fixture.providers, mode=SessionMode.PLAN)


async def mode_of(run_fixture: RunFixture) -> SessionMode:
    return (await run_fixture.workspace.stores.sessions.get(run_fixture.tenant, run_fixture.session_id)).mode


async def answer(run_fixture: RunFixture, value: str, *, by_button: bool) -> None:
    [question] = await run_fixture.workspace.engine.paused_calls.list(
        run_fixture.tenant, session_id=run_fixture.session_id
    )
    await run_fixture.workspace.engine.paused_calls.answer(
        run_fixture.tenant, question.id, {"approval": value}, buttons=["approval"] if by_button else [], via="test"
    )


async def test_only_reading_and_planning_tools_are_offered(planning: RunFixture) -> None:
    await planning.send("Plan.", says("I shall."))

    offered = {tool["function"]["name"] for tool in planning.model.last.body["tools"]}
    assert offered == {"read", "ls", "fs_read", "plan_write", "ask_user", "exit_plan_mode", "write"}


async def test_tool_that_is_not_offered_is_denied(planning: RunFixture) -> None:
    run = await planning.send(
        "Build!",
        says("", ("write", {"path": "/a.txt", "content": "a"}), ("rm", {"path": "/a.txt"}), WRITE_PLAN),
        says("Only the plan."),
    )

    assert run.end_reason is RunEnding.DONE
    wrote, removed, planned = planning.model_input()[-3:]
    assert "plan mode" in wrote["content"]
    assert "plan mode" in removed["content"]
    assert "plan mode" not in planned["content"]
    assert [path.name for path in planning.workspace.project.rglob("*") if path.is_file()] == [PLAN.rpartition("/")[2]]


async def test_accepted_plan_opens_build_mode(planning: RunFixture) -> None:
    waiting = await planning.send("Plan.", says("", WRITE_PLAN), says("", ("ask_user", REVIEW)))
    assert waiting.state is RunState.WAITING
    await answer(planning, "Accept", by_button=True)
    planning.model.say(says("", EXIT), says("Now I build."))
    await planning.carry_on()

    assert await mode_of(planning) is SessionMode.BUILD
    assert '"mode":"build"' in planning.model_input()[-1]["content"]
    assert "edit" in {tool["function"]["name"] for tool in planning.model.last.body["tools"]}


@pytest.mark.parametrize(
    ("value", "by_button"), [("Reject", True), ("Accept", False)], ids=["rejected", "not by button"]
)
async def test_without_an_accept_by_button_build_mode_is_denied(
    planning: RunFixture, value: str, by_button: bool
) -> None:
    await planning.send("Plan.", says("", WRITE_PLAN), says("", ("ask_user", REVIEW)))
    await answer(planning, value, by_button=by_button)
    planning.model.say(says("", EXIT), says("I may not."))
    await planning.carry_on()

    assert await mode_of(planning) is SessionMode.PLAN
    assert "accepted this plan by button" in planning.model_input()[-1]["content"]


async def test_plan_changed_after_the_question_must_be_asked_about_again(planning: RunFixture) -> None:
    await planning.send("Plan.", says("", WRITE_PLAN), says("", ("ask_user", REVIEW)))
    await answer(planning, "Accept", by_button=True)
    changed = ("write", {"path": PLAN, "content": "# Another\n", "file_type": "plan", "overwrite": True})
    planning.model.say(says("", changed), says("", EXIT), says("I may not."))
    await planning.carry_on()

    assert await mode_of(planning) is SessionMode.PLAN


async def test_answer_about_one_plan_does_not_accept_another(planning: RunFixture) -> None:
    other = ("write", {"path": "/plans/other-river-hill.plan", "content": "# Other\n", "file_type": "plan"})
    await planning.send("Plan.", says("", WRITE_PLAN), says("", other), says("", ("ask_user", REVIEW)))
    await answer(planning, "Accept", by_button=True)
    planning.model.say(says("", EXIT), says("I may not."))
    await planning.carry_on()

    assert await mode_of(planning) is SessionMode.PLAN


async def test_invalid_plan_file_is_rejected(planning: RunFixture) -> None:
    await planning.workspace.result("write", path="/a.plan", content="x")

    await planning.send("Go.", says("", ("exit_plan_mode", {"plan_file_path": "/a.plan"})), says("No."))

    assert "not a plan file" in planning.model_input()[-1]["content"]
