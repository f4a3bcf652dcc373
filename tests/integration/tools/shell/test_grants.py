"""Grants for commands: a person saves a pattern, and later commands that it covers run without approval."""

from dataclasses import replace

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of
from tests.integration.gate.test_approvals import asked, carried_out, decide, in_session
from tests.integration.tools.shell.builders import hand
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.paused_calls import ApprovalDecision, GrantRule, GrantScope


def session_grant(rule: GrantRule) -> ApprovalDecision:
    return ApprovalDecision(approved=True, scope=GrantScope.SESSION, rule=rule)


async def fresh(workspace: WorkspaceFixture, caller: Caller) -> Caller:
    """The caller with the grants that its agent has now."""
    assert caller.agent is not None
    return replace(caller, agent=(await workspace.stores.agents.get(workspace.tenant, caller.agent.id)).as_caller)


async def test_the_suggested_pattern_covers_the_next_command_in_this_session(workspace: WorkspaceFixture) -> None:
    agent = await in_session(workspace, await hand(workspace, trust="guided"))
    approval = await asked(workspace, agent, "bash", command="mkdir -p build && ls -la build 2>&1 | tail -1")
    assert approval.approval.suggested_rule == GrantRule(("bash",), commands=("mkdir *", "ls *", "tail *"))
    assert [rule.commands for rule in approval.approval.other_rules] == [
        ("mkdir -p build && ls -la build 2>&1 | tail -1",)
    ]

    await decide(workspace, approval, session_grant(approval.approval.suggested_rule))
    [first] = await carried_out(workspace)
    assert first.succeeded
    agent = await fresh(workspace, agent)
    again = await workspace.call("bash", agent, command="mkdir other; ls | tail -5")

    assert again.succeeded
    assert "other" in again.result["output"]
    [record] = await audit_records_of(workspace, again.call_id)
    assert record.rule.startswith("grant.session:")
    for command in ("mkdir x; rm -r build", "ls > x", "ls $(rm -r build)", "rmdir build", "ls & rmdir build"):
        assert (await workspace.call("bash", agent, command=command)).is_waiting, command
    elsewhere = await in_session(workspace, replace(agent, session_id=None))
    assert (await workspace.call("bash", elsewhere, command="ls")).is_waiting


async def test_a_granted_command_that_would_write_a_protected_name_asks(workspace: WorkspaceFixture) -> None:
    agent = await in_session(workspace, await hand(workspace, trust="guided"))
    approval = await asked(workspace, agent, "bash", command="cp a b")
    await decide(workspace, approval, session_grant(GrantRule(("bash",), commands=("cp *", "touch *"))))
    agent = await fresh(workspace, agent)

    protected = await workspace.call("bash", agent, command="touch x; cp x .envrc")

    assert protected.is_waiting
    assert not (workspace.project / ".envrc").exists()


async def test_a_person_edits_the_rule_and_a_wrong_one_is_refused_by_its_field(workspace: WorkspaceFixture) -> None:
    agent = await in_session(workspace, await hand(workspace, trust="guided"))
    approval = await asked(workspace, agent, "bash", command="ls -la")
    for rule, field in (
        (GrantRule(("bash",), commands=("sh -c *", "ls *")), "rule.commands.0"),
        (GrantRule(("bash", "nonsense"), commands=("ls *",)), "rule.tools.1"),
        (GrantRule(("bash",), commands=("ls *",), hosts=("10.0.0.1",)), "rule.hosts.0"),
    ):
        with pytest.raises(BadArguments) as refused:
            await decide(workspace, approval, session_grant(rule))
        assert list(refused.value.fields) == [field]

    await decide(workspace, approval, session_grant(GrantRule(("bash",), commands=("ls -la *",))))

    [stored] = await workspace.stores.grants.list(workspace.tenant)
    assert stored.rule == GrantRule(("bash",), commands=("ls -la *",))
    agent = await fresh(workspace, agent)
    assert (await workspace.call("bash", agent, command="ls -la .")).succeeded
    assert (await workspace.call("bash", agent, command="ls")).is_waiting


async def test_a_rule_for_a_folder_or_for_all_edits_covers_other_tools(workspace: WorkspaceFixture) -> None:
    permissions = {name: {"allowed": True} for name in ("write", "edit", "rm", "mkdir")}
    agent = await in_session(workspace, await workspace.agent(tool_permissions=permissions))
    approval = await asked(workspace, agent, "write", path="/src/a.py", content="a\n")
    folder, anywhere = approval.approval.suggested_rule, approval.approval.other_rules[-1]
    assert folder.paths == ("@project/src/**",)

    await decide(workspace, approval, session_grant(folder))
    await carried_out(workspace)
    agent = await fresh(workspace, agent)
    assert (await workspace.call("edit", agent, path="/src/a.py", old_string="a", new_string="b")).succeeded
    elsewhere = await asked(workspace, agent, "write", path="/docs/a.md", content="a")
    assert (await workspace.call("rm", agent, path="/src/a.py")).is_waiting
    await decide(workspace, elsewhere, session_grant(anywhere))

    agent = await fresh(workspace, agent)
    assert (await workspace.call("rm", agent, path="/src/a.py")).succeeded
    assert (await workspace.call("write", agent, path="/.vscode/tasks.json", content="x")).is_waiting
