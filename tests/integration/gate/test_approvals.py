"""Approvals: a call that needs one is stored; a person decides it once; only what was approved is executed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.gate.builders import EVERYTHING, audit_records_of, joined, rows, with_tools
from tests.wait_until import PATIENCE
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound
from toolcrib.core.ids import CallId, PauseId, ProcessId, new_id
from toolcrib.core.paused_calls import (
    TRANSITIONS,
    ApprovalDecision,
    ApprovedCall,
    GrantRule,
    GrantScope,
    PausedCall,
    PauseState,
)
from toolcrib.core.runs import Run
from toolcrib.core.tool_calls import Danger, Effects, Outcome, ToolCategory
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.storage.database import Tenant
from toolcrib.storage.tool_calls import StoredCall
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.wiring.runs import run_service

YES, NO = ApprovalDecision(approved=True), ApprovalDecision(approved=False)


async def guided(workspace: WorkspaceFixture, **rules: Any) -> Caller:
    return await workspace.agent(tool_permissions=EVERYTHING, **rules)


async def in_session(workspace: WorkspaceFixture, caller: Caller) -> Caller:
    session = await workspace.stores.sessions.create(workspace.tenant, agent_id=caller.agent_id)
    return replace(caller, session_id=session.id)


async def asked(workspace: WorkspaceFixture, caller: Caller, tool: str = "write", **arguments: Any) -> PausedCall:
    outcome = await workspace.call(tool, caller, **(arguments or {"path": "/a.txt", "content": "a\n"}))
    assert outcome.is_waiting, outcome
    return await workspace.engine.paused_calls.get(workspace.tenant, outcome.metadata["pause_id"])


async def decide(
    workspace: WorkspaceFixture, approval: PausedCall, decision: ApprovalDecision = YES, by: Caller | None = None
) -> PausedCall:
    return await workspace.engine.paused_calls.decide(
        Tenant.of(by or workspace.caller), approval.id, decision, via="test"
    )


async def claimed(workspace: WorkspaceFixture) -> list[ApprovedCall]:
    """Claim what is due in the workspace, for a process without a heartbeat: the next may claim it as well."""
    claims, node, lease = workspace.stores.paused_call_claims, workspace.settings.node_name, 15.0
    process_id = ProcessId(new_id())
    found = [
        await claims.claim(process_id, workspace_id, pause_id, node=node, lease=lease)
        for workspace_id, pause_id in await claims.due(node=node, lease=lease, limit=1_000)
        if workspace_id == workspace.caller.workspace_id
    ]
    return [one for one in found if one is not None]


@asynccontextmanager
async def serving(workspace: WorkspaceFixture, *, queue_after: float = 0.0) -> AsyncIterator[None]:
    """Resume calls as a server does."""
    engine = workspace.engine

    async def leave(_: Run) -> None:
        # Another test's run, which is released at the end.
        await asyncio.Future()

    with ProcessHeartbeat.start(
        engine.settings.system_url,
        node=engine.settings.node_name,
        lease=engine.settings.heartbeat_lease_seconds,
        process_id=engine.process_id,
    ) as heartbeat:
        async with run_service(engine, leave, heartbeat, queue_after=queue_after):
            yield


async def carried_out(workspace: WorkspaceFixture) -> list[Outcome]:
    """Do one round of the server's loop."""
    outcomes = []
    for allowed in await claimed(workspace):
        assert allowed.pause.agent_id is not None
        agent = await workspace.stores.agents.get(workspace.tenant, allowed.pause.agent_id)
        outcomes.append(await workspace.engine.executor.resume(allowed, agent.as_caller))
    return outcomes


async def stored(workspace: WorkspaceFixture, call_id: CallId) -> StoredCall:
    return await workspace.stores.calls.get(workspace.tenant, call_id)


async def events(workspace: WorkspaceFixture, caller: Caller) -> list[tuple[str, dict[str, Any]]]:
    assert caller.session_id is not None
    found = await workspace.stores.sessions.events_after(workspace.tenant, caller.session_id, 0, limit=100)
    return [(event.type, dict(event.payload)) for event in found]


