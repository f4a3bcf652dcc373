"""A call whose home stopped answering is ended by the node that waited: what the home does of it is not committed."""

from dataclasses import replace

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import hand
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Interrupted, Superseded
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.gate.lost_calls import LostCalls


async def settled(workspace: WorkspaceFixture, call: ToolCall, caller: Caller) -> Outcome:
    engine = workspace.engine
    lost = LostCalls(engine.registry, engine.stores.calls, engine.paused_calls, engine.live, process=None)
    return await lost.settle(call, caller)


async def test_outcome_that_the_home_has_stored_is_the_answer(workspace: WorkspaceFixture) -> None:
    call = ToolCall("write", {"path": "/done.txt", "content": "done\n"})
    caller = replace(workspace.caller, call_id=CallId(new_id()))
    done = await workspace.engine.executor.execute(call, caller)

    outcome = await settled(workspace, call, caller)

    assert done.succeeded
    assert (outcome.state, outcome.error, outcome.change_set_id) == (OutcomeState.DONE, None, done.change_set_id)


async def test_home_cannot_commit_a_call_that_was_ended_elsewhere(workspace: WorkspaceFixture) -> None:
    call = ToolCall("write", {"path": "/late.txt", "content": "late\n"})
    caller = replace(workspace.caller, call_id=CallId(new_id()))

    outcome = await settled(workspace, call, caller)
    with pytest.raises(Superseded):
        await workspace.engine.executor.execute(call, caller)

    assert isinstance(outcome.error, Interrupted)
    assert (outcome.state, "Nothing was changed" in str(outcome.error)) == (OutcomeState.DONE, True)
    found = await workspace.stores.files.lookup(workspace.tenant, [WorkspacePath(Mount.PROJECT, "/late.txt")])
    assert found.files == (None,)
    assert not (workspace.project / "late.txt").exists()


async def test_effect_of_a_command_with_network_access_is_unknown(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, hosts=("api.example.org",))
    call = ToolCall("bash", {"command": "true"})

    outcomes = [
        await settled(workspace, call, replace(caller, call_id=CallId(new_id())))
        for caller in (agent, await hand(workspace))
    ]

    assert [one.state for one in outcomes] == [OutcomeState.UNKNOWN, OutcomeState.DONE]
    assert "unknown whether it took effect" in str(outcomes[0].error)
