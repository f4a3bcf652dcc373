"""Background processes behind the gate: on the live tree, tracked, undone, and ended with their owner."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import Crib
from tests.integration.gate.test_approvals import asked
from tests.integration.tools.shell.builders import another_engine, new_crib
from tests.wait_until import PATIENCE
from toolcrib.core.callers import Caller
from toolcrib.core.errors import NotFound, PermissionDenied, Superseded, ToolFailed
from toolcrib.core.files import AuthorKind, Version
from toolcrib.core.ids import ProcessId, SessionId
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import ToolCall
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.server_processes import HeartbeatConnection
from toolcrib.storage.sessions import SessionStore
from toolcrib.tools.shell.background_results import process_id
from toolcrib.tools.shell.background_shell import MOST_OF_ONE, BackgroundJob

pytestmark = pytest.mark.req("SH-5", part="tools behind the gate, on the live tree")

TOOLS = ("bash_start", "bash_output", "bash_input", "bash_stop", "bash_list")


@pytest.fixture
async def crib(database: Database, settings: Settings) -> AsyncIterator[Crib]:
    crib = await new_crib(database, settings)
    yield crib
    await crib.engine.background.close()


async def minder(
    crib: Crib, *, trust: str = "autonomous", unprotected_paths: tuple[str, ...] = (), **start: Any
) -> Caller:
    """An agent that may start background processes."""
    permissions = {name: {"allowed": True} for name in TOOLS} | {"bash_start": {"allowed": True, **start}}
    return await crib.agent(
        trust=trust, toolsets=("studio",), tool_permissions=permissions, unprotected_paths=unprotected_paths
    )


async def in_session(crib: Crib, caller: Caller) -> Caller:
    return replace(caller, session_id=(await SessionStore(crib.database).create(Tenant.of(caller))).id)


async def said(crib: Crib, tool: str, caller: Caller | None = None, /, **arguments: Any) -> dict[str, Any]:
    outcome = await crib.call(tool, caller or crib.caller, **arguments)
    assert outcome.succeeded, outcome.error
    assert not outcome.result["is_error"], outcome.result
    return dict(outcome.result)


async def until(crib: Crib, process: str, text: str, caller: Caller | None = None) -> dict[str, Any]:
    """Return the result in which the process has printed ``text``, with every change until then."""
    async with asyncio.timeout(PATIENCE):
        while True:
            told = await said(crib, "bash_output", caller, process_id=process, wait=10)
            if text in told["output"]:
                return told
            assert told["metadata"]["running"], told


async def ended(crib: Crib, process: str, caller: Caller | None = None) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while (told := await said(crib, "bash_output", caller, process_id=process, offset=10**9, wait=10)) and told[
            "metadata"
        ]["running"]:
            pass
    return await said(crib, "bash_output", caller, process_id=process)


async def versions(crib: Crib, path: str) -> list[Version]:
    """Return a file's history, newest first."""
    tenant, files = Tenant.of(crib.caller), crib.engine.shelves.files
    [file] = (await files.lookup(tenant, [WorkspacePath(Mount.PROJECT, path)])).files
    assert file is not None
    return await files.versions(tenant, file.id, before=None, limit=10)


async def test_process_is_started_written_to_read_by_offset_and_stopped(crib: Crib) -> None:
    started = await said(crib, "bash_start", command="while read line; do echo got $line; done; echo bye")
    process = started["metadata"]["processId"]
    assert started["metadata"]["running"]
    assert started["metadata"]["isolation"] == "namespaces"

    answered = await said(crib, "bash_input", process_id=process, text="one\ntwo\n")
    whole = await until(crib, process, "got two")
    assert whole["output"] == "got one\ngot two"
    later = await said(crib, "bash_output", process_id=process, offset=8)
    assert (later["output"], later["metadata"]["nextOffset"]) == ("got two", 16)
    assert answered["metadata"]["processId"] == process
    [listed] = (await said(crib, "bash_list"))["metadata"]["processes"]
    assert (listed["processId"], listed["running"]) == (process, True)

    stopped = await said(crib, "bash_stop", process_id=process)
    assert (stopped["metadata"]["running"], stopped["metadata"]["stopReason"]) == (False, "stopped on request")
    [listed] = (await said(crib, "bash_list"))["metadata"]["processes"]
    assert listed["running"] is False


