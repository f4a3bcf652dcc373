"""`read_result`: which calls an agent may read on, and the errors when there is nothing to read."""

from uuid import uuid4

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, in_session
from toolcrib.core.callers import Caller
from toolcrib.core.errors import NotFound, ToolFailed
from toolcrib.core.ids import CallId

LARGE = "".join(f"line {number}\n" for number in range(20_000))


@pytest.fixture
async def workspace(workspace: WorkspaceFixture) -> WorkspaceFixture:
    await workspace.result("write", path="/large.txt", content=LARGE)
    return workspace


async def cut_call(workspace: WorkspaceFixture, caller: Caller) -> CallId:
    outcome = await workspace.call("read", caller, path="/large.txt", limit=20_000)
    assert outcome.metadata["truncated"]["total_bytes"] > 0
    return outcome.call_id


async def test_agent_reads_on_only_in_the_session_of_the_call(workspace: WorkspaceFixture) -> None:
    agent = await workspace.agent()
    here, elsewhere = await in_session(workspace, agent), await in_session(workspace, agent)
    call_id = await cut_call(workspace, here)

    found = await workspace.call("read_result", here, call_id=str(call_id))
    other = await workspace.call("read_result", elsewhere, call_id=str(call_id))
    outside = await workspace.call("read_result", agent, call_id=str(call_id))

    assert "line 100" in found.result["output"]
    for refused in (other, outside):
        assert isinstance(refused.error, NotFound)
        assert "line 100" not in repr(refused)


async def test_unknown_call_and_call_without_a_result_are_reported(workspace: WorkspaceFixture) -> None:
    agent = await workspace.agent(tool_permissions={"write": {"allowed": True}})
    waiting = await asked(workspace, agent)

    unknown = await workspace.call("read_result", agent, call_id=str(uuid4()))
    unfinished = await workspace.call("read_result", agent, call_id=str(waiting.call_id))

    assert isinstance(unknown.error, NotFound)
    assert isinstance(unfinished.error, NotFound)
    assert "no result yet" in unfinished.error.message


async def test_small_result_is_read_completely_and_nothing_follows_it(workspace: WorkspaceFixture) -> None:
    agent = await in_session(workspace, await workspace.agent())
    outcome = await workspace.call("file_info", agent, path="/large.txt")

    whole = await workspace.call("read_result", agent, call_id=str(outcome.call_id))
    past = await workspace.call("read_result", agent, call_id=str(outcome.call_id), offset=100_000)

    assert whole.result["metadata"]["next_offset"] is None
    assert isinstance(past.error, ToolFailed)
    assert "the stored result has" in past.error.message
