"""The gate: the order of its checks, which calls it allows, and their outcomes."""

from typing import Any

import pytest

from tests.databases import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import (
    EVERYTHING,
    READING,
    WRITING,
    allowed,
    audit_records,
    audit_records_of,
    chatter,
    crash,
    fail,
    forecast,
    joined,
    launch,
    rows,
    stranger,
    trusted,
    wait_forever,
    with_tools,
)
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import (
    BadArguments,
    CallDenied,
    Forbidden,
    NotFound,
    Overloaded,
    PathOutsideMount,
    PermissionDenied,
    ProtectedPath,
    Superseded,
    TimedOut,
    ToolcribError,
)
from toolcrib.core.tool_calls import OutcomeState, ToolCall
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, OperationalError, Tenant
from toolcrib.tools.tool import tool
from toolcrib.wiring.tool_runtime import assemble

WRITE = {"path": "/a.txt", "content": "a\n"}

# Each call also breaks every later rule: the first check decides.
IN_ORDER = [
    ("no such tool", "teleport", {"path": "/../x"}, {}, NotFound, "NOT_FOUND"),
    ("a wrong argument", "write", {"path": "/.env"}, {}, BadArguments, "VALIDATION_ERROR"),
    ("a path that leaves", "write", {"path": "/../.env", "content": ""}, {}, PathOutsideMount, "VALIDATION_ERROR"),
    ("no permission", "write", {"path": "/.env", "content": ""}, {}, PermissionDenied, "NOT_PERMITTED"),
    (
        "not on these paths",
        "write",
        {"path": "/.env", "content": ""},
        {"tool_permissions": allowed("write", paths=["src/**"])},
        PermissionDenied,
        "NOT_PERMITTED",
    ),
    (
        "a protected name",
        "write",
        {"path": "/.env", "content": ""},
        {"tool_permissions": EVERYTHING},
        ProtectedPath,
        "VALIDATION_ERROR",
    ),
]


@pytest.mark.parametrize(
    ("tool", "arguments", "rules", "error", "code"), [case[1:] for case in IN_ORDER], ids=[case[0] for case in IN_ORDER]
)
async def test_first_failing_check_decides_and_nothing_changes(
    workspace: WorkspaceFixture,
    tool: str,
    arguments: dict[str, Any],
    rules: dict[str, Any],
    error: type[ToolcribError],
    code: str,
) -> None:
    outcome = await workspace.call(tool, await workspace.agent(**rules), **arguments)

    assert type(outcome.error) is error
    assert outcome.error.code == code
    assert outcome.state is (OutcomeState.DENIED if issubclass(error, CallDenied) else OutcomeState.DONE)
    assert not outcome.succeeded
    assert list(workspace.project.iterdir()) == []
    assert await rows(workspace, "select id from toolcrib.versions where workspace_id = %s") == []


async def test_allowed_call_without_approval_is_executed(workspace: WorkspaceFixture) -> None:
    agent = await trusted(workspace)

    outcome = await workspace.call("write", agent, **WRITE)

    assert outcome.succeeded
    assert (workspace.project / "a.txt").read_text() == "a\n"


