"""``approve: effect``: the command runs first, in the sandbox, and a person approves its changes."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import NO, asked, carried_out, decide, stored
from tests.integration.tools.shell.builders import another_engine, hand, ran
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Conflict
from toolcrib.core.paused_calls import PauseState
from toolcrib.core.tool_calls import OutcomeState


async def careful(workspace: WorkspaceFixture, trust: str = "guided") -> Caller:
    return await hand(workspace, trust=trust, approve="effect")


async def test_person_sees_output_and_changes_before_they_are_committed(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo old > a")

    approval = await asked(
        workspace, await careful(workspace), "bash", command="echo new > a; echo b > b; echo said; exit 1"
    )

    assert {change["path"]: change["change"] for change in approval.approval.changes} == {
        "/a": "modified",
        "/b": "created",
    }
    assert "-old\n+new\n" in approval.approval.changes[0]["diff"]
    assert approval.approval.effects["output"].startswith("said\n")
    assert approval.approval.isolation == "namespaces"
    assert (workspace.project / "a").read_text() == "old\n"
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.state is OutcomeState.DONE
    assert outcome.result["metadata"]["exitCode"] == 1
    assert outcome.change_set_id == approval.approval.change_set_id
    assert (workspace.project / "a").read_text() == "new\n"


async def test_command_that_changes_nothing_needs_no_approval(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo old > a")

    outcome = await workspace.call("bash", await careful(workspace), command="cat a; echo old > a")

    assert outcome.succeeded
    assert outcome.result["output"] == "old\n"


async def test_supervised_agent_gets_no_output_before_approval(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo old > a")

    approval = await asked(workspace, await careful(workspace, "supervised"), "bash", command="cat a")

    assert approval.approval.changes == []
    assert "old" not in str(approval.approval.effects)
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.result["output"] == "old\n"


async def test_without_the_rule_the_command_waits_for_approval_and_does_not_run(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await hand(workspace, trust="guided"), "bash", command="echo a > a")

    assert approval.approval.change_set_id is None
    assert "output" not in approval.approval.effects
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded
    assert (workspace.project / "a").read_text() == "a\n"


async def test_rejected_effect_is_discarded(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await careful(workspace), "bash", command="echo a > a")

    await decide(workspace, approval, NO)

    assert await carried_out(workspace) == []
    assert list(workspace.project.iterdir()) == []


async def test_stale_effect_is_computed_and_asked_about_again(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo 1 > a")
    approval = await asked(workspace, await careful(workspace), "bash", command="echo more >> a")
    await ran(workspace, "echo 2 > a")

    with pytest.raises(Conflict):
        await decide(workspace, approval)
    [again] = await carried_out(workspace)

    assert again.is_waiting
    renewed = await workspace.stores.paused_calls.get(workspace.tenant, again.metadata["pause_id"])
    assert renewed.approval.replaces == approval.id
    assert renewed.state is PauseState.PENDING
    await decide(workspace, renewed)
    await carried_out(workspace)
    assert (workspace.project / "a").read_text() == "2\nmore\n"


async def test_effect_proposed_by_one_process_is_committed_by_another(workspace: WorkspaceFixture) -> None:
    approval = await asked(
        workspace, await careful(workspace), "bash", command="echo a > a; mkdir d; ln -s a d/l; chmod 600 a"
    )
    workspace.engine.shell.close()

    heir = another_engine(workspace)
    await decide(heir, approval)
    [outcome] = await carried_out(heir)

    assert outcome.succeeded, outcome.error
    assert (workspace.project / "a").stat().st_mode & 0o777 == 0o600
    assert (workspace.project / "d" / "l").readlink().name == "a"
    assert (await stored(heir, approval.call_id)).state == "done"


async def test_protected_names_of_an_effect_are_listed_first(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await careful(workspace), "bash", command="echo a > a; echo x > .envrc")

    assert approval.approval.effects["protected"] == ["/.envrc"]
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    assert (workspace.project / ".envrc").exists()


async def test_effect_that_still_cannot_be_applied_is_not_asked_about_for_ever(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "mkdir d; echo 1 > d/known")
    approval = await asked(workspace, await careful(workspace), "bash", command="rm -r d")
    (workspace.project / "d" / "first").touch()
    await decide(workspace, approval)
    [again] = await carried_out(workspace)
    renewed = await workspace.stores.paused_calls.get(workspace.tenant, again.metadata["pause_id"])
    assert "/d/first" in {change["path"] for change in renewed.approval.changes}
    (workspace.project / "d" / "second").touch()

    await decide(workspace, renewed)
    [outcome] = await carried_out(workspace)

    assert isinstance(outcome.error, Conflict)
    assert "/d is no longer empty." in outcome.error.message
    assert sorted(path.name for path in (workspace.project / "d").iterdir()) == ["first", "known", "second"]
