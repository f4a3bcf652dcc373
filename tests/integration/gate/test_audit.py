"""The audit log: one record for each call, with who, what, the deciding rule and the changes."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import (
    allowed,
    audit_records,
    audit_records_of,
    joined,
    put,
    rows,
    trusted,
    with_tools,
)
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import ProcessId, new_id


def hexed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_record_has_who_what_when_and_the_rule(workspace: WorkspaceFixture) -> None:
    agent = await trusted(workspace)
    session = await workspace.stores.sessions.create(workspace.tenant, agent_id=agent.agent_id)
    runs = workspace.stores.runs
    run = await runs.submit(workspace.tenant, session.id, "Write.", via="websocket")
    # The third process that executes it.
    for _ in range(3):
        node = workspace.settings.node_name
        await runs.take(ProcessId(new_id()), run.workspace_id, run.id, node=node, lease=0.0)
    agent = replace(agent, session_id=session.id, run_id=run.id, run_epoch=3, via="websocket")

    outcome = await workspace.call("write", agent, path="/a.txt", content="words\n")

    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.user_id, record.agent_id) == (agent.user_id, agent.agent_id)
    assert (record.session_id, record.run_id, record.via) == (agent.session_id, agent.run_id, "websocket")
    assert (record.tool, record.decision, record.rule) == ("write", "allow", "trust.autonomous.dangerous")
    assert (record.outcome, record.error_code, record.decided_by) == ("done", None, None)
    assert record.arguments == {"path": "/a.txt", "content": {"bytes": 6, "sha256": hexed("words\n")}}
    assert datetime.now(UTC) - timedelta(minutes=1) < record.created_at <= datetime.now(UTC)
    assert 0 < record.duration_us < 60_000_000
    [stored] = await rows(
        workspace, "select run_epoch, arguments, state from toolcrib.tool_calls where workspace_id = %s"
    )
    assert stored == (3, record.arguments, "done")


async def test_record_has_the_hashes_before_and_after_of_every_file(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/d/a.txt", content="old\n")
    edited = await workspace.call("edit", path="/d/a.txt", old_string="old", new_string="new")
    moved = await workspace.call("mv", source="/d", destination="/e")
    removed = await workspace.call("rm", path="/e/a.txt")
    touched = await workspace.call("touch", path="/f.txt")

    async def files_of(call: object) -> list[tuple[str, str, str | None, str | None]]:
        [record] = [record for record in await audit_records(workspace) if record.call_id == call]
        return [(file["path"], file["change"], file["before"], file["after"]) for file in record.files]

    old, new = hexed("old\n"), hexed("new\n")
    made = (await audit_records(workspace))[0].files
    assert [(file["path"], file["before"], file["after"]) for file in made] == [
        ("@project/d", None, None),
        ("@project/d/a.txt", None, old),
    ]
    assert await files_of(edited.call_id) == [("@project/d/a.txt", "modified", old, new)]
    assert await files_of(moved.call_id) == [
        ("@project/e", "moved", None, None),
        ("@project/e/a.txt", "moved", new, new),
    ]
    assert await files_of(removed.call_id) == [("@project/e/a.txt", "deleted", new, None)]
    assert await files_of(touched.call_id) == [("@project/f.txt", "created", None, hexed(""))]


async def test_every_call_has_exactly_one_record_whatever_its_outcome(workspace: WorkspaceFixture) -> None:
    agent = await workspace.agent(tool_permissions=allowed("write", "read"))
    viewer = await joined(workspace, WorkspaceRole.VIEWER)
    made = [
        await workspace.call("write", path="/a.txt", content="a"),
        await workspace.call("write", path="/a.txt", content="b"),
        await workspace.call("read", path="/a.txt"),
        await workspace.call("read", path="/b.txt"),
        await workspace.call("read", path=5),
        await workspace.call("read", path="/../b.txt"),
        await workspace.call("teleport"),
        await workspace.call("read", agent, path="/.env"),
        await workspace.call("ls", agent),
        await workspace.call("mv", source="/a.txt", destination="/a.txt"),
    ]
    with pytest.raises(Forbidden):
        await workspace.call("rm", viewer, path="/a.txt")

    found = [(record.tool, record.decision, record.rule, record.outcome) for record in await audit_records(workspace)]
    assert found == [
        ("write", "allow", "role.member", "done"),
        ("write", "allow", "role.member", "failed"),
        ("read", "allow", "role.viewer", "done"),
        ("read", "allow", "role.viewer", "failed"),
        ("read", "none", "arguments", "failed"),
        ("read", "deny", "arguments", "denied"),
        ("teleport", "none", "arguments", "failed"),
        ("read", "deny", "protected-name:.env", "denied"),
        ("ls", "deny", "agent.tool_permissions.ls", "denied"),
        ("mv", "allow", "role.member", "failed"),
        ("rm", "deny", "membership", "denied"),
    ]
    assert [len(await audit_records_of(workspace, outcome.call_id)) for outcome in made] == [1] * len(made)


async def test_many_calls_at_once_are_all_recorded(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a")

    outcomes = await asyncio.gather(*(workspace.call("read", path="/a.txt") for _ in range(100)))

    written = [record.call_id for record in await audit_records(workspace) if record.tool == "read"]
    assert sorted(written) == sorted(outcome.call_id for outcome in outcomes)


async def test_tool_from_one_function_is_committed_and_recorded(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, put)
    agent = await workspace.agent(trust="autonomous", tool_permissions=allowed("put", paths=["notes/**"]))

    outcome = await workspace.call("put", agent, path="@project/notes/a.md", text="# a\n")
    refused = await workspace.call("put", agent, path="@project/a.md", text="# a\n")

    assert outcome.succeeded
    assert outcome.change_set_id is not None
    assert (workspace.project / "notes" / "a.md").read_text() == "# a\n"
    read = await workspace.result("read", path="/notes/a.md")
    assert (read["content"], read["synced"]) == ("# a\n", True)
    [record] = await audit_records_of(workspace, outcome.call_id)
    assert [file["path"] for file in record.files] == ["@project/notes", "@project/notes/a.md"]
    assert record.files[1]["after"] == hexed("# a\n")
    assert refused.error is not None
    assert refused.error.code == "NOT_PERMITTED"
    assert not (workspace.project / "a.md").exists()


async def test_tool_from_one_function_asks_for_approval_like_any_other(workspace: WorkspaceFixture) -> None:
    workspace = with_tools(workspace, put)

    outcome = await workspace.call(
        "put", await workspace.agent(tool_permissions=allowed("put")), path="@project/a", text=""
    )

    assert outcome.is_waiting
    assert list(workspace.project.iterdir()) == []
