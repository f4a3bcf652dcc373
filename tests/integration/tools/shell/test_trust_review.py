"""Trust ``review``: what can be undone is applied without asking; what cannot waits for a person, with its effect."""

from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import EVERYTHING, audit_records_of, launch, put, with_tools
from tests.integration.gate.test_approvals import NO, asked, carried_out, decide, in_session
from tests.integration.tools.shell.builders import another_engine, hand, ran
from tests.integration.tools.shell.git_builders import new_repository
from toolcrib.core.callers import Caller
from toolcrib.core.tool_calls import OutcomeState


async def reviewed(workspace: WorkspaceFixture, *names: str, trust: str = "review", **bash: Any) -> Caller:
    """An agent in a session, whose changes are reviewed later."""
    permissions = {**EVERYTHING, **{name: {"allowed": True} for name in names}, "bash": {"allowed": True, **bash}}
    toolsets = ("workspace", "history", "studio", "custom")
    return await in_session(
        workspace, await workspace.agent(trust=trust, toolsets=toolsets, tool_permissions=permissions)
    )


async def test_file_tools_and_commands_are_applied_and_undone(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo 1 > a; echo build/ > .gitignore; mkdir build; echo 1 > build/x; echo old > gone")
    agent = await reviewed(workspace)

    for tool, arguments in (
        ("edit", {"path": "/a", "old_string": "1", "new_string": "2"}),
        ("write", {"path": "/b", "content": "b\n"}),
        ("mv", {"source": "/b", "destination": "/c"}),
        ("rm", {"path": "/gone"}),
        ("bash", {"command": "echo 3 > a; echo 2 > build/x; rm -rf build; mkdir new; echo n > new/n"}),
    ):
        outcome = await workspace.call(tool, agent, **arguments)
        assert outcome.succeeded, (tool, outcome)

    assert (workspace.project / "a").read_text() == "3\n"
    await workspace.result("undo", session_id=str(agent.session_id))
    assert sorted(path.name for path in workspace.project.iterdir()) == [".gitignore", "a", "build", "gone"]
    assert (workspace.project / "a").read_text() == (workspace.project / "build" / "x").read_text() == "1\n"


async def test_audit_log_says_why_nobody_was_asked(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("bash", await reviewed(workspace), command="echo a > a")

    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.decision, record.rule) == ("allow", "trust.review.undoable")


async def test_protected_name_in_an_effect_is_asked_about_with_the_effect(workspace: WorkspaceFixture) -> None:
    agent = await reviewed(workspace)

    approval = await asked(workspace, agent, "bash", command="echo a > a; mkdir .vscode; echo x > .vscode/tasks.json")

    assert approval.approval.effects["protected"] == ["/.vscode", "/.vscode/tasks.json"]
    assert {change["path"] for change in approval.approval.changes} >= {"/a", "/.vscode/tasks.json"}
    assert list(workspace.project.iterdir()) == []
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    assert (workspace.project / ".vscode" / "tasks.json").exists()


async def test_effect_that_the_trash_cannot_hold_is_asked_about(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo data/ > .gitignore; mkdir data; head -c 3000 /dev/zero > data/x; echo y > data/y")
    small = another_engine(workspace, trash_max_bytes=2_000)
    agent = await reviewed(small)
    assert (await small.call("bash", agent, command="rm data/y; echo new > data/new")).succeeded

    approval = await asked(small, agent, "bash", command="rm data/x")

    assert approval.approval.rule == "trust.review.irreversible"
    assert "3,000 bytes" in approval.approval.reason
    assert "at most 2,000" in approval.approval.reason
    assert [(one["path"], one["change"]) for one in approval.approval.changes] == [("/data/x", "deleted")]
    await decide(small, approval, NO)
    assert (workspace.project / "data" / "x").exists()
    again = await asked(small, agent, "bash", command="rm -r data")
    await decide(small, again)
    [outcome] = await carried_out(small)
    assert outcome.succeeded, outcome.error
    assert not (workspace.project / "data").exists()


async def test_full_trash_is_asked_about(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo data/ > .gitignore; mkdir data; for n in 1 2; do head -c 1500 /dev/zero > data/$n; done")
    small = another_engine(workspace, trash_max_bytes=2_000)
    agent = await reviewed(small)
    assert (await small.call("bash", agent, command="rm data/1")).succeeded

    approval = await asked(small, agent, "bash", command="rm data/2")

    assert "it keeps 1,500 of at most 2,000 bytes" in approval.approval.reason


async def test_background_command_and_hosts_are_asked_about_before_they_run(workspace: WorkspaceFixture) -> None:
    agent = await reviewed(workspace, "bash_start", "bash_input")

    approval = await asked(workspace, agent, "bash_start", command="touch made; sleep 60")

    assert approval.approval.rule == "trust.review.irreversible"
    assert approval.approval.effects["runs"] == "touch made; sleep 60"
    assert not (workspace.project / "made").exists()


async def test_own_tool_is_applied_if_its_whole_effect_is_a_change_set(workspace: WorkspaceFixture) -> None:
    own = with_tools(workspace, put, launch)
    agent = await reviewed(own, "put", "launch")

    assert (await own.call("put", agent, path="@project/a", text="a")).succeeded
    outcome = await own.call("launch", agent)

    assert outcome.is_waiting
    assert "declares no files that it changes" in outcome.metadata["reason"]


async def test_review_runs_a_command_first_even_if_its_approval_point_is_the_command(
    workspace: WorkspaceFixture,
) -> None:
    outcome = await workspace.call("bash", await reviewed(workspace, approve="command"), command="echo a > a")

    assert outcome.succeeded
    assert (workspace.project / "a").exists()


@pytest.mark.parametrize("trust", ["supervised", "guided", "review", "autonomous"])
async def test_protected_name_is_asked_about_at_every_level(workspace: WorkspaceFixture, trust: str) -> None:
    agent = await reviewed(workspace, trust=trust, approve="effect")

    by_tool = await asked(workspace, agent, "write", path="/.envrc.d/../.vscode/x.json", content="{}")
    by_command = await asked(workspace, agent, "bash", command="mkdir -p .githooks; echo x > .githooks/pre-commit")

    assert by_tool.approval.rule == by_command.approval.rule == "protected-name"


async def test_review_adds_no_permission(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, trust="review", paths=("docs/**",))

    outcome = await workspace.call("bash", agent, command="echo a > a")

    assert outcome.state is OutcomeState.DENIED
    assert not (workspace.project / "a").exists()


async def test_approval_of_a_removed_worktree_is_carried_out_at_once(workspace: WorkspaceFixture) -> None:
    new_repository(workspace).person(
        "echo trees/ >> .gitignore; mkdir sub; echo x > sub/x; : > sub/empty; ln -s a.txt link; ln -s ../sub sub/link; "
        "git add -A; git commit -qm Ignore"
    )
    agent = await reviewed(workspace)

    for command in (
        "git worktree add -q trees/fix -b fix",
        "cd trees/fix && echo fixed >> a.txt && git commit -qam Fix",
        "git merge -q fix && git worktree remove trees/fix && git branch -q -d fix",
    ):
        await decide(workspace, await asked(workspace, agent, "bash", command=command))
        [outcome] = await carried_out(workspace)
        assert outcome.succeeded, (command, outcome)

    assert (workspace.project / "a.txt").read_text() == "one\nfixed\n"
    assert not (workspace.project / "trees" / "fix").exists()
