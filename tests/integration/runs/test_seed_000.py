"""The loop's acceptance criteria AC-29 to AC-34 and the test cases of task 14 of the first seed, under their names."""

import asyncio

from tests.integration.gate.builders import with_tools
from tests.integration.runs.conftest import RunFixture, no, opened_office, says, yes
from tests.integration.runs.test_durable import at_work, ended
from tests.wait_until import PATIENCE
from toolcrib.core.agents import AgentRules
from toolcrib.core.runs import RunEnding, RunState
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.storage.database import Tenant
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


async def kinds(run_fixture: RunFixture) -> list[str]:
    return [kind for kind, _ in await run_fixture.events() if kind not in ("run-state", "message")]


async def test_stream_with_no_tool_calls_existing_behavior_preserved(run_fixture: RunFixture) -> None:
    """AC-29."""
    run = await run_fixture.send("Hello?", says("Hello."))

    assert run.end_reason is RunEnding.DONE
    assert await kinds(run_fixture) == ["stream-start", "stream-end"]


async def test_stream_with_tool_call_chunks_tool_events_emitted_loop_continues(run_fixture: RunFixture) -> None:
    await run_fixture.send("Look.", says("", ("ls", {"path": "/"})), says("Empty."))

    stream = ["stream-start", "stream-end"]
    assert await kinds(run_fixture) == [*stream, "tool-start", "tool-result", *stream]


async def test_multi_turn_loop_tool_call_result_text_response_done(run_fixture: RunFixture) -> None:
    """AC-30."""
    (run_fixture.workspace.project / "a.txt").write_text("forty-two\n")

    run = await run_fixture.send("Read it.", says("", ("fs.read", {"path": "@project/a.txt"})), says("It says 42."))

    assert run.end_reason is RunEnding.DONE
    assert "forty-two" in run_fixture.model_input()[-1]["content"]
    assert (await run_fixture.messages())[-1].content == "It says 42."


async def test_safety_max_exceeded_loop_exits_with_text(run_fixture: RunFixture) -> None:
    """AC-31: the limit is 200, and settable."""
    assert AgentRules().max_turns == 200
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, max_turns=3)

    run = await run_fixture.send("Loop.", *(says("", ("ls", {"path": "/"})) for _ in range(4)))

    assert run.end_reason is RunEnding.TURN_LIMIT
    assert (await kinds(run_fixture))[-1] == "stream-end"
    assert (await run_fixture.messages())[-1].content == "Stopped after 3 iterations."


async def test_context_cancellation_during_tool_execution_clean_shutdown(run_fixture: RunFixture) -> None:
    """AC-32."""
    began = asyncio.Event()

    async def dawdle(arguments: ToolArguments, context: ToolContext) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    tool = Tool(
        name="dawdle",
        toolset="workspace",
        description="Takes its time.",
        category=ToolCategory.EXEC,
        danger=Danger.SAFE,
        arguments=ToolArguments,
        effects=lambda _: Effects(hosts=("example.org",)),
        function=dawdle,
        checks_membership=False,
    )
    workspace = with_tools(run_fixture.workspace, tool)
    run_fixture = await opened_office(
        workspace, run_fixture.model, run_fixture.providers, tool_permissions={"dawdle": {"allowed": True}}
    )
    run_fixture.model.say(says("I wait.", ("dawdle", {})))
    async with at_work(run_fixture) as signal:
        run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
        signal.notify(run.workspace_id, [run.id])
        await asyncio.wait_for(began.wait(), PATIENCE)
        await run_fixture.runs.cancel(run_fixture.tenant, run.id)
        done = await ended(run_fixture, run.id)

    assert done.end_reason is RunEnding.CANCELLED
    assert await kinds(run_fixture) == ["stream-start", "stream-end", "tool-start", "tool-result"]
    assert await run_fixture.is_complete()


async def test_unknown_tool_in_stream_error_result_injected_loop_continues(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Do it.", says("", ("no_such_tool", {})), says("There is none."))

    assert run.end_reason is RunEnding.DONE
    assert "no_such_tool" in run_fixture.model_input()[-1]["content"]


def test_tool_registry_has_core_tools_registered(run_fixture: RunFixture) -> None:
    """AC-33."""
    registry = run_fixture.workspace.engine.registry
    assert all(registry.get(name) for name in ("file_read", "file_write", "bash", "web_search"))


async def test_tool_approve_routes_to_the_correct_tool_id(run_fixture: RunFixture) -> None:
    """AC-34."""
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided")
    calls = [("write", {"path": f"/{name}.txt", "content": name}) for name in ("yes", "no")]
    run = await run_fixture.send("Write both.", says("", *calls))
    [planned] = [one.call_ids for one in await run_fixture.messages() if one.call_ids]
    approvals, tenant = run_fixture.workspace.engine.paused_calls, Tenant.of(run_fixture.workspace.caller)

    for call_id, decision in zip(planned, (yes(), no()), strict=True):
        approval = await approvals.of_call(tenant, call_id)
        await approvals.decide(tenant, approval.id, decision, via="test")
    run_fixture.model.say(says("One of them."))
    await run_fixture.carry_on()

    assert (await run_fixture.run(run.id)).state is RunState.ENDED
    assert [path.name for path in run_fixture.workspace.project.glob("*.txt")] == ["yes.txt"]
