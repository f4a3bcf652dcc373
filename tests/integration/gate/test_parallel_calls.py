"""Several calls of one message: the results equal those of sequential calls, and independent calls run in parallel."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.gate.builders import audit_records, crash, stranger, with_tools
from tests.wait_until import PATIENCE
from toolcrib import ToolContext, tool
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.paths import AbsolutePath
from toolcrib.core.tool_calls import Danger, Effects, Outcome, ToolCall
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.parallel_calls import run_parallel


async def execute_all(executor: Gate, calls: Sequence[ToolCall], caller: Caller) -> list[Outcome | BaseException]:
    """Execute calls as a run does: each with its own id."""
    callers = [replace(caller, call_id=CallId(new_id())) for _ in calls]

    async def execute(number: int) -> Outcome:
        return await executor.execute(calls[number], callers[number])

    return await run_parallel([executor.effects_of(call) for call in calls], execute)


# Few names, so that calls conflict; implicit folders, and files where a folder is needed.
paths = st.sampled_from(["/a", "/b", "/d/a", "/d/b", "/d/e/a", "/f", "/f/a", "/plans/a.plan"])
words = st.sampled_from(["one\n", "two\n", "one\ntwo\n"])


def calls_of(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[ToolCall]:
    return st.builds(ToolCall, st.just(name), st.fixed_dictionaries(arguments))


any_call = st.one_of(
    calls_of("write", path=paths, content=words, overwrite=st.booleans()),
    calls_of("read", path=paths),
    calls_of("cat", paths=st.lists(paths, min_size=1, max_size=2)),
    calls_of("ls", path=st.sampled_from(["/", "/d"]), recursive=st.booleans()),
    calls_of("edit", path=paths, old_string=st.just("one"), new_string=st.just("three")),
    calls_of("edit", path=paths, insert_line=st.just(0), insert_content=words),
    calls_of("mkdir", path=paths),
    calls_of("touch", path=paths),
    calls_of("rm", path=paths | st.just("/d")),
    calls_of("mv", source=paths, destination=paths | st.sampled_from(["/", "/d", "/d/"])),
    calls_of("plan_edit", path=st.just("/plans/a.plan"), insert_line=st.just(0), insert_content=words),
    calls_of("plan_list"),
    calls_of("deleted_files"),
    calls_of("teleport", path=paths),
    calls_of("read", paths=paths),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(batch=st.lists(any_call, min_size=2, max_size=8))
async def test_batch_has_the_same_results_as_sequential_calls(
    workspace: WorkspaceFixture, batch: Sequence[ToolCall]
) -> None:
    at_once = replace(workspace, caller=await new_caller(workspace.engine))
    in_order = replace(workspace, caller=await new_caller(workspace.engine))
    for one in (at_once, in_order):
        await one.result("write", path="/a", content="one\n")
        await one.result("write", path="/f", content="one\n")

    together = await execute_all(at_once.engine.executor, batch, at_once.caller)
    apart = [await in_order.call(call.name, **call.arguments) for call in batch]

    assert [result(outcome) for outcome in together] == [result(outcome) for outcome in apart]
    assert path_state(at_once) == path_state(in_order)
    assert await histories(at_once) == await histories(in_order)


def result(outcome: Outcome | BaseException) -> tuple[str, ...]:
    """Everything in a call's outcome except ids and times."""
    assert isinstance(outcome, Outcome)
    fields = outcome.error.fields if outcome.error else {}
    said = (repr(outcome.result), repr(outcome.error), repr(fields), str(outcome.state))
    return tuple(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[\d:.]+Z", "…", words) for words in said)


def path_state(workspace: WorkspaceFixture) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(workspace.project)): path.read_bytes() if path.is_file() else None
        for path in workspace.project.rglob("*")
    }


async def histories(workspace: WorkspaceFixture) -> list[tuple[str, int]]:
    """Every file that ever existed, with its number of versions."""
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select path, version_number from toolcrib.files where workspace_id = %s order by path, version_number",
            (workspace.caller.workspace_id,),
        )
        return [(path, number) for path, number in await cursor.fetchall()]


class Meeting:
    """A tool whose calls end only when a given number of them have started."""

    def __init__(self, count: int) -> None:
        self._barrier = asyncio.Barrier(count)
        self.log: list[str] = []

    async def meet(self, path: AbsolutePath) -> str:
        """Wait for the others."""
        async with asyncio.timeout(PATIENCE):
            await self._barrier.wait()
        return path.path

    async def note(self, path: AbsolutePath, context: ToolContext) -> None:
        """Write down when this begins and when it ends."""
        self.log.append(f"begin {path.path}")
        await context.tree.lookup(path)
        self.log.append(f"end {path.path}")