@pytest.mark.parametrize(("text", "why"), [("echo a\0b", "NUL"), ("x" * 100_001, "the limit is")], ids=["nul", "long"])
async def test_invalid_command_is_rejected_and_leaves_no_process(crib: Crib, text: str, why: str) -> None:
    refused = await crib.call("bash_start", crib.caller, command=text)
    listed = await crib.call("bash_list", crib.caller)

    assert refused.result["is_error"]
    assert why in refused.result["output"]
    assert "No background process" in str(listed.result["output"])


async def test_output_is_shown_live_also_after_the_call(crib: Crib) -> None:
    shown: list[str] = []
    call = ToolCall("bash_start", {"command": "echo first; read _; echo later; sleep 600"})
    outcome = await crib.engine.executor.execute(call, crib.caller, emit=shown.append)
    process = outcome.result["metadata"]["processId"]

    await said(crib, "bash_input", process_id=process, text="\n")
    await until(crib, process, "later")

    assert "".join(shown) == "first\nlater\n"


async def test_exit_is_reported_with_the_exit_code(crib: Crib) -> None:
    started = await said(crib, "bash_start", command="cat > out; exit 3")
    process = started["metadata"]["processId"]
    await said(crib, "bash_input", process_id=process, text="text", end=True)

    told = await ended(crib, process)

    assert told["metadata"]["exitCode"] == 3
    assert "ended with exit code 3" in told["output"]
    assert (crib.project / "out").read_text() == "text"


async def test_changes_are_tracked_under_the_call_and_undone_with_it(crib: Crib) -> None:
    (crib.project / "kept").write_text("before")
    (crib.project / "removed").write_text("precious")
    (crib.project / "same").write_text("same")
    agent = await minder(crib)
    outcome = await crib.call(
        "bash_start",
        agent,
        command="echo after > kept; rm removed; mkdir -p d; echo new > d/made; echo done; sleep 600",
    )
    process = outcome.result["metadata"]["processId"]
    await until(crib, process, "done", agent)
    await said(crib, "bash_stop", agent, process_id=process)

    first, imported = await versions(crib, "/kept")
    assert (first.author_kind, first.agent_id, first.call_id) == (AuthorKind.AGENT, agent.agent_id, outcome.call_id)
    assert imported.author_kind is AuthorKind.EXTERNAL
    [untouched] = await versions(crib, "/same")
    assert untouched.author_kind is AuthorKind.EXTERNAL

    await crib.result("undo", calls=[str(outcome.call_id)])

    assert (crib.project / "kept").read_text() == "before"
    assert (crib.project / "removed").read_text() == "precious"
    assert not (crib.project / "d").exists()


async def test_result_lists_the_changes_since_the_previous_one(crib: Crib) -> None:
    started = await said(crib, "bash_start", command="while read name; do echo x > $name; echo made $name; done")
    process = started["metadata"]["processId"]

    await said(crib, "bash_input", process_id=process, text="a\n")
    told = await until(crib, process, "made a")
    answers = [await said(crib, "bash_input", process_id=process, text="b\n", offset=told["metadata"]["nextOffset"])]
    answers.append(await until(crib, process, "made b"))

    assert [answer["metadata"]["changed"]["paths"] for answer in answers if "changed" in answer["metadata"]] == [["b"]]


async def test_changes_that_another_call_finds_first_are_attributed_to_the_process(crib: Crib) -> None:
    (crib.project / "a").write_text("before")
    started = await said(crib, "bash_start", command="read _; echo after > a; echo done; sleep 600")
    job = await crib.engine.background.find(crib.caller, process_id(started["metadata"]["processId"]))
    crib.engine.background.write(job, b"\n", end=False)
    await spoken(crib, started["metadata"]["processId"])

    await crib.result("read", path="/a")

    newest, _ = await versions(crib, "/a")
    assert newest.author_kind is AuthorKind.USER
    await said(crib, "bash_stop", process_id=started["metadata"]["processId"])