def test_pause_ends_once_and_only_an_approved_call_is_executed() -> None:
    assert set(TRANSITIONS) == set(PauseState)
    for decided in (PauseState.APPROVED, PauseState.REJECTED, PauseState.ANSWERED, PauseState.EXPIRED):
        assert {state for state, then in TRANSITIONS.items() if decided in then} == {PauseState.PENDING}
    assert TRANSITIONS[PauseState.APPROVED] == {PauseState.STALE, PauseState.CANCELLED}
    assert TRANSITIONS[PauseState.STALE] == {PauseState.CANCELLED}
    for last in (PauseState.REJECTED, PauseState.ANSWERED, PauseState.EXPIRED, PauseState.CANCELLED):
        assert TRANSITIONS[last] == frozenset()


async def test_call_that_needs_approval_is_stored_with_its_changes(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="old\n")
    agent = await guided(workspace)

    approval = await asked(workspace, agent, path="/a.txt", content="new\n", overwrite=True)

    assert (approval.state, approval.tool, approval.agent_id) == (PauseState.PENDING, "write", agent.agent_id)
    assert approval.approval.input == {"path": "/a.txt", "content": "new\n", "overwrite": True}
    [change] = approval.approval.changes
    assert (change["path"], change["change"], change["added"], change["removed"]) == ("/a.txt", "modified", 1, 1)
    assert "-old\n+new\n" in change["diff"]
    assert approval.approval.effects["writes"] == ["/a.txt"]
    assert approval.expires_at - approval.created_at == timedelta(days=7)
    assert (workspace.project / "a.txt").read_text() == "old\n"
    assert (await stored(workspace, approval.call_id)).state == "paused"


async def test_approved_call_is_executed_exactly_as_shown(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))

    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)

    assert outcome.succeeded
    assert outcome.change_set_id == approval.approval.change_set_id
    assert (workspace.project / "a.txt").read_text() == "a\n"
    call = await stored(workspace, approval.call_id)
    assert (call.state, call.change_set_id) == ("done", approval.approval.change_set_id)
    [record] = await audit_records_of(workspace, approval.call_id)
    assert (record.decision, record.outcome, record.decided_by) == ("ask", "done", workspace.caller.user_id)
    assert await carried_out(workspace) == []
    [(arguments, left)] = await rows(
        workspace,
        """
        select a.arguments, (select count(*) from toolcrib.proposed_changes p where p.workspace_id = a.workspace_id)
        from toolcrib.paused_calls a where a.workspace_id = %s
        """,
    )
    assert (arguments, left) == (None, 0)


async def test_rejected_call_is_an_error_result_with_who_and_why(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))

    decided = await decide(workspace, approval, ApprovalDecision(approved=False, reason="Not in this folder."))

    assert decided.state is PauseState.REJECTED
    call = await stored(workspace, approval.call_id)
    assert (call.state, call.error["code"]) == ("denied", "APPROVAL_DENIED")
    assert "Not in this folder." in call.error["message"]
    [record] = await audit_records_of(workspace, approval.call_id)
    assert (record.outcome, record.error_code, record.decided_by) == (
        "denied",
        "APPROVAL_DENIED",
        workspace.caller.user_id,
    )
    assert await carried_out(workspace) == []
    assert not (workspace.project / "a.txt").exists()
    assert (
        await rows(workspace, "select 1 from toolcrib.change_sets where workspace_id = %s and state = 'proposed'") == []
    )


async def test_of_two_decisions_at_once_one_wins_and_the_other_names_the_winner(workspace: WorkspaceFixture) -> None:
    member = await joined(workspace, WorkspaceRole.MEMBER)
    for _ in range(10):
        approval = await asked(workspace, await guided(workspace), path=f"/{new_id()}", content="")

        both = await asyncio.gather(
            decide(workspace, approval, YES), decide(workspace, approval, NO, by=member), return_exceptions=True
        )

        [won] = [one for one in both if isinstance(one, PausedCall)]
        [lost] = [one for one in both if isinstance(one, Conflict)]
        assert won.resolution is not None
        assert won.resolution.decided_by_name is not None
        assert lost.message.startswith(f"Already {won.state} by {won.resolution.decided_by_name}")


async def test_viewer_agent_and_stranger_cannot_decide(workspace: WorkspaceFixture) -> None:
    agent = await guided(workspace)
    approval = await asked(workspace, agent)
    viewer = await joined(workspace, WorkspaceRole.VIEWER)
    stranger = await new_caller(workspace.engine)

    for who in (viewer, agent, replace(stranger, workspace_id=workspace.caller.workspace_id)):
        with pytest.raises(Forbidden):
            await decide(workspace, approval, by=who)
    with pytest.raises(NotFound):
        await decide(workspace, approval, by=stranger)
    assert (await workspace.engine.paused_calls.get(workspace.tenant, approval.id)).state is PauseState.PENDING


