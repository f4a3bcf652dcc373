"""The gate: the order of its checks, which calls it allows, and their outcomes."""

from typing import Any

import pytest

from tests.conftest import DatabaseUrls
from tests.integration.conftest import Crib
from tests.integration.gate.builders import (
    EVERYTHING,
    READING,
    WRITING,
    allowed,
    book,
    book_of,
    chatter,
    crash,
    fail,
    forecast,
    hired,
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
from toolcrib.storage.tool_calls import ToolCallStore
from toolcrib.wiring import assemble

pytestmark = pytest.mark.req("PO-4", part="the executor")

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
    crib: Crib, tool: str, arguments: dict[str, Any], rules: dict[str, Any], error: type[ToolcribError], code: str
) -> None:
    outcome = await crib.call(tool, await hired(crib, **rules), **arguments)

    assert type(outcome.error) is error
    assert outcome.error.code == code
    assert outcome.state is (OutcomeState.DENIED if issubclass(error, CallDenied) else OutcomeState.DONE)
    assert not outcome.succeeded
    assert list(crib.project.iterdir()) == []
    assert await rows(crib, "select id from toolcrib.versions where workspace_id = %s") == []


async def test_allowed_call_without_approval_is_executed(crib: Crib) -> None:
    agent = await trusted(crib)

    outcome = await crib.call("write", agent, **WRITE)

    assert outcome.succeeded
    assert (crib.project / "a.txt").read_text() == "a\n"


async def test_call_that_needs_approval_waits_and_changes_nothing(crib: Crib) -> None:
    outcome = await crib.call("write", await hired(crib, tool_permissions=EVERYTHING), **WRITE)

    assert outcome.is_waiting
    assert "a person must approve the call" in outcome.metadata["reason"]
    assert list(crib.project.iterdir()) == []
    assert await rows(crib, "select id from toolcrib.versions where workspace_id = %s") == []


@pytest.mark.req("PO-3", part="supervised, guided, autonomous")
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
async def test_trust_decides_whether_a_person_is_asked(crib: Crib, trust: str, tool: str, asked: bool) -> None:
    await crib.result("write", **WRITE)
    arguments: dict[str, Any] = {"path": "/a.txt"} if tool == "read" else {**WRITE, "overwrite": True}

    outcome = await crib.call(tool, await trusted(crib, trust=trust), **arguments)

    assert outcome.is_waiting is asked
    assert outcome.succeeded is not asked


@pytest.mark.req("PO-3", part="trust adds no permission")
@pytest.mark.parametrize("trust", ["supervised", "guided", "autonomous"])
async def test_trust_adds_no_permission(crib: Crib, trust: str) -> None:
    agent = await hired(crib, trust=trust, tool_permissions=allowed("read"))

    assert isinstance((await crib.call("write", agent, **WRITE)).error, PermissionDenied)
    assert isinstance((await crib.call("ls", agent, path="/")).error, PermissionDenied)


@pytest.mark.req("PO-1", part="absent means read-only")
@pytest.mark.parametrize("tool", READING)
async def test_agent_without_permissions_reads(crib: Crib, tool: str) -> None:
    await crib.result("write", **WRITE)
    key = {"cat": "paths", "read_multiple_files": "paths"}.get(tool, "path")
    path = "/" if tool == "ls" else "/a.txt"

    outcome = await crib.call(tool, await hired(crib), **{key: [path] if key == "paths" else path})

    assert outcome.succeeded


WRITING_CALLS: dict[str, dict[str, Any]] = {
    "write": {"path": "/b.txt", "content": ""},
    "edit": {"path": "/a.txt", "old_string": "a", "new_string": "b"},
    "rm": {"path": "/a.txt"},
    "mv": {"source": "/a.txt", "destination": "/b.txt"},
    "touch": {"path": "/a.txt"},
    "mkdir": {"path": "/b"},
}


