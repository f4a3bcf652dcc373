"""What `explain` predicts for a call is what then happens to it."""

from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import EVERYTHING, allowed, audit_records, audit_records_of, put, with_tools
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, CallDenied, NotFound, PathOutsideMount
from toolcrib.core.tool_calls import ToolCall

RULES: dict[str, dict[str, Any] | None] = {
    "a person": None,
    "an agent without rules": {},
    "a supervised agent": {"trust": "supervised", "tool_permissions": EVERYTHING},
    "a guided agent": {"trust": "guided", "tool_permissions": EVERYTHING},
    "an autonomous agent": {"trust": "autonomous", "tool_permissions": {**EVERYTHING, **allowed("put")}},
    "an agent bound to paths": {
        "trust": "autonomous",
        "tool_permissions": allowed("read", "write", "cat", paths=["src/**"]),
    },
    "an agent of another toolset": {"trust": "autonomous", "toolsets": ["history"]},
    "an agent with a pattern lifted": {
        "trust": "autonomous",
        "unprotected_paths": [".env"],
        "tool_permissions": EVERYTHING,
    },
}

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "/a.txt"}),
    ("read", {"path": "/src/b.txt"}),
    ("read", {"path": "/.env"}),
    ("read", {"path": "/not/there"}),
    ("cat", {"paths": ["/a.txt", "/.env", "/src/b.txt", "/.git/config"]}),
    ("write", {"path": "/c.txt", "content": "c"}),
    ("write", {"path": "/src/c.txt", "content": "c"}),
    ("write", {"path": "/.env", "content": "c", "overwrite": True}),
    ("write", {"path": "/.gitattributes", "content": "c"}),
    ("mv", {"source": "/a.txt", "destination": "/.bashrc"}),
    ("rm", {"path": "/.env"}),
    ("put", {"path": "@pkg/a", "text": "x"}),
    ("put", {"path": "@state/logs/a", "text": "x"}),
    ("put", {"path": "@central/a", "text": "x"}),
    ("deleted_files", {}),
]


async def as_said(workspace: WorkspaceFixture, who: str) -> Caller:
    rules = RULES[who]
    return workspace.caller if rules is None else await workspace.agent(**rules)


@pytest.mark.parametrize("who", RULES)
async def test_explanation_matches_what_then_happens(workspace: WorkspaceFixture, who: str) -> None:
    workspace = with_tools(workspace, put)
    for path in ("/a.txt", "/src/b.txt", "/.env", "/.git/config"):
        await workspace.result("write", path=path, content="x\n")
    caller = await as_said(workspace, who)

    for tool, arguments in CALLS:
        said = await workspace.engine.executor.explain(ToolCall(tool, arguments), caller)
        outcome = await workspace.call(tool, caller, **arguments)

        assert outcome.is_waiting is (said.action == "ask" and outcome.error is None), (tool, arguments)
        if outcome.is_waiting:
            continue
        refused = isinstance(outcome.error, CallDenied)
        assert refused is (said.action == "deny"), (tool, arguments, said, outcome)
        assert refused is (outcome.error is not None and outcome.error.code != "NOT_FOUND")
        [record] = await audit_records_of(workspace, outcome.call_id)
        assert (record.decision, record.rule) == (said.action, said.rule), (tool, arguments)
        if said.action == "deny":
            assert outcome.error is not None
            assert outcome.error.message == said.reason
        if tool == "cat" and outcome.succeeded:
            withheld = {file["path"]: file["error"] for file in outcome.result["files"] if file["error"]}
            assert withheld == {entry.path.removeprefix("@project"): entry.reason for entry in said.denied_files}


async def test_explaining_runs_nothing_and_records_nothing(workspace: WorkspaceFixture) -> None:
    said = await workspace.engine.executor.explain(ToolCall("write", {"path": "/a", "content": "x"}), workspace.caller)

    assert (said.action, said.rule, said.required_role) == ("allow", "role.member", "member")
    assert list(workspace.project.iterdir()) == []
    assert await audit_records(workspace) == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (ToolCall("teleport", {}), NotFound),
        (ToolCall("read", {}), BadArguments),
        (ToolCall("read", {"path": "/../x"}), PathOutsideMount),
    ],
)
async def test_malformed_call_raises_the_same_error_as_the_gate(
    workspace: WorkspaceFixture, call: ToolCall, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await workspace.engine.executor.explain(call, workspace.caller)
