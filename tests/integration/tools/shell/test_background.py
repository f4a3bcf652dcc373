"""Background processes behind the gate: on the live tree, tracked, undone, and ended with their owner."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked
from tests.integration.sandbox.sandbox_fixture import SANDBOX
from tests.integration.tools.shell.builders import another_engine, new_workspace_fixture
from tests.wait_until import PATIENCE
from toolcrib.core.callers import Caller
from toolcrib.core.errors import NotFound, PermissionDenied, Superseded, ToolFailed
from toolcrib.core.files import AuthorKind, Version
from toolcrib.core.ids import ProcessId, SessionId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import ToolCall
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.server_processes import HeartbeatConnection
from toolcrib.tools.shell.background_shell import MOST_OF_ONE, BackgroundJob
from toolcrib.tools.shell.background_tools import process_id

TOOLS = ("bash_start", "bash_output", "bash_input", "bash_stop", "bash_list")


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> AsyncIterator[WorkspaceFixture]:
    workspace = await new_workspace_fixture(database, settings)
    yield workspace
    await workspace.engine.background.close()


async def minder(
    workspace: WorkspaceFixture, *, trust: str = "autonomous", unprotected_paths: tuple[str, ...] = (), **start: Any
) -> Caller:
    """An agent that may start background processes."""
    permissions = {name: {"allowed": True} for name in TOOLS} | {"bash_start": {"allowed": True, **start}}
    return await workspace.agent(
        trust=trust, toolsets=("studio",), tool_permissions=permissions, unprotected_paths=unprotected_paths
    )


async def in_session(workspace: WorkspaceFixture, caller: Caller) -> Caller:
    return replace(caller, session_id=(await workspace.stores.sessions.create(Tenant.of(caller))).id)


async def said(
    workspace: WorkspaceFixture, tool: str, caller: Caller | None = None, /, **arguments: Any
) -> dict[str, Any]:
    outcome = await workspace.call(tool, caller or workspace.caller, **arguments)
    assert outcome.succeeded, outcome.error
    assert not outcome.result["is_error"], outcome.result
    return dict(outcome.result)


async def until(workspace: WorkspaceFixture, process: str, text: str, caller: Caller | None = None) -> dict[str, Any]:
    """Return the result in which the process has printed ``text``, with every change until then."""
    async with asyncio.timeout(PATIENCE):
        while True:
            tool_result = await said(workspace, "bash_output", caller, process_id=process, wait=10)
            if text in tool_result["output"]:
                return tool_result
            assert tool_result["metadata"]["running"], tool_result


async def ended(workspace: WorkspaceFixture, process: str, caller: Caller | None = None) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while (
            tool_result := await said(workspace, "bash_output", caller, process_id=process, offset=10**9, wait=10)
        ) and tool_result["metadata"]["running"]:
            pass
    return await said(workspace, "bash_output", caller, process_id=process)


async def versions(workspace: WorkspaceFixture, path: str) -> list[Version]:
    """Return a file's history, newest first."""
    tenant, files = workspace.tenant, workspace.engine.workspace_services.files
    [file] = (await files.lookup(tenant, [WorkspacePath(Mount.PROJECT, path)])).files
    assert file is not None
    return await files.versions(tenant, file.id, before=None, limit=10)


async def test_process_is_started_written_to_read_by_offset_and_stopped(workspace: WorkspaceFixture) -> None:
    started = await said(workspace, "bash_start", command="while read line; do echo got $line; done; echo bye")
    process = started["metadata"]["processId"]
    assert started["metadata"]["running"]
    assert started["metadata"]["isolation"] == "namespaces"

    answered = await said(workspace, "bash_input", process_id=process, text="one\ntwo\n")
    whole = await until(workspace, process, "got two")
    assert whole["output"] == "got one\ngot two"
    later = await said(workspace, "bash_output", process_id=process, offset=8)
    assert (later["output"], later["metadata"]["nextOffset"]) == ("got two", 16)
    assert answered["metadata"]["processId"] == process
    [listed] = (await said(workspace, "bash_list"))["metadata"]["processes"]
    assert (listed["processId"], listed["running"]) == (process, True)

    stopped = await said(workspace, "bash_stop", process_id=process)
    assert (stopped["metadata"]["running"], stopped["metadata"]["stopReason"]) == (False, "stopped on request")
    [listed] = (await said(workspace, "bash_list"))["metadata"]["processes"]
    assert listed["running"] is False


@pytest.mark.parametrize(("text", "why"), [("echo a\0b", "NUL"), ("x" * 100_001, "the limit is")], ids=["nul", "long"])
async def test_invalid_command_is_rejected_and_leaves_no_process(
    workspace: WorkspaceFixture, text: str, why: str
) -> None:
    refused = await workspace.call("bash_start", workspace.caller, command=text)
    listed = await workspace.call("bash_list", workspace.caller)

    assert refused.result["is_error"]
    assert why in refused.result["output"]
    assert "No background process" in str(listed.result["output"])


