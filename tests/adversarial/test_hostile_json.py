"""Case 82 at the gate: arguments too hostile for JSON, the database or the stack. Every call ends and is recorded."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture, workspace
from tests.integration.gate.builders import audit_records_of, trusted
from toolcrib.core.callers import Caller

__all__ = ["workspace"]


def nested(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def nested_objects(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = {"content": value, "a": value} if levels < 3 else {"a": value}
    return value


HOSTILE: dict[str, Callable[[], Any]] = {
    "nul": lambda: "a\0b",
    "only nul": lambda: "\0",
    "escaped nul": lambda: "\\u0000",
    "backslashes before nul": lambda: "\\\\\0",
    "high surrogate": lambda: "\ud800",
    "low surrogate": lambda: "a\udfffb",
    "surrogates in the wrong order": lambda: "\ude00\ud83d",
    "surrogate beside nan": lambda: ["\ud800", math.nan, math.inf],
    "surrogate beside an emoji": lambda: "\U0001f600\ud800",
    "nan": lambda: math.nan,
    "infinity": lambda: [math.inf, -math.inf],
    "huge integer": lambda: 10**5_000,
    "integer beyond numeric": lambda: -(10**140_000),
    "huge float": lambda: 1e308,
    "300 levels": lambda: nested(300),
    "2,000 levels": lambda: nested(2_000),
    "200,000 levels": lambda: nested(200_000),
    "objects of 100,000 levels": lambda: nested_objects(100_000),
    "surrogate below 500 levels": lambda: [nested(500), "\ud800"],
    "key with nul": lambda: {"\0": 1},
    "key with surrogate": lambda: {"\ud800": {"\udfff": math.nan}},
    "empty key": lambda: {"": None},
    "long": lambda: "\0" * 20_000,
}


@pytest.fixture
async def agent(workspace: WorkspaceFixture) -> Caller:
    return await trusted(workspace)


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
async def test_case_82_any_argument_value_ends_the_call_and_is_recorded(
    workspace: WorkspaceFixture, agent: Caller, make: Callable[[], Any]
) -> None:
    value = make()
    await workspace.result("write", path="/a.txt", content="a\n")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": value}),
        ("read", {"path": "/a.txt", "limit": value}),
        ("read", {"path": "/a.txt", "offset": value}),
        ("ls", {"limit": value}),
        ("cat", {"paths": [value, "/a.txt"]}),
        ("cat", {"paths": value}),
        ("write", {"path": value, "content": "x"}),
        ("write", {"path": "/b.txt", "content": "x", "file_type": value}),
        ("edit", {"path": "/a.txt", "old_string": value, "new_string": "b"}),
        ("edit", {"path": "/a.txt", "insert_line": value, "insert_content": "b"}),
        ("edit", {"path": "/a.txt", "old_string": "nowhere", "new_string": "b", "last_read_hash": value}),
        ("edit", {"path": "/a.txt", "edits": value}),
        ("edit", {"path": "/a.txt", "edits": [value]}),
        ("edit", {"path": "/a.txt", "edits": [{"old_string": value, "new_string": value}]}),
        ("plan_write", {"title": value, "content": "x", "path": "/a.plan"}),
        ("plan_write", {"title": "x", "content": value, "path": "/a.plan"}),
        ("plan_write", {"title": "x", "content": "x", "path": value}),
        ("plan_read", {"name": value}),
        ("plan_read", {"path": "/a.plan", "offset": value, "cursor": value}),
        ("plan_edit", {"path": "/a.plan", "old_string": value, "new_string": value}),
        ("plan_list", {"status": value, "limit": value}),
        ("mv", {"source": "/none", "destination": value}),
        ("file_versions", {"file_id": value}),
        ("read", {"path": "/a.txt", "unknown": value}),
        ("teleport", {"anywhere": value}),
    ]
    if isinstance(value, str):
        calls += [(value, {}), ("read", {value: 1})]

    for caller in (workspace.caller, agent):
        for tool, arguments in calls:
            outcome = await workspace.call(tool, caller, **arguments)
            assert len(await audit_records_of(workspace, outcome.call_id)) == 1
            assert outcome.error is None or outcome.error.code not in ("INTERNAL_ERROR", "TOOL_FAILED")


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
async def test_case_82_any_content_is_stored_and_read_back_or_rejected(
    workspace: WorkspaceFixture, agent: Caller, make: Callable[[], Any]
) -> None:
    outcome = await workspace.call("write", agent, path="/a", content=make())

    assert len(await audit_records_of(workspace, outcome.call_id)) == 1
    if not outcome.succeeded:
        assert outcome.error is not None
        assert set(outcome.error.fields) == {"content"}
        assert list(workspace.project.iterdir()) == []
        return
    for tool, arguments in (
        ("read", {"path": "/a"}),
        ("cat", {"paths": ["/a"]}),
        ("read_multiple_files", {"paths": ["/a"]}),
        ("file_info", {"path": "/a"}),
    ):
        for caller in (workspace.caller, agent):
            assert (await workspace.call(tool, caller, **arguments)).succeeded, tool


@pytest.mark.parametrize("text", ["a\0b\n", "\ufffe\uffff\n", "\u2028\n", "\U0010ffff\n", "\x1b[31m\n"])
async def test_case_82_text_with_unusual_characters_is_read_back_unchanged(
    workspace: WorkspaceFixture, text: str
) -> None:
    await workspace.result("write", path="/a", content=text)

    assert (workspace.project / "a").read_bytes() == text.encode()
    read = await workspace.result("read", path="/a")
    assert read["content"] == text or "\0" in text


async def test_case_82_truncated_result_is_stored_except_for_what_cannot_be_stored(
    workspace: WorkspaceFixture, agent: Caller
) -> None:
    text = 'print("\\u0000 \\ud800 \U0001f600")\n' * 5_000
    await workspace.result("write", path="/a.py", content=text)

    outcome = await workspace.call("read", agent, path="/a.py", limit=5_000)

    assert outcome.metadata["truncated"]["total_bytes"] > 0
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select result ->> 'content' from toolcrib.tool_calls where id = %s", (outcome.call_id,)
        )
        assert await cursor.fetchone() == (text,)


async def test_case_82_hostile_call_does_not_corrupt_the_records_of_others(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a\n")

    outcomes = await asyncio.gather(
        *(workspace.call("read", path="/a.txt", unknown=make()) for make in HOSTILE.values()),
        *(workspace.call("read", path="/a.txt") for _ in range(20)),
    )

    assert [outcome.succeeded for outcome in outcomes[-20:]] == [True] * 20
    for outcome in outcomes:
        assert len(await audit_records_of(workspace, outcome.call_id)) == 1