async def test_call_that_needs_approval_waits_and_changes_nothing(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("write", await workspace.agent(tool_permissions=EVERYTHING), **WRITE)

    assert outcome.is_waiting
    assert "a person must approve the call" in outcome.metadata["reason"]
    assert list(workspace.project.iterdir()) == []
    assert await rows(workspace, "select id from toolcrib.versions where workspace_id = %s") == []


@pytest.mark.parametrize(
    ("trust", "tool", "asked"),
    [
        ("supervised", "read", True),
        ("supervised", "write", True),
        ("guided", "read", False),
        ("guided", "write", True),
        ("autonomous", "read", False),
        ("autonomous", "write", False),
    ],
)
async def test_trust_decides_whether_a_person_is_asked(
    workspace: WorkspaceFixture, trust: str, tool: str, asked: bool
) -> None:
    await workspace.result("write", **WRITE)
    arguments: dict[str, Any] = {"path": "/a.txt"} if tool == "read" else {**WRITE, "overwrite": True}

    outcome = await workspace.call(tool, await trusted(workspace, trust=trust), **arguments)

    assert outcome.is_waiting is asked
    assert outcome.succeeded is not asked


@pytest.mark.parametrize("trust", ["supervised", "guided", "autonomous"])
async def test_trust_adds_no_permission(workspace: WorkspaceFixture, trust: str) -> None:
    agent = await workspace.agent(trust=trust, tool_permissions=allowed("read"))

    assert isinstance((await workspace.call("write", agent, **WRITE)).error, PermissionDenied)
    assert isinstance((await workspace.call("ls", agent, path="/")).error, PermissionDenied)


@pytest.mark.parametrize("tool", READING)
async def test_agent_without_permissions_reads(workspace: WorkspaceFixture, tool: str) -> None:
    await workspace.result("write", **WRITE)
    key = {"cat": "paths", "read_multiple_files": "paths"}.get(tool, "path")
    path = "/" if tool == "ls" else "/a.txt"

    outcome = await workspace.call(tool, await workspace.agent(), **{key: [path] if key == "paths" else path})

    assert outcome.succeeded


WRITING_CALLS: dict[str, dict[str, Any]] = {
    "write": {"path": "/b.txt", "content": ""},
    "edit": {"path": "/a.txt", "old_string": "a", "new_string": "b"},
    "rm": {"path": "/a.txt"},
    "mv": {"source": "/a.txt", "destination": "/b.txt"},
    "touch": {"path": "/a.txt"},
    "mkdir": {"path": "/b"},
}


@pytest.mark.parametrize("tool", WRITING)
async def test_agent_without_permissions_does_not_write(workspace: WorkspaceFixture, tool: str) -> None:
    await workspace.result("write", **WRITE)

    outcome = await workspace.call(tool, await workspace.agent(trust="autonomous"), **WRITING_CALLS[tool])

    assert isinstance(outcome.error, PermissionDenied)
    assert [path.name for path in workspace.project.iterdir()] == ["a.txt"]


async def test_tool_is_limited_to_its_paths(workspace: WorkspaceFixture) -> None:
    permissions = {**allowed("write", "mv", paths=["src/**", "!src/gen/**"]), **allowed("read", "cat", paths=["*.md"])}
    agent = await workspace.agent(trust="autonomous", tool_permissions=permissions)
    for path in ("/notes.md", "/code.py"):
        await workspace.result("write", path=path, content="x")

    async def error_of(tool: str, **arguments: Any) -> ToolcribError | None:
        return (await workspace.call(tool, agent, **arguments)).error

    assert await error_of("write", path="/src/a/b.py", content="") is None
    assert isinstance(await error_of("write", path="/src/gen/b.py", content=""), PermissionDenied)
    assert isinstance(await error_of("write", path="/lib/b.py", content=""), PermissionDenied)
    assert isinstance(await error_of("write", path="/src/../lib/b.py", content=""), PermissionDenied)
    assert isinstance(await error_of("mv", source="/src/a/b.py", destination="/lib.py"), PermissionDenied)
    assert isinstance(await error_of("mv", source="/code.py", destination="/src/code.py"), PermissionDenied)
    assert await error_of("mv", source="/src/a/b.py", destination="/src/c.py") is None
    assert await error_of("read", path="/notes.md") is None
    assert isinstance(await error_of("read", path="/code.py"), PermissionDenied)

    batch = await workspace.call("cat", agent, paths=["/notes.md", "/code.py"])
    assert [file["error"] is None for file in batch.result["files"]] == [True, False]


@pytest.mark.parametrize("role", list(WorkspaceRole))
async def test_viewer_reads_and_cannot_write_and_no_approval_is_requested(
    workspace: WorkspaceFixture, role: WorkspaceRole
) -> None:
    await workspace.result("write", **WRITE)
    person = await joined(workspace, role)

    assert (await workspace.call("read", person, path="/a.txt")).succeeded
    assert (await workspace.call("ls", person)).succeeded
    for name, arguments in WRITING_CALLS.items():
        if role is WorkspaceRole.VIEWER:
            with pytest.raises(Forbidden, match="viewer"):
                await workspace.call(name, person, **arguments)
    if role is not WorkspaceRole.VIEWER:
        assert (await workspace.call("write", person, path="/b.txt", content="b")).succeeded
    assert (workspace.project / "a.txt").read_text() == "a\n"
    assert (workspace.project / "b.txt").exists() is (role is not WorkspaceRole.VIEWER)


async def test_person_reads_and_writes_protected_names(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/.env", content="KEY=1\n")

    assert (await workspace.result("read", path="/.env"))["content"] == "KEY=1\n"


@pytest.mark.parametrize("tool", ["read", "write", "ls", "cat", "file_info", "deleted_files", "file_version"])
async def test_non_member_is_denied_and_recorded(workspace: WorkspaceFixture, tool: str) -> None:
    await workspace.result("write", **WRITE)
    outsider = await stranger(workspace)
    given: dict[str, dict[str, Any]] = {
        "read": {"path": "/a.txt"},
        "write": WRITE,
        "cat": {"paths": ["/a.txt"]},
        "file_info": {"path": "/a.txt"},
        "file_version": {"version_id": str(outsider.call_id)},
    }

    with pytest.raises(Forbidden):
        await workspace.call(tool, outsider, **given.get(tool, {}))

    *_, record = await audit_records(workspace)
    assert (record.user_id, record.decision, record.rule) == (outsider.user_id, "deny", "membership")
    assert (record.outcome, record.error_code) == ("denied", "FORBIDDEN")


async def test_tool_that_does_not_use_the_tree_is_for_members_only(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, launch, forecast)

    for name in ("launch", "forecast"):
        with pytest.raises(Forbidden):
            await workspace.call(name, await stranger(workspace))
    with pytest.raises(Forbidden, match="viewer"):
        await workspace.call("launch", await joined(workspace, WorkspaceRole.VIEWER))

    assert (await workspace.call("forecast", await joined(workspace, WorkspaceRole.VIEWER))).result == "rain"
    assert (await workspace.call("launch", await joined(workspace, WorkspaceRole.MEMBER))).result == "launched"


async def test_model_sees_only_tools_that_its_agent_may_use(workspace: WorkspaceFixture) -> None:
    def shown(rules: Any) -> set[str]:
        return {definition.name for definition in workspace.engine.registry.definitions_for_scope(rules)}

    reader = (await workspace.agent()).agent
    writer = (await workspace.agent(tool_permissions=allowed("read", "write"))).agent
    historian = (await workspace.agent(toolsets=["history"])).agent
    assert reader is not None
    assert writer is not None
    assert historian is not None

    assert shown(None) >= {*READING, *WRITING}
    assert shown(reader.rules) == {*READING, "plan_read", "plan_list", "grep", "glob", "find"}
    assert shown(writer.rules) == {"read", "write"}
    assert shown(historian.rules) == {"changes", "file_versions", "file_version", "file_compare", "deleted_files"}


@pytest.mark.parametrize("rules", [{}, {"tool_permissions": allowed("read", "rm")}, {"toolsets": ["history"]}])
async def test_agent_cannot_call_a_tool_that_it_is_not_offered(
    workspace: WorkspaceFixture, rules: dict[str, Any]
) -> None:
    agent = await workspace.agent(trust="autonomous", **rules)
    assert agent.agent is not None
    shown = {tool.name for tool in workspace.engine.registry.list_for_scope(agent.agent.rules)}
    calls = {**WRITING_CALLS, "read": {"path": "/a"}, "ls": {}, "file_info": {"path": "/a"}, "deleted_files": {}}

    refused = {
        name
        for name, given in calls.items()
        if isinstance((await workspace.call(name, agent, **given)).error, PermissionDenied)
    }

    assert refused == set(calls) - shown


async def test_expected_tool_failure_is_an_outcome(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, fail)

    outcome = await workspace.call("fail")

    assert (outcome.state, outcome.succeeded) == (OutcomeState.DONE, False)
    assert outcome.error is not None
    assert outcome.error.message == "The paper jammed. Open the lid."
    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.decision, record.outcome, record.error_code) == ("allow", "failed", "TOOL_FAILED")


async def test_tool_with_a_bug_raises_and_is_recorded(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, crash)

    with pytest.raises(ZeroDivisionError):
        await workspace.call("crash")

    [record] = await audit_records(workspace)
    assert (record.tool, record.decision, record.outcome) == ("crash", "allow", "failed")
    assert record.error_code == "INTERNAL_ERROR"


async def test_unreachable_database_is_an_exception(
    workspace: WorkspaceFixture, database_urls: DatabaseUrls, settings: Settings
) -> None:
    async with Database.open(database_urls.app, database_urls.system, pool_size=2) as short_lived:
        engine = assemble(settings, short_lived)

    for call in (ToolCall("read", {"path": "/a"}), ToolCall("write", WRITE), ToolCall("teleport", {})):
        with pytest.raises(OperationalError):
            await engine.executor.execute(call, workspace.caller)
    assert list(workspace.project.iterdir()) == []


async def test_call_ends_at_its_agents_own_time_limit(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, wait_forever)
    agent = await workspace.agent(trust="autonomous", tool_permissions=allowed("wait_forever", timeout=0.05))

    outcome = await workspace.call("wait_forever", agent)

    assert isinstance(outcome.error, TimedOut)
    assert "`wait_forever` timed out" in outcome.error.message
    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.outcome, record.error_code) == ("failed", "TIMED_OUT")
    assert 40_000 < record.duration_us < 30_000_000