async def test_file_changed_since_the_approval_request_makes_it_stale_and_asks_again(
    workspace: WorkspaceFixture,
) -> None:
    await workspace.result("write", path="/a.txt", content="one\ntwo\n")
    agent = await in_session(workspace, await guided(workspace))
    approval = await asked(workspace, agent, "edit", path="/a.txt", old_string="two", new_string="zwei")
    await workspace.result("write", path="/a.txt", content="eins\ntwo\n", overwrite=True)

    with pytest.raises(Conflict, match=r"/a\.txt was changed by .* since the approval was requested"):
        await decide(workspace, approval)
    [waiting] = await carried_out(workspace)

    assert waiting.is_waiting
    again = await workspace.engine.paused_calls.get(workspace.tenant, waiting.metadata["pause_id"])
    assert (again.approval.replaces, again.call_id) == (approval.id, approval.call_id)
    assert "-two\n+zwei\n" in again.approval.changes[0]["diff"]
    with pytest.raises(Conflict, match="new approval"):
        await decide(workspace, approval)
    await decide(workspace, again)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded
    assert (workspace.project / "a.txt").read_text() == "eins\nzwei\n"
    assert [kind for kind, _ in await events(workspace, agent)] == [
        "tool-confirm",
        "pause-ended",
        "tool-confirm",
        "pause-ended",
        "tool-start",
        "tool-result",
    ]


async def test_file_changed_on_disk_between_approval_and_execution_asks_again(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="one\ntwo\n")
    approval = await asked(
        workspace, await guided(workspace), "edit", path="/a.txt", old_string="two", new_string="zwei"
    )
    await decide(workspace, approval)
    (workspace.project / "a.txt").write_text("behind your back\ntwo\n")

    [waiting] = await carried_out(workspace)

    assert waiting.is_waiting
    assert (workspace.project / "a.txt").read_text() == "behind your back\ntwo\n"
    again = await workspace.engine.paused_calls.get(workspace.tenant, waiting.metadata["pause_id"])
    await decide(workspace, again)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded
    assert (workspace.project / "a.txt").read_text() == "behind your back\nzwei\n"


async def test_touched_file_does_not_ask_again(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="one\n")
    approval = await asked(
        workspace, await guided(workspace), "edit", path="/a.txt", old_string="one", new_string="two"
    )
    await decide(workspace, approval)
    (workspace.project / "a.txt").write_text("one\n")

    [outcome] = await carried_out(workspace)

    assert outcome.succeeded
    assert (workspace.project / "a.txt").read_text() == "two\n"


async def test_altered_arguments_are_not_executed(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))
    async with workspace.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.paused_calls set arguments = replace(arguments, 'a.txt', 'b.txt') where id = %s",
            (approval.id,),
        )

    with pytest.raises(Conflict, match="differ from those in the approval"):
        await decide(workspace, approval)
    other = await asked(workspace, await guided(workspace), path="/c.txt", content="")
    with pytest.raises(Conflict, match="does not match this approval"):
        await decide(workspace, other, ApprovalDecision(approved=True, arguments_sha256="0" * 64))
    assert not (workspace.project / "b.txt").exists()


async def test_undecided_approval_expires_and_the_call_ends(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))
    await let_time_pass(workspace, approval.id)

    with pytest.raises(Conflict, match="expired"):
        await decide(workspace, approval)
    assert await workspace.engine.paused_calls.list(workspace.tenant) == []
    while await workspace.engine.paused_calls.expire(limit=100):
        pass

    call = await stored(workspace, approval.call_id)
    assert (call.state, call.error["code"]) == ("denied", "APPROVAL_EXPIRED")
    assert (await workspace.engine.paused_calls.get(workspace.tenant, approval.id)).state is PauseState.EXPIRED


async def test_caller_may_withdraw(workspace: WorkspaceFixture) -> None:
    agent = await guided(workspace)
    approval = await asked(workspace, agent)

    withdrawn = await workspace.engine.paused_calls.cancel(Tenant.of(agent), approval.call_id)

    assert withdrawn.state is PauseState.CANCELLED
    with pytest.raises(Conflict, match="cancelled"):
        await decide(workspace, approval)