async def test_output_is_shown_live_also_after_the_call(workspace: WorkspaceFixture) -> None:
    shown: list[str] = []
    call = ToolCall("bash_start", {"command": "echo first; read _; echo later; sleep 600"})
    outcome = await workspace.engine.executor.execute(call, workspace.caller, emit=shown.append)
    process = outcome.result["metadata"]["processId"]

    await said(workspace, "bash_input", process_id=process, text="\n")
    await until(workspace, process, "later")

    assert "".join(shown) == "first\nlater\n"


async def test_exit_is_reported_with_the_exit_code(workspace: WorkspaceFixture) -> None:
    started = await said(workspace, "bash_start", command="cat > out; exit 3")
    process = started["metadata"]["processId"]
    await said(workspace, "bash_input", process_id=process, text="text", end=True)

    tool_result = await ended(workspace, process)

    assert tool_result["metadata"]["exitCode"] == 3
    assert "ended with exit code 3" in tool_result["output"]
    assert (workspace.project / "out").read_text() == "text"


async def test_changes_are_tracked_under_the_call_and_undone_with_it(workspace: WorkspaceFixture) -> None:
    (workspace.project / "kept").write_text("before")
    (workspace.project / "removed").write_text("precious")
    (workspace.project / "same").write_text("same")
    agent = await minder(workspace)
    outcome = await workspace.call(
        "bash_start",
        agent,
        command="echo after > kept; rm removed; mkdir -p d; echo new > d/made; echo done; sleep 600",
    )
    process = outcome.result["metadata"]["processId"]
    await until(workspace, process, "done", agent)
    await said(workspace, "bash_stop", agent, process_id=process)

    first, imported = await versions(workspace, "/kept")
    assert (first.author_kind, first.agent_id, first.call_id) == (AuthorKind.AGENT, agent.agent_id, outcome.call_id)
    assert imported.author_kind is AuthorKind.EXTERNAL
    [untouched] = await versions(workspace, "/same")
    assert untouched.author_kind is AuthorKind.EXTERNAL

    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert (workspace.project / "kept").read_text() == "before"
    assert (workspace.project / "removed").read_text() == "precious"
    assert not (workspace.project / "d").exists()


async def test_result_lists_the_changes_since_the_previous_one(workspace: WorkspaceFixture) -> None:
    started = await said(workspace, "bash_start", command="while read name; do echo x > $name; echo made $name; done")
    process = started["metadata"]["processId"]

    await said(workspace, "bash_input", process_id=process, text="a\n")
    tool_result = await until(workspace, process, "made a")
    answers = [
        await said(
            workspace, "bash_input", process_id=process, text="b\n", offset=tool_result["metadata"]["nextOffset"]
        )
    ]
    answers.append(await until(workspace, process, "made b"))

    assert [answer["metadata"]["changed"]["paths"] for answer in answers if "changed" in answer["metadata"]] == [["b"]]


async def test_changes_that_another_call_finds_first_are_attributed_to_the_process(workspace: WorkspaceFixture) -> None:
    (workspace.project / "a").write_text("before")
    started = await said(workspace, "bash_start", command="read _; echo after > a; echo done; sleep 600")
    job = await workspace.engine.background.find(workspace.caller, process_id(started["metadata"]["processId"]))
    job.process.write(b"\n")
    await spoken(workspace, started["metadata"]["processId"])

    await workspace.result("read", path="/a")

    newest, _ = await versions(workspace, "/a")
    assert newest.author_kind is AuthorKind.USER
    await said(workspace, "bash_stop", process_id=started["metadata"]["processId"])


async def spoken(workspace: WorkspaceFixture, process: str) -> BackgroundJob:
    """Wait until it has printed something, without reading the tree."""
    job = await workspace.engine.background.find(workspace.caller, process_id(process))
    assert (await job.output(offset=0, most=1, wait=30)).data
    return job


async def test_changes_by_others_through_the_gate_stay_theirs(workspace: WorkspaceFixture) -> None:
    agent = await minder(workspace)
    outcome = await workspace.call("bash_start", agent, command="echo up; sleep 600")
    process = outcome.result["metadata"]["processId"]
    await workspace.result("write", path="/mine", content="mine")

    await said(workspace, "bash_stop", agent, process_id=process)

    [version] = await versions(workspace, "/mine")
    assert (version.author_kind, version.agent_id) == (AuthorKind.USER, None)


