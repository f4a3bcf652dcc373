"""The journal: one line for each call, in a fixed format, without the contents of files."""

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.integration.conftest import WorkspaceFixture, new_person
from tests.integration.gate.test_approvals import in_session
from tests.integration.tools.builders import journal_of, speaker, state_of, tool_result
from toolcrib.core.errors import Forbidden
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.gate.call_stages import CallRequest
from toolcrib.gate.execution_log import ExecutionLog, redact_result

SECRET = "the words of a file"


async def test_line_has_the_documented_format(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)

    outcome = await workspace.call("fs.write", agent, path="@project/a.md", content=SECRET)

    [line] = journal_of(workspace, agent)
    digest = sha256(SECRET.encode()).hexdigest()
    assert list(line) == ["ts", "kind", "toolCallId", "toolName", "agentId", "input", "output", "durationMs"]
    assert line | {"ts": "", "durationMs": 0} == {
        "ts": "",
        "kind": "tool.exec",
        "toolCallId": str(outcome.call_id),
        "toolName": "fs.write",
        "agentId": str(agent.agent_id),
        "input": {"path": "@project/a.md", "content": {"bytes": len(SECRET), "sha256": digest}},
        "output": {"ok": True, "path": "@project/a.md", "bytesWritten": len(SECRET), "sha256After": digest},
        "durationMs": 0,
    }
    assert line["ts"].endswith("Z")
    assert isinstance(line["durationMs"], int)


async def test_no_line_contains_file_contents(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace, toolsets=["mounts", "project", "studio", "workspace"], tool_permissions=None)
    (workspace.project / "a.md").write_text(f"{SECRET}\n")
    (workspace.project / "b.json").write_text('{"x": "y"}')
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fs.read", {"path": "@project/a.md"}),
        ("fs.search", {"path": "@project", "pattern": "words"}),
        ("read_file", {"path": "a.md"}),
        ("file_read", {"path": "a.md"}),
        ("read", {"path": "/a.md"}),
        ("cat", {"paths": ["/a.md"]}),
        ("read_multiple_files", {"paths": ["/a.md"]}),
    ]
    for tool, arguments in calls:
        assert (await workspace.call(tool, agent, **arguments)).succeeded

    lines = journal_of(workspace, agent)

    assert [line["toolName"] for line in lines] == [tool for tool, _ in calls]
    assert SECRET not in json.dumps(lines)
    assert lines[0]["output"]["content"] == {
        "bytes": len(SECRET) + 1,
        "sha256": sha256(f"{SECRET}\n".encode()).hexdigest(),
    }
    assert lines[1]["output"]["matches"][0]["path"] == "@project/a.md"
    assert lines[1]["output"]["stats"] == {"filesScanned": 2, "matchesFound": 1}


async def test_denied_or_failed_call_has_a_line_with_the_reason(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace, tool_permissions={"fs.read": {"allowed": True}, "file_read": {"allowed": True}})
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fs.read", {"path": "@project/../x"}),
        ("fs.read", {"path": "@project/none"}),
        ("fs.read", {}),
        ("fs.write", {"path": "@project/a", "content": SECRET}),
        ("file_read", {"path": ".env"}),
        ("teleport", {}),
    ]
    for tool, arguments in calls:
        await workspace.call(tool, agent, **arguments)

    errors = [line["output"]["error"] for line in journal_of(workspace, agent)]

    assert [error["code"] for error in errors] == [
        "E_SANDBOX_VIOLATION",
        "ENOENT",
        "E_INTERNAL",
        "E_INTERNAL",
        "VALIDATION_ERROR",
        "NOT_FOUND",
    ]
    assert "@project/../x" in errors[0]["message"]
    assert errors[0]["details"] == {"violation": "outside_mount"}


async def test_every_session_and_every_caller_outside_sessions_has_its_own_journal(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)
    session = await in_session(workspace, agent)
    for caller in (workspace.caller, agent, session):
        await tool_result(workspace, "fs.list", caller, path="@project")

    assert [line["agentId"] for line in journal_of(workspace, workspace.caller)] == [None]
    assert len(journal_of(workspace, agent)) == len(journal_of(workspace, session)) == 1


async def test_people_who_use_another_dialect_have_no_journal(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a", content="x")
    await tool_result(workspace, "read_file", path="a")

    assert list(state_of(workspace, workspace.caller).iterdir()) == []


async def test_journal_is_read_like_any_file_and_read_only(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)
    await tool_result(workspace, "fs.list", agent, path="@project")

    read = await tool_result(workspace, "fs.read", agent, path="@state/logs/execution.jsonl")
    listed = await tool_result(workspace, "fs.list", agent, path="@state/logs")
    forged = await tool_result(workspace, "fs.write", agent, path="@state/logs/execution.jsonl", content="{}\n")

    assert json.loads(read["content"])["toolName"] == "fs.list"
    assert listed["entries"] == ["execution.jsonl"]
    assert forged["error"]["code"] == "E_SANDBOX_VIOLATION"
    assert [line["toolName"] for line in journal_of(workspace, agent)] == ["fs.list", "fs.read", "fs.list", "fs.write"]
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select count(*) from toolcrib.files where workspace_id = %s", (workspace.caller.workspace_id,)
        )
        assert await cursor.fetchone() == (0,)