async def test_approval_for_a_session_applies_there_and_nowhere_else(workspace: WorkspaceFixture) -> None:
    agent = await in_session(workspace, await guided(workspace))
    elsewhere = await in_session(workspace, replace(agent, session_id=None))
    approval = await asked(workspace, agent)
    rule = replace(approval.approval.suggested_rule, paths=("*.txt",))

    await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.SESSION, rule=rule))

    assert agent.agent is not None
    fresh = (await workspace.stores.agents.get(workspace.tenant, agent.agent.id)).as_caller
    again = await workspace.call("write", replace(agent, agent=fresh), path="/b.txt", content="b")
    assert again.succeeded
    assert (await workspace.call("write", replace(agent, agent=fresh), path="/b.md", content="b")).is_waiting
    assert (await workspace.call("write", replace(elsewhere, agent=fresh), path="/c.txt", content="b")).is_waiting
    [record] = await audit_records_of(workspace, again.call_id)
    assert record.rule.startswith("grant.session:")


async def test_approval_for_always_stores_a_grant_that_is_listed_and_revoked(workspace: WorkspaceFixture) -> None:
    agent = await guided(workspace)
    approval = await asked(workspace, agent)
    assert approval.approval.suggested_rule == GrantRule(("write",), paths=("@project/a.txt",))
    assert agent.agent is not None

    await decide(
        workspace,
        approval,
        ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=approval.approval.suggested_rule),
    )

    tenant = workspace.tenant
    fresh = replace(agent, agent=(await workspace.stores.agents.get(tenant, agent.agent.id)).as_caller)
    assert (await workspace.call("write", fresh, path="/b.txt", content="")).is_waiting
    assert (await workspace.call("write", fresh, path="/a.txt", content="2")).succeeded
    [grant] = await workspace.stores.grants.list(tenant)
    await workspace.stores.grants.revoke(tenant, grant.id)
    fresh = replace(agent, agent=(await workspace.stores.agents.get(tenant, agent.agent.id)).as_caller)
    assert (await workspace.call("write", fresh, path="/a.txt", content="3", overwrite=True)).is_waiting


async def test_grant_is_stored_only_as_shown_and_only_by_an_owner(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))
    member = await joined(workspace, WorkspaceRole.MEMBER)
    always = ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=approval.approval.suggested_rule)

    with pytest.raises(Forbidden):
        await decide(workspace, approval, always, by=member)
    for rule, field in (
        (None, "rule"),
        (GrantRule(("rm",)), "rule.tools"),
        (GrantRule(("write",), paths=("b.txt",)), "rule"),
        (GrantRule(("write",), paths=("#",)), "rule.paths.0"),
    ):
        with pytest.raises(BadArguments) as refused:
            await decide(workspace, approval, replace(always, rule=rule))
        assert list(refused.value.fields) == [field]
    with pytest.raises(BadArguments, match="Validation") as refused:
        await decide(
            workspace,
            approval,
            ApprovalDecision(approved=True, scope=GrantScope.SESSION, rule=approval.approval.suggested_rule),
        )
    assert list(refused.value.fields) == ["scope"]
    assert (await decide(workspace, approval, always)).state is PauseState.APPROVED


async def test_rules_tightened_since_the_approval_apply_at_execution(workspace: WorkspaceFixture) -> None:
    agent = await guided(workspace)
    approval = await asked(workspace, agent)
    await decide(workspace, approval)
    assert agent.agent is not None
    await workspace.stores.agents.update(
        workspace.tenant,
        agent.agent.id,
        definition="tool_permissions: {write: {allowed: true, paths: [src/**]}}",
    )

    [outcome] = await carried_out(workspace)

    assert outcome.error is not None
    assert outcome.error.code == "NOT_PERMITTED"
    assert (await stored(workspace, approval.call_id)).state == "denied"
    assert not (workspace.project / "a.txt").exists()


async def test_new_file_is_created_with_its_folder_although_the_paths_name_only_the_file(
    workspace: WorkspaceFixture,
) -> None:
    permissions = {"write": {"allowed": True, "paths": ["lib/*.py"]}}
    agent = await workspace.agent(trust="guided", tool_permissions=permissions)

    approval = await asked(workspace, agent, path="/lib/new.py", content="x\n")
    await decide(workspace, approval, YES)
    [outcome] = await carried_out(workspace)

    assert outcome.succeeded, outcome.error
    assert (workspace.project / "lib" / "new.py").read_text() == "x\n"