async def test_with_processes_of_two_owners_the_author_is_unknown(workspace: WorkspaceFixture) -> None:
    one, other = await minder(workspace), await minder(workspace)
    (workspace.project / "a").write_text("before")
    first = await said(workspace, "bash_start", one, command="echo up; sleep 600")
    second = await said(workspace, "bash_start", other, command="echo after > a; echo up; sleep 600")
    await until(workspace, second["metadata"]["processId"], "up", other)

    for agent, started in ((one, first), (other, second)):
        await said(workspace, "bash_stop", agent, process_id=started["metadata"]["processId"])

    assert {version.author_kind for version in await versions(workspace, "/a")} == {AuthorKind.EXTERNAL}


async def test_ignored_files_are_neither_tracked_nor_undone(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".gitignore").write_text("node_modules/\n")
    (workspace.project / "node_modules").mkdir()
    (workspace.project / "node_modules" / "old").write_text("old")
    outcome = await workspace.call("bash_start", command="echo new > node_modules/new; echo x > x; echo done")
    process = outcome.result["metadata"]["processId"]
    await ended(workspace, process)

    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert sorted(path.name for path in (workspace.project / "node_modules").iterdir()) == ["new", "old"]
    assert not (workspace.project / "x").exists()


async def test_file_too_large_for_the_history_is_named(workspace: WorkspaceFixture) -> None:
    (workspace.project / "huge").write_bytes(b"\0" * (workspace.settings.max_file_bytes + 1))

    started = await said(workspace, "bash_start", command="echo up; sleep 600")

    assert started["metadata"]["untracked"] == ["huge"]


# Ownership


async def test_process_belongs_to_its_session(workspace: WorkspaceFixture) -> None:
    inside, other = await in_session(workspace, workspace.caller), await in_session(workspace, workspace.caller)
    started = await said(workspace, "bash_start", inside, command="sleep 600")
    process = started["metadata"]["processId"]

    for stranger in (other, workspace.caller):
        outcome = await workspace.call("bash_output", stranger, process_id=process)
        assert isinstance(outcome.error, NotFound)
        assert (await said(workspace, "bash_list", stranger))["metadata"]["processes"] == []


async def test_process_ends_when_its_session_is_deleted(workspace: WorkspaceFixture) -> None:
    await said(workspace, "bash_start", command="true")
    before = len(list(descendants(os.getpid())))
    inside = await in_session(workspace, workspace.caller)
    started = await said(workspace, "bash_start", inside, command="(setsid sleep 600 &); echo up; sleep 600")
    job = await workspace.engine.background.find(inside, process_id(started["metadata"]["processId"]))
    assert inside.session_id is not None

    await workspace.stores.sessions.delete(Tenant.of(inside), SessionId(inside.session_id))

    await asyncio.wait_for(job.finished.wait(), PATIENCE)
    assert len(list(descendants(os.getpid()))) == before


@pytest.mark.long
async def test_agent_has_a_limit_of_processes(workspace: WorkspaceFixture) -> None:
    agent = await minder(workspace)
    for _ in range(MOST_OF_ONE):
        await said(workspace, "bash_start", agent, command="sleep 600")

    refused = await workspace.call("bash_start", agent, command="sleep 600")

    assert f"{MOST_OF_ONE} background processes are running" in refused.result["output"]
    assert (await said(workspace, "bash_start", await minder(workspace), command="true"))["metadata"]["processId"]


async def test_another_server_reports_where_it_runs_and_ends_it_on_request(
    workspace: WorkspaceFixture, settings: Settings
) -> None:
    server = ProcessId(new_id())
    workspace = workspace.with_engine(process_id=server, sandbox=SANDBOX)
    started = await said(workspace, "bash_start", command="sleep 600")
    process = started["metadata"]["processId"]
    other = another_engine(workspace)
    heart = HeartbeatConnection(settings.system_url, server, settings.node_name)
    heart.beat()

    tool_result = await other.call("bash_output", process_id=process)
    assert isinstance(tool_result.error, ToolFailed)
    assert f"runs on node {settings.node_name!r}" in tool_result.error.message
    await said(other, "bash_stop", process_id=process)

    stopped = (await ended(workspace, process))["metadata"]["stopReason"]
    assert "no longer a member" in stopped
    heart.close()
    await workspace.engine.background.close()


async def test_another_node_starts_none_on_a_tree_that_it_does_not_have(workspace: WorkspaceFixture) -> None:
    with pytest.raises(Superseded, match=f"on node {workspace.settings.node_name!r}"):
        await another_engine(workspace, node_name="another").call("bash_start", command="sleep 600")

    assert (await said(workspace, "bash_list"))["metadata"]["processes"] == []