async def test_node_that_lost_a_workspace_changes_nothing_in_it(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", **WRITE)
    await rows(
        workspace, "update toolcrib.workspaces set home_node = 'another', home_epoch = home_epoch + 1 where id = %s"
    )

    for name, arguments in WRITING_CALLS.items():
        with pytest.raises(Superseded, match="node"):
            await workspace.call(name, **arguments)
    # Its disk may contain anything by now, or nothing.
    with pytest.raises(Superseded, match="node"):
        await workspace.call("read", path="/a.txt")
    with pytest.raises(Superseded, match="node"):
        await workspace.engine.workspace_services.sync.recover(Tenant(workspace.caller.workspace_id))

    assert [(path.name, path.read_text()) for path in workspace.project.iterdir()] == [("a.txt", "a\n")]
    assert len(await rows(workspace, "select id from toolcrib.versions where workspace_id = %s")) == 1
    assert await rows(workspace, "select file_id from toolcrib.pending_applies where workspace_id = %s") == []
    assert [record.error_code for record in await audit_records(workspace)] == [
        None,
        *["SUPERSEDED"] * (len(WRITING_CALLS) + 1),
    ]


async def test_truncated_result_can_be_fetched_by_the_call_id(workspace: WorkspaceFixture) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    await workspace.result("write", path="/long.txt", content=text)
    agent = await workspace.agent()

    outcome = await workspace.call("read", agent, path="/long.txt", limit=20_000)

    assert outcome.metadata["truncated"]["total_bytes"] > 0
    assert outcome.metadata["truncated"]["call_id"] == str(outcome.call_id)
    assert "bytes truncated" in outcome.result["content"]
    assert len(outcome.result["content"]) < 60_000
    kept = await workspace.stores.calls.get(Tenant.of(agent), outcome.call_id)
    assert kept.result["content"] == text
    assert len(await audit_records_of(workspace, outcome.call_id)) == 1


async def test_result_of_a_writing_tool_is_truncated_for_a_model_too(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, chatter)
    agent = await workspace.agent(trust="autonomous", tool_permissions=allowed("chatter"))

    outcome = await workspace.call("chatter", agent, path="@project/a")

    assert outcome.metadata["truncated"]["call_id"] == str(outcome.call_id)
    assert len(outcome.result) < 60_000
    assert (await workspace.stores.calls.get(Tenant.of(agent), outcome.call_id)).result == "x" * 200_000
    assert (workspace.project / "a").read_text() == "a"


async def test_person_gets_the_complete_result(workspace: WorkspaceFixture) -> None:
    text = "x" * 200_000
    await workspace.result("write", path="/long.txt", content=text)

    outcome = await workspace.call("read", path="/long.txt")

    assert (outcome.result["content"], dict(outcome.metadata)) == (text, {})


@pytest.mark.parametrize(("is_repeatable", "code"), [(False, "UNAVAILABLE"), (True, "OVERLOADED")])
async def test_overload_after_a_call_began_says_so_unless_it_may_be_repeated(
    workspace: WorkspaceFixture, is_repeatable: bool, code: str
) -> None:
    sent = []

    @tool(name="send_and_search", idempotent=is_repeatable)
    async def send_and_search() -> str:
        """Do something outside, and then more than the server has room for."""
        sent.append("letter")
        raise Overloaded("Too many searches are queued. Try again in a moment.")

    outcome = await with_tools(workspace, send_and_search).call("send_and_search")

    assert sent == ["letter"]
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == (code, "Too many searches are queued. Try again in a moment.")