async def test_concurrent_calls_have_a_line_each(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)

    await asyncio.gather(*(tool_result(workspace, "fs.read", agent, path=f"@project/{number}") for number in range(40)))

    lines = journal_of(workspace, agent)
    assert sorted(int(line["input"]["path"].rpartition("/")[2]) for line in lines) == list(range(40))
    assert len({line["toolCallId"] for line in lines}) == 40


async def test_stranger_leaves_no_line(workspace: WorkspaceFixture) -> None:
    stranger = replace(workspace.caller, user_id=await new_person(workspace.stores))

    with pytest.raises(Forbidden):
        await workspace.call("fs.read", stranger, path="@project/a")
    await workspace.call("fs.read", stranger, path="@project/../a")

    states = workspace.settings.data_dir / "workspaces" / str(workspace.caller.workspace_id) / "state"
    assert not (states / str(stranger.user_id)).exists()


def listing(workspace: WorkspaceFixture, **arguments: Any) -> CallRequest:
    tool = workspace.engine.registry.get("fs.list")
    return CallRequest(ToolCall("fs.list", arguments), workspace.caller, tool)


async def _done(request: CallRequest) -> Outcome:
    return Outcome(request.caller.call_id, OutcomeState.DONE)


async def _broken(request: CallRequest) -> Outcome:
    raise ZeroDivisionError


async def test_long_journal_is_rotated_and_the_older_one_stays(workspace: WorkspaceFixture) -> None:
    journal = ExecutionLog(
        workspace.engine.workspace_services.files, workspace.engine.workspace_services.mounts, most_bytes=1_000
    )
    for number in range(12):
        await journal.around(listing(workspace, number=number), _done)

    newer, older = journal_of(workspace, workspace.caller), journal_of(workspace, workspace.caller, "execution.1.jsonl")
    numbers = [line["input"]["number"] for line in [*older, *newer]]

    assert numbers == list(range(numbers[0], 12))
    assert {path.name for path in (state_of(workspace, workspace.caller) / "logs").iterdir()} <= {
        "execution.jsonl",
        "execution.1.jsonl",
    }
    assert len(older) >= 4


async def test_line_that_cannot_be_written_is_logged_and_fails_no_call(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)
    (state_of(workspace, agent) / "logs").write_text("in the way")

    with capture_logs() as logged:
        assert (await tool_result(workspace, "fs.write", agent, path="@project/a", content="x"))["ok"]

    assert [(entry["event"], entry["log_level"]) for entry in logged] == [("execution_log.write_failed", "warning")]
    assert (workspace.project / "a").read_text() == "x"


async def test_link_or_pipe_in_its_path_is_not_followed(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace)
    logs = state_of(workspace, agent) / "logs"
    logs.mkdir()
    (workspace.project / "target").write_text("as it was")
    (logs / "execution.jsonl").symlink_to(workspace.project / "target")

    with capture_logs() as logged:
        await tool_result(workspace, "fs.list", agent, path="@project")

    assert [entry["event"] for entry in logged] == ["execution_log.write_failed"]
    assert (workspace.project / "target").read_text() == "as it was"


async def test_line_is_short_and_readable_whatever_the_call_contains(workspace: WorkspaceFixture) -> None:
    hostile: list[Any] = ["\ud800\0", float("nan"), 10**5_000, [[["deep"] * 3] * 2_000], "x" * 100_000]
    agent = await speaker(workspace)

    for value in hostile:
        await workspace.call("fs.read", agent, path=value, colour={"a": value})
    await workspace.call("teleport" * 1_000, agent)

    lines = journal_of(workspace, agent)
    assert len(lines) == len(hostile) + 1
    assert max(len(json.dumps(line)) for line in lines) < 12_000


def test_result_is_recorded_without_its_contents() -> None:
    assert redact_result("a text") == {"bytes": 6, "sha256": sha256(b"a text").hexdigest()}
    assert redact_result({"entries": [f"{number}" for number in range(25)]})["entries"][-1] == "… and 5 more"
    tool_result = redact_result({"content": {"card": 1234}, "path": "/a", "files": ["text"], "total": 3})
    assert set(tool_result["content"]) == set(tool_result["files"][0]) == {"bytes", "sha256"}
    assert (tool_result["path"], tool_result["total"]) == ("/a", 3)


async def test_call_with_an_internal_error_has_a_line(workspace: WorkspaceFixture) -> None:
    journal = ExecutionLog(workspace.engine.workspace_services.files, workspace.engine.workspace_services.mounts)

    with pytest.raises(ZeroDivisionError):
        await journal.around(listing(workspace), _broken)

    [line] = journal_of(workspace, workspace.caller)
    assert line["output"] == {"error": {"code": "INTERNAL_ERROR", "message": "Internal server error."}}