async def test_calls_that_do_not_conflict_run_in_parallel(workspace: WorkspaceFixture) -> None:
    meeting = Meeting(3)
    workspace = with_tools(workspace, tool(danger=Danger.DANGEROUS)(meeting.meet))
    calls = [ToolCall("meet", {"path": path}) for path in ("/c", "/a", "/b")]

    outcomes = await execute_all(workspace.engine.executor, calls, workspace.caller)

    assert [outcome.result for outcome in outcomes if isinstance(outcome, Outcome)] == ["/c", "/a", "/b"]


@pytest.mark.parametrize(
    "effects",
    [lambda given: Effects(writes=(given.path,)), lambda _: Effects(command="make"), lambda _: Effects()],
    ids=["the same place", "a program", "nothing declared"],
)
async def test_calls_that_conflict_run_in_order(workspace: WorkspaceFixture, effects: Any) -> None:
    meeting = Meeting(1)
    workspace = with_tools(workspace, tool(effects=effects)(meeting.note))
    calls = [ToolCall("note", {"path": path}) for path in ("/d", "/d/a", "/d/a/b", "/d")]

    await execute_all(workspace.engine.executor, calls, workspace.caller)

    assert meeting.log == [f"{what} {call.arguments['path']}" for call in calls for what in ("begin", "end")]


async def test_move_waits_for_the_folder_that_an_earlier_write_creates(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a", content="one")
    calls = [
        ToolCall("write", {"path": "/d/e/new", "content": "two"}),
        ToolCall("mv", {"source": "/a", "destination": "/d/e/a"}),
    ]

    outcomes = await execute_all(workspace.engine.executor, calls, workspace.caller)

    assert all(isinstance(outcome, Outcome) and outcome.succeeded for outcome in outcomes)
    assert (workspace.project / "d/e/a").read_text() == "one"


async def test_each_call_has_its_own_id_and_record(workspace: WorkspaceFixture) -> None:
    calls = [ToolCall("write", {"path": f"/d/{number}", "content": "x"}) for number in range(20)]

    outcomes = await execute_all(workspace.engine.executor, calls, workspace.caller)

    ids = [outcome.call_id for outcome in outcomes if isinstance(outcome, Outcome) and outcome.succeeded]
    assert len(set(ids)) == 20
    assert workspace.caller.call_id not in ids
    assert {record.call_id for record in await audit_records(workspace)} == set(ids)
    assert sorted(path.name for path in (workspace.project / "d").iterdir()) == sorted(str(n) for n in range(20))


async def test_failing_denied_or_buggy_call_stops_no_other(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, crash)
    calls = [
        ToolCall("write", {"path": "/a", "content": "one"}),
        ToolCall("edit", {"path": "/a", "old_string": "nowhere", "new_string": "x"}),
        ToolCall("read", {"path": "/../etc/passwd"}),
        ToolCall("crash", {}),
        ToolCall("teleport", {}),
        ToolCall("edit", {"path": "/a", "old_string": "one", "new_string": "two"}),
        ToolCall("read", {"path": "/a"}),
    ]

    outcomes = await execute_all(workspace.engine.executor, calls, workspace.caller)

    def ending(outcome: Outcome | BaseException) -> str:
        if not isinstance(outcome, Outcome):
            return type(outcome).__name__
        return outcome.error.code if outcome.error else "done"

    assert [ending(outcome) for outcome in outcomes] == [
        "done", "VALIDATION_ERROR", "VALIDATION_ERROR", "ZeroDivisionError", "NOT_FOUND", "done", "done",
    ]  # fmt: skip
    assert isinstance(outcomes[-1], Outcome)
    assert outcomes[-1].result["content"] == "two"


async def test_non_member_is_denied_every_call(workspace: WorkspaceFixture) -> None:
    calls = [ToolCall("ls", {}), ToolCall("write", {"path": "/a", "content": "x"})]

    outcomes = await execute_all(workspace.engine.executor, calls, await stranger(workspace))

    assert [type(outcome) for outcome in outcomes] == [Forbidden, Forbidden]


async def test_cancelled_batch_leaves_no_call_behind(workspace: WorkspaceFixture) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def linger(path: AbsolutePath) -> None:
        """Stay until somebody is tired of it."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    workspace = with_tools(workspace, tool(danger=Danger.DANGEROUS)(linger))
    calls = [ToolCall("linger", {"path": "/a"}), ToolCall("write", {"path": "/a", "content": "x"})]
    batch = asyncio.create_task(execute_all(workspace.engine.executor, calls, workspace.caller))
    await begun.wait()

    batch.cancel()

    with pytest.raises(asyncio.CancelledError):
        await batch
    assert ended.is_set()
    assert not (workspace.project / "a").exists()


async def test_no_calls_have_no_outcomes(workspace: WorkspaceFixture) -> None:
    assert await execute_all(workspace.engine.executor, [], workspace.caller) == []