async def test_approved_files_of_one_new_folder_are_all_made_and_none_is_asked_about_again(
    workspace: WorkspaceFixture,
) -> None:
    agent = await guided(workspace)
    approvals = [await asked(workspace, agent, path=f"/new/deep/{n}.txt", content=f"{n}\n") for n in range(3)]
    before, *later = approvals

    # One is made before the others are decided, and they all by one round after it.
    await decide(workspace, before)
    outcomes = await carried_out(workspace)
    for approval in later:
        await decide(workspace, approval)
    outcomes += await carried_out(workspace)

    assert [outcome.succeeded for outcome in outcomes] == [True] * 3, outcomes
    assert sorted(file.name for file in (workspace.project / "new" / "deep").iterdir()) == ["0.txt", "1.txt", "2.txt"]


async def test_file_where_an_approved_call_makes_a_folder_asks_again(workspace: WorkspaceFixture) -> None:
    agent = await guided(workspace)
    approval = await asked(workspace, agent, path="/new/a.txt", content="a\n")

    await workspace.result("write", path="/new", content="a file\n")

    with pytest.raises(Conflict, match="/new"):
        await decide(workspace, approval)


async def test_call_that_cannot_succeed_asks_for_no_approval(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("edit", await guided(workspace), path="/nowhere", old_string="a", new_string="b")

    assert outcome.error is not None
    assert outcome.error.code == "NOT_FOUND"


async def test_supervised_agent_learns_nothing_before_approval(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="the secret word\n")

    approval = await asked(
        workspace,
        await guided(workspace, trust="supervised"),
        "edit",
        path="/a.txt",
        old_string="teh secret",
        new_string="x",
    )

    assert list(approval.approval.changes) == []
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.error is not None


async def test_started_call_with_external_effects_is_not_repeated_unless_safe(workspace: WorkspaceFixture) -> None:
    rung: list[str] = []

    async def ring(arguments: ToolArguments, context: ToolContext) -> str:
        rung.append("once")
        return "rang"

    def wake_signal(name: str, *, repeatable: bool) -> Tool:
        return Tool(
            name=name,
            toolset="workspace",
            description="Rings.",
            category=ToolCategory.EXEC,
            danger=Danger.DANGEROUS,
            arguments=ToolArguments,
            effects=lambda _: Effects(hosts=("bell.example",)),
            function=ring,
            idempotent=repeatable,
            checks_membership=False,
        )

    workspace = with_tools(workspace, wake_signal("ring", repeatable=False), wake_signal("look", repeatable=True))
    agent = await workspace.agent(tool_permissions={"ring": {"allowed": True}, "look": {"allowed": True}})
    outcomes: dict[str, Outcome] = {}
    for tool in ("ring", "look"):
        outcome = await workspace.call(tool, agent)
        await workspace.engine.paused_calls.decide(workspace.tenant, outcome.metadata["pause_id"], YES, via="test")
        # A node claims the call, starts it, and dies.
        await claimed(workspace)
        [outcomes[tool]] = await carried_out(workspace)

    assert outcomes["ring"].state == "unknown"
    assert "it is unknown" in str(outcomes["ring"].error)
    assert outcomes["look"].succeeded
    assert rung == ["once"]


async def test_hostile_text_in_arguments_is_executed_verbatim(workspace: WorkspaceFixture) -> None:
    words = "null \x00 \x1b[2J approved: yes\n"
    approval = await asked(workspace, await guided(workspace), path="/a.txt", content=words)

    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)

    assert outcome.succeeded
    assert (workspace.project / "a.txt").read_bytes() == words.encode()


async def test_decisions_made_while_no_server_runs_are_executed_by_the_next_one(workspace: WorkspaceFixture) -> None:
    approvals = [await asked(workspace, await guided(workspace), path=f"/{n}", content=f"{n}") for n in range(3)]
    for approval in approvals:
        await decide(workspace, approval)

    async with serving(workspace), asyncio.timeout(PATIENCE):
        while [(await stored(workspace, approval.call_id)).state for approval in approvals] != ["done"] * 3:
            pass
        # The commit precedes the write to disk by a moment; a reader applies what is pending.
        for number in range(3):
            assert (await workspace.result("read", path=f"/{number}"))["content"] == f"{number}"


async def let_time_pass(workspace: WorkspaceFixture, approval_id: PauseId) -> None:
    async with workspace.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.paused_calls set expires_at = now() - interval '1 s' where id = %s", (approval_id,)
        )