@pytest.mark.req("PO-1", part="absent means read-only")
@pytest.mark.parametrize("tool", WRITING)
async def test_agent_without_permissions_does_not_write(crib: Crib, tool: str) -> None:
    await crib.result("write", **WRITE)

    outcome = await crib.call(tool, await hired(crib, trust="autonomous"), **WRITING_CALLS[tool])

    assert isinstance(outcome.error, PermissionDenied)
    assert [path.name for path in crib.project.iterdir()] == ["a.txt"]


@pytest.mark.req("PO-1", part="path globs")
async def test_tool_is_limited_to_its_paths(crib: Crib) -> None:
    permissions = {**allowed("write", "mv", paths=["src/**", "!src/gen/**"]), **allowed("read", "cat", paths=["*.md"])}
    agent = await hired(crib, trust="autonomous", tool_permissions=permissions)
    for path in ("/notes.md", "/code.py"):
        await crib.result("write", path=path, content="x")

    async def error_of(tool: str, **arguments: Any) -> ToolcribError | None:
        return (await crib.call(tool, agent, **arguments)).error

    assert await error_of("write", path="/src/a/b.py", content="") is None
    assert isinstance(await error_of("write", path="/src/gen/b.py", content=""), PermissionDenied)
    assert isinstance(await error_of("write", path="/lib/b.py", content=""), PermissionDenied)
    assert isinstance(await error_of("write", path="/src/../lib/b.py", content=""), PermissionDenied)
    assert isinstance(await error_of("mv", source="/src/a/b.py", destination="/lib.py"), PermissionDenied)
    assert isinstance(await error_of("mv", source="/code.py", destination="/src/code.py"), PermissionDenied)
    assert await error_of("mv", source="/src/a/b.py", destination="/src/c.py") is None
    assert await error_of("read", path="/notes.md") is None
    assert isinstance(await error_of("read", path="/code.py"), PermissionDenied)

    batch = await crib.call("cat", agent, paths=["/notes.md", "/code.py"])
    assert [file["error"] is None for file in batch.result["files"]] == [True, False]


@pytest.mark.req("PO-1", part="people act by role")
@pytest.mark.parametrize("role", list(WorkspaceRole))
async def test_viewer_reads_and_cannot_write_and_no_approval_is_requested(crib: Crib, role: WorkspaceRole) -> None:
    await crib.result("write", **WRITE)
    person = await joined(crib, role)

    assert (await crib.call("read", person, path="/a.txt")).succeeded
    assert (await crib.call("ls", person)).succeeded
    for tool, arguments in WRITING_CALLS.items():
        if role is WorkspaceRole.VIEWER:
            with pytest.raises(Forbidden, match="viewer"):
                await crib.call(tool, person, **arguments)
    if role is not WorkspaceRole.VIEWER:
        assert (await crib.call("write", person, path="/b.txt", content="b")).succeeded
    assert (crib.project / "a.txt").read_text() == "a\n"
    assert (crib.project / "b.txt").exists() is (role is not WorkspaceRole.VIEWER)


@pytest.mark.req("PO-1", part="a person is not bound by protected names")
async def test_person_reads_and_writes_protected_names(crib: Crib) -> None:
    await crib.result("write", path="/.env", content="KEY=1\n")

    assert (await crib.result("read", path="/.env"))["content"] == "KEY=1\n"


@pytest.mark.req("AP-5", part="the program's own check")
@pytest.mark.parametrize("tool", ["read", "write", "ls", "cat", "file_info", "deleted_files", "file_version"])
async def test_non_member_is_denied_and_recorded(crib: Crib, tool: str) -> None:
    await crib.result("write", **WRITE)
    outsider = await stranger(crib)
    given: dict[str, dict[str, Any]] = {
        "read": {"path": "/a.txt"},
        "write": WRITE,
        "cat": {"paths": ["/a.txt"]},
        "file_info": {"path": "/a.txt"},
        "file_version": {"version_id": str(outsider.call_id)},
    }

    with pytest.raises(Forbidden):
        await crib.call(tool, outsider, **given.get(tool, {}))

    *_, record = await book(crib)
    assert (record.user_id, record.decision, record.rule) == (outsider.user_id, "deny", "membership")
    assert (record.outcome, record.error_code) == ("denied", "FORBIDDEN")