async def test_changes_of_a_dead_servers_process_are_reported_and_tracked(workspace: WorkspaceFixture) -> None:
    (workspace.project / "a").write_text("before")
    outcome = await workspace.call("bash_start", command="read _; echo after > a; echo new > b; echo done; sleep 600")
    process = outcome.result["metadata"]["processId"]
    job = await workspace.engine.background.find(workspace.caller, process_id(process))
    job.process.write(b"\n")
    await spoken(workspace, process)
    other = another_engine(workspace)

    [listed] = (await said(other, "bash_list"))["metadata"]["processes"]
    assert (listed["running"], listed["stopReason"]) == (False, "its server stopped unexpectedly")
    await other.engine.background.recover()

    assert (
        "ended (its server stopped unexpectedly)"
        in (await other.call("bash_output", process_id=process)).result["output"]
    )
    await other.result("undo", calls=[str(outcome.call_id)])
    assert (workspace.project / "a").read_text() == "before"
    assert not (workspace.project / "b").exists()


async def test_changes_of_a_dead_servers_process_to_the_state_of_its_session_are_tracked(
    workspace: WorkspaceFixture,
) -> None:
    caller = await in_session(workspace, workspace.caller)
    command = "read _; echo new > /state/b; echo done; sleep 600"
    started = await workspace.call("bash_start", caller, command=command)
    job = await workspace.engine.background.find(caller, process_id(started.result["metadata"]["processId"]))
    job.process.write(b"\n")
    assert (await job.output(offset=0, most=1, wait=30)).data
    other = another_engine(workspace)

    await other.engine.background.recover()

    undone = await other.call("undo", caller, calls=[str(started.call_id)])
    assert undone.succeeded, undone.error
    assert undone.result["changes"][0]["path"] == "@state/b"
    assert not (await other.call("fs.read", caller, path="@state/b")).succeeded


async def test_no_process_outlives_a_server_shutdown(database: Database, settings: Settings) -> None:
    workspace = await new_workspace_fixture(database, settings)
    await said(workspace, "bash_start", command="true")
    before = len(list(descendants(os.getpid())))
    await said(workspace, "bash_start", command="trap '' TERM; (setsid sleep 600 &); sleep 600")

    await workspace.engine.background.close()

    assert len(list(descendants(os.getpid()))) <= before
    assert {one["running"] for one in (await said(workspace, "bash_list"))["metadata"]["processes"]} == {False}


# Approval and denial


async def test_guided_agent_needs_approval(workspace: WorkspaceFixture) -> None:
    agent = await minder(workspace, trust="guided")

    approval = await asked(workspace, agent, "bash_start", command="npm run dev")

    assert approval.approval.effects["runs"] == "npm run dev"
    assert (await said(workspace, "bash_list", agent))["metadata"]["processes"] == []


async def test_agent_limited_to_paths_cannot_start_one(workspace: WorkspaceFixture) -> None:
    agent = await minder(workspace, paths=["src/**"])

    outcome = await workspace.call("bash_start", agent, command="sleep 600")

    assert isinstance(outcome.error, PermissionDenied)
    assert "cannot be" in outcome.error.message


async def test_environment_is_the_allow_list(workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2")

    started = await said(workspace, "bash_start", command="env; echo done")

    tool_result = await until(workspace, started["metadata"]["processId"], "done")
    assert "hunter2" not in tool_result["output"]


async def test_audit_log_has_its_changes_and_its_exit(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("bash_start", command="echo x > x")
    await ended(workspace, outcome.result["metadata"]["processId"])

    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select outcome, rule, isolation, files from toolcrib.audit_records where call_id = %s order by position",
            (outcome.call_id,),
        )
        rows = await cursor.fetchall()

    assert sorted(row[0] for row in rows) == ["changed", "done", "ended"]
    assert {row[2] for row in rows} == {"namespaces"}
    [changed] = [row[3] for row in rows if row[0] == "changed"]
    assert [file["path"] for file in changed] == ["@project/x"]


async def test_process_sees_the_format_of_a_repository_and_no_secret_of_its_configuration(
    workspace: WorkspaceFixture,
) -> None:
    create = ["git", "init", "-q", "-b", "main", "--object-format=sha256", str(workspace.project)]
    subprocess.run(create, check=True)
    with (workspace.project / ".git" / "config").open("a") as config:
        config.write('[remote "origin"]\n\turl = https://ada:hunter2@example.org/shop.git\n')
    agent = await minder(workspace)

    started = await said(
        workspace, "bash_start", agent, command="git rev-parse --show-object-format; git remote -v; cat .git/config"
    )
    shown = await ended(workspace, started["metadata"]["processId"], agent)

    assert shown["output"].startswith("sha256\norigin\thttps://example.org/shop.git (fetch)\n")
    assert "hunter2" not in shown["output"]