async def spoken(crib: Crib, process: str) -> BackgroundJob:
    """Wait until it has printed something, without reading the tree."""
    job = await crib.engine.background.find(crib.caller, process_id(process))
    assert (await crib.engine.background.piece(job, offset=0, most=1, wait=30)).data
    return job


async def test_changes_by_others_through_the_gate_stay_theirs(crib: Crib) -> None:
    agent = await minder(crib)
    outcome = await crib.call("bash_start", agent, command="echo up; sleep 600")
    process = outcome.result["metadata"]["processId"]
    await crib.result("write", path="/mine", content="mine")

    await said(crib, "bash_stop", agent, process_id=process)

    [version] = await versions(crib, "/mine")
    assert (version.author_kind, version.agent_id) == (AuthorKind.USER, None)


async def test_with_processes_of_two_owners_the_author_is_unknown(crib: Crib) -> None:
    one, other = await minder(crib), await minder(crib)
    (crib.project / "a").write_text("before")
    first = await said(crib, "bash_start", one, command="echo up; sleep 600")
    second = await said(crib, "bash_start", other, command="echo after > a; echo up; sleep 600")
    await until(crib, second["metadata"]["processId"], "up", other)

    for agent, started in ((one, first), (other, second)):
        await said(crib, "bash_stop", agent, process_id=started["metadata"]["processId"])

    assert {version.author_kind for version in await versions(crib, "/a")} == {AuthorKind.EXTERNAL}


async def test_ignored_files_are_neither_tracked_nor_undone(crib: Crib) -> None:
    (crib.project / ".gitignore").write_text("node_modules/\n")
    (crib.project / "node_modules").mkdir()
    (crib.project / "node_modules" / "old").write_text("old")
    outcome = await crib.call("bash_start", command="echo new > node_modules/new; echo x > x; echo done")
    process = outcome.result["metadata"]["processId"]
    await ended(crib, process)

    await crib.result("undo", calls=[str(outcome.call_id)])

    assert sorted(path.name for path in (crib.project / "node_modules").iterdir()) == ["new", "old"]
    assert not (crib.project / "x").exists()


async def test_file_too_large_for_the_history_is_named(crib: Crib) -> None:
    (crib.project / "huge").write_bytes(b"\0" * (crib.settings.max_file_bytes + 1))

    started = await said(crib, "bash_start", command="echo up; sleep 600")

    assert started["metadata"]["untracked"] == ["huge"]


# Ownership


async def test_process_belongs_to_its_session(crib: Crib) -> None:
    inside, other = await in_session(crib, crib.caller), await in_session(crib, crib.caller)
    started = await said(crib, "bash_start", inside, command="sleep 600")
    process = started["metadata"]["processId"]

    for stranger in (other, crib.caller):
        outcome = await crib.call("bash_output", stranger, process_id=process)
        assert isinstance(outcome.error, NotFound)
        assert (await said(crib, "bash_list", stranger))["metadata"]["processes"] == []


@pytest.mark.req("SH-5", part="gone when the session ends")
async def test_process_ends_when_its_session_is_deleted(crib: Crib) -> None:
    await said(crib, "bash_start", command="true")
    before = len(list(descendants(os.getpid())))
    inside = await in_session(crib, crib.caller)
    started = await said(crib, "bash_start", inside, command="(setsid sleep 600 &); echo up; sleep 600")
    job = await crib.engine.background.find(inside, process_id(started["metadata"]["processId"]))
    assert inside.session_id is not None

    await SessionStore(crib.database).delete(Tenant.of(inside), SessionId(inside.session_id))

    await asyncio.wait_for(job.finished.wait(), PATIENCE)
    assert len(list(descendants(os.getpid()))) == before


async def test_agent_has_a_limit_of_processes(crib: Crib) -> None:
    agent = await minder(crib)
    for _ in range(MOST_OF_ONE):
        await said(crib, "bash_start", agent, command="sleep 600")

    refused = await crib.call("bash_start", agent, command="sleep 600")

    assert f"{MOST_OF_ONE} background processes are running" in refused.result["output"]
    assert (await said(crib, "bash_start", await minder(crib), command="true"))["metadata"]["processId"]