@pytest.mark.req("PO-4", part="no tool can forget to ask who calls")
async def test_tool_that_does_not_use_the_tree_is_for_members_only(crib: Crib) -> None:
    crib = with_tools(crib, launch, forecast)

    for name in ("launch", "forecast"):
        with pytest.raises(Forbidden):
            await crib.call(name, await stranger(crib))
    with pytest.raises(Forbidden, match="viewer"):
        await crib.call("launch", await joined(crib, WorkspaceRole.VIEWER))

    assert (await crib.call("forecast", await joined(crib, WorkspaceRole.VIEWER))).result == "rain"
    assert (await crib.call("launch", await joined(crib, WorkspaceRole.MEMBER))).result == "launched"


@pytest.mark.req("PO-2", part="which tools an agent may use")
async def test_model_sees_only_tools_that_its_agent_may_use(crib: Crib) -> None:
    def shown(rules: Any) -> set[str]:
        return {definition.name for definition in crib.engine.registry.definitions_for_scope(rules)}

    reader = (await hired(crib)).agent
    writer = (await hired(crib, tool_permissions=allowed("read", "write"))).agent
    historian = (await hired(crib, toolsets=["history"])).agent
    assert reader is not None
    assert writer is not None
    assert historian is not None

    assert shown(None) >= {*READING, *WRITING}
    assert shown(reader.rules) == {*READING, "plan_read", "plan_list", "grep", "glob", "find"}
    assert shown(writer.rules) == {"read", "write"}
    assert shown(historian.rules) == {"changes", "file_versions", "file_version", "file_compare", "deleted_files"}


@pytest.mark.req("PO-2", part="what is not shown cannot be called")
@pytest.mark.parametrize("rules", [{}, {"tool_permissions": allowed("read", "rm")}, {"toolsets": ["history"]}])
async def test_agent_cannot_call_a_tool_that_it_is_not_offered(crib: Crib, rules: dict[str, Any]) -> None:
    agent = await hired(crib, trust="autonomous", **rules)
    assert agent.agent is not None
    shown = {tool.name for tool in crib.engine.registry.list_for_scope(agent.agent.rules)}
    calls = {**WRITING_CALLS, "read": {"path": "/a"}, "ls": {}, "file_info": {"path": "/a"}, "deleted_files": {}}

    refused = {
        name
        for name, given in calls.items()
        if isinstance((await crib.call(name, agent, **given)).error, PermissionDenied)
    }

    assert refused == set(calls) - shown


@pytest.mark.req("TL-7", part="an expected failure is an outcome")
async def test_expected_tool_failure_is_an_outcome(crib: Crib) -> None:
    crib = with_tools(crib, fail)

    outcome = await crib.call("fail")

    assert (outcome.state, outcome.succeeded) == (OutcomeState.DONE, False)
    assert outcome.error is not None
    assert outcome.error.message == "The paper jammed. Open the lid."
    [record] = await book_of(crib, outcome.call_id)
    assert (record.decision, record.outcome, record.error_code) == ("allow", "failed", "TOOL_FAILED")


@pytest.mark.req("TL-7", part="our own fault is an exception")
async def test_tool_with_a_bug_raises_and_is_recorded(crib: Crib) -> None:
    crib = with_tools(crib, crash)

    with pytest.raises(ZeroDivisionError):
        await crib.call("crash")

    [record] = await book(crib)
    assert (record.tool, record.decision, record.outcome) == ("crash", "allow", "failed")
    assert record.error_code == "INTERNAL_ERROR"


@pytest.mark.req("TL-7", part="an infrastructure failure is an exception")
async def test_unreachable_database_is_an_exception(
    crib: Crib, database_urls: DatabaseUrls, settings: Settings
) -> None:
    async with Database.open(database_urls.app, database_urls.system, pool_size=2) as short_lived:
        engine = assemble(settings, short_lived)

    for call in (ToolCall("read", {"path": "/a"}), ToolCall("write", WRITE), ToolCall("teleport", {})):
        with pytest.raises(OperationalError):
            await engine.executor.execute(call, crib.caller)
    assert list(crib.project.iterdir()) == []


@pytest.mark.req("PO-1", part="timeout")
@pytest.mark.req("TL-7")
@pytest.mark.req("RN-2", part="the limit of a tool call")
async def test_call_ends_at_its_agents_own_time_limit(crib: Crib) -> None:
    crib = with_tools(crib, wait_forever)
    agent = await hired(crib, trust="autonomous", tool_permissions=allowed("wait_forever", timeout=0.05))

    outcome = await crib.call("wait_forever", agent)

    assert isinstance(outcome.error, TimedOut)
    assert "`wait_forever` timed out" in outcome.error.message
    [record] = await book_of(crib, outcome.call_id)
    assert (record.outcome, record.error_code) == ("failed", "TIMED_OUT")
    assert 40_000 < record.duration_us < 30_000_000


@pytest.mark.req("SC-1", part="home_node is checked at commit")
async def test_node_that_lost_a_workspace_changes_nothing_in_it(crib: Crib) -> None:
    await crib.result("write", **WRITE)
    await rows(crib, "update toolcrib.workspaces set home_node = 'another', home_epoch = home_epoch + 1 where id = %s")

    for tool, arguments in WRITING_CALLS.items():
        with pytest.raises(Superseded, match="node"):
            await crib.call(tool, **arguments)
    # Its disk may contain anything by now, or nothing.
    with pytest.raises(Superseded, match="node"):
        await crib.call("read", path="/a.txt")
    with pytest.raises(Superseded, match="node"):
        await crib.engine.shelves.sync.recover(Tenant(crib.caller.workspace_id))

    assert [(path.name, path.read_text()) for path in crib.project.iterdir()] == [("a.txt", "a\n")]
    assert len(await rows(crib, "select id from toolcrib.versions where workspace_id = %s")) == 1
    assert await rows(crib, "select file_id from toolcrib.pending_applies where workspace_id = %s") == []
    assert [record.error_code for record in await book(crib)] == [None, *["SUPERSEDED"] * (len(WRITING_CALLS) + 1)]


@pytest.mark.req("TL-8", part="bounded in one place, and fetched by id")
async def test_truncated_result_can_be_fetched_by_the_call_id(crib: Crib) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    await crib.result("write", path="/long.txt", content=text)
    agent = await hired(crib)

    outcome = await crib.call("read", agent, path="/long.txt", limit=20_000)

    assert outcome.metadata["truncated"]["total_bytes"] > 0
    assert outcome.metadata["truncated"]["call_id"] == str(outcome.call_id)
    assert "bytes truncated" in outcome.result["content"]
    assert len(outcome.result["content"]) < 60_000
    kept = await ToolCallStore(crib.database).get(Tenant.of(agent), outcome.call_id)
    assert kept.result["content"] == text
    assert len(await book_of(crib, outcome.call_id)) == 1


@pytest.mark.req("TL-8", part="also of a call that changed something")
async def test_result_of_a_writing_tool_is_truncated_for_a_model_too(crib: Crib) -> None:
    crib = with_tools(crib, chatter)
    agent = await hired(crib, trust="autonomous", tool_permissions=allowed("chatter"))

    outcome = await crib.call("chatter", agent, path="@project/a")

    assert outcome.metadata["truncated"]["call_id"] == str(outcome.call_id)
    assert len(outcome.result) < 60_000
    assert (await ToolCallStore(crib.database).get(Tenant.of(agent), outcome.call_id)).result == "x" * 200_000
    assert (crib.project / "a").read_text() == "a"


@pytest.mark.req("TL-8", part="people get what they asked for")
async def test_person_gets_the_complete_result(crib: Crib) -> None:
    text = "x" * 200_000
    await crib.result("write", path="/long.txt", content=text)

    outcome = await crib.call("read", path="/long.txt")

    assert (outcome.result["content"], dict(outcome.metadata)) == (text, {})