async def test_another_server_reports_where_it_runs_and_ends_it_on_request(crib: Crib, settings: Settings) -> None:
    started = await said(crib, "bash_start", command="sleep 600")
    process = started["metadata"]["processId"]
    other = another_engine(crib)
    heart = HeartbeatConnection(settings.system_url, ProcessId(crib.engine.background._process), settings.node_name)
    heart.beat()

    told = await other.call("bash_output", process_id=process)
    assert isinstance(told.error, ToolFailed)
    assert f"runs on node {settings.node_name!r}" in told.error.message
    await said(other, "bash_stop", process_id=process)

    stopped = (await ended(crib, process))["metadata"]["stopReason"]
    assert "no longer a member" in stopped
    heart.close()


async def test_another_node_starts_none_on_a_tree_that_it_does_not_have(crib: Crib) -> None:
    with pytest.raises(Superseded, match=f"on node {crib.settings.node_name!r}"):
        await another_engine(crib, node_name="another").call("bash_start", command="sleep 600")

    assert (await said(crib, "bash_list"))["metadata"]["processes"] == []


async def test_changes_of_a_dead_servers_process_are_reported_and_tracked(crib: Crib) -> None:
    (crib.project / "a").write_text("before")
    outcome = await crib.call("bash_start", command="read _; echo after > a; echo new > b; echo done; sleep 600")
    process = outcome.result["metadata"]["processId"]
    job = await crib.engine.background.find(crib.caller, process_id(process))
    crib.engine.background.write(job, b"\n", end=False)
    await spoken(crib, process)
    other = another_engine(crib)

    [listed] = (await said(other, "bash_list"))["metadata"]["processes"]
    assert (listed["running"], listed["stopReason"]) == (False, "its server stopped unexpectedly")
    await other.engine.background.recover()

    assert (
        "ended (its server stopped unexpectedly)"
        in (await other.call("bash_output", process_id=process)).result["output"]
    )
    await other.result("undo", calls=[str(outcome.call_id)])
    assert (crib.project / "a").read_text() == "before"
    assert not (crib.project / "b").exists()


async def test_no_process_outlives_a_server_shutdown(database: Database, settings: Settings) -> None:
    crib = await new_crib(database, settings)
    await said(crib, "bash_start", command="true")
    before = len(list(descendants(os.getpid())))
    await said(crib, "bash_start", command="trap '' TERM; (setsid sleep 600 &); sleep 600")

    await crib.engine.background.close()

    assert len(list(descendants(os.getpid()))) <= before
    assert {one["running"] for one in (await said(crib, "bash_list"))["metadata"]["processes"]} == {False}


# Approval and denial


async def test_guided_agent_needs_approval(crib: Crib) -> None:
    agent = await minder(crib, trust="guided")

    approval = await asked(crib, agent, "bash_start", command="npm run dev")

    assert approval.effects["runs"] == "npm run dev"
    assert (await said(crib, "bash_list", agent))["metadata"]["processes"] == []


async def test_agent_limited_to_paths_cannot_start_one(crib: Crib) -> None:
    agent = await minder(crib, paths=["src/**"])

    outcome = await crib.call("bash_start", agent, command="sleep 600")

    assert isinstance(outcome.error, PermissionDenied)
    assert "cannot be" in outcome.error.message


@pytest.mark.req("SH-2", part="background processes")
async def test_environment_is_the_allow_list(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2")

    started = await said(crib, "bash_start", command="env; echo done")

    told = await until(crib, started["metadata"]["processId"], "done")
    assert "hunter2" not in told["output"]


async def test_audit_log_has_its_changes_and_its_exit(crib: Crib) -> None:
    outcome = await crib.call("bash_start", command="echo x > x")
    await ended(crib, outcome.result["metadata"]["processId"])

    async with crib.database.as_system() as connection:
        cursor = await connection.execute(
            "select outcome, rule, isolation, files from toolcrib.audit_records where call_id = %s order by position",
            (outcome.call_id,),
        )
        rows = await cursor.fetchall()

    assert sorted(row[0] for row in rows) == ["changed", "done", "ended"]
    assert {row[2] for row in rows} == {"namespaces"}
    [changed] = [row[3] for row in rows if row[0] == "changed"]
    assert [file["path"] for file in changed] == ["@project/x"]
