"""A new link that leads out of the workspace waits for a person, with its target, at every trust."""

from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, carried_out, decide
from tests.integration.tools.shell.builders import ran
from tests.integration.tools.shell.test_trust_review import reviewed
from toolcrib.core.errors import BadArguments
from toolcrib.core.paused_calls import ApprovalDecision, GrantScope
from toolcrib.workspace.fs import outward_links

BASHRC = "/home/ada/.bashrc"

OUTWARD = {
    "absolute": (f"ln -s {BASHRC} notes.md", "/notes.md", BASHRC),
    "relative": ("mkdir d; ln -s ../../.bashrc d/notes.md", "/d/notes.md", "../../.bashrc"),
    "through a link of the same call": (
        "mkdir -p d/e; ln -s ../.. d/e/up; ln -s d/e/up/../.bashrc notes.md",
        "/notes.md",
        "d/e/up/../.bashrc",
    ),
    "through a link that was there": ("ln -s out/.bashrc notes.md", "/notes.md", "out/.bashrc"),
    "ignored": (f"echo b > .gitignore; mkdir b; ln -s {BASHRC} b/notes.md", "/b/notes.md", BASHRC),
    "moved": ("mv out notes.md", "/notes.md", "/etc"),
    "past the system": ("ln -s /usr/../home/ada/.bashrc notes.md", "/notes.md", "/usr/../home/ada/.bashrc"),
}


@pytest.mark.parametrize("trust", ["review", "autonomous"])
@pytest.mark.parametrize(("command", "path", "target"), OUTWARD.values(), ids=OUTWARD)
async def test_new_link_out_of_the_workspace_is_asked_about_with_its_target(
    workspace: WorkspaceFixture, trust: str, command: str, path: str, target: str
) -> None:
    (workspace.project / "out").symlink_to("/etc")
    link = workspace.project / path[1:]

    approval = await asked(workspace, await reviewed(workspace, trust=trust), "bash", command=command)

    assert approval.approval.rule == "outward-link"
    assert approval.approval.reason.startswith(f"It would make {path} → {target!r}: links out of the workspace.")
    [shown] = [one for one in approval.approval.changes if one["path"] == path]
    assert (shown["kind"], shown["target"]) == ("link", target)
    assert not link.is_symlink()
    rule = approval.approval.suggested_rule
    with pytest.raises(BadArguments) as refused:
        await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.SESSION, rule=rule))
    assert "only be approved `once`" in refused.value.fields["scope"]
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    assert link.readlink().as_posix() == target


async def test_links_within_the_workspace_and_to_programs_of_the_machine_are_not_asked_about(
    workspace: WorkspaceFixture,
) -> None:
    (workspace.project / "known").symlink_to("/etc")
    command = (
        "mkdir -p d/e; ln -s ../../a d/e/up; ln -s . here; ln -s .. d/root; ln -s d/e/up again; ln -s nowhere dangling;"
        f" ln -s /usr/bin/env env; ln -s {workspace.project}/d whole; rm known; ln -s /etc known; echo 1 > a"
    )

    outcome = await workspace.call("bash", await reviewed(workspace), command=command)

    assert outcome.succeeded, outcome
    assert (workspace.project / "d" / "e" / "up").read_text() == "1\n"


async def test_link_to_a_folder_of_programs_is_asked_about_where_the_person_may_write(
    workspace: WorkspaceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `/usr/local` of many machines is."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("#!/bin/sh\n")
    monkeypatch.setattr(outward_links, "_SYSTEM", (tmp_path,))
    agent = await reviewed(workspace)

    for target in (tmp_path / "bin" / "tool", tmp_path / "bin" / "new" / "tool"):
        await asked(workspace, agent, "bash", command=f"ln -s {target} notes.md")

    (tmp_path / "bin" / "tool").chmod(0o555)
    assert (await workspace.call("bash", agent, command=f"ln -s {tmp_path}/bin/tool notes.md")).succeeded


async def test_undo_by_an_agent_asks_before_it_restores_a_link_out(workspace: WorkspaceFixture) -> None:
    agent = await reviewed(workspace, "undo")
    await ran(workspace, f"ln -s {BASHRC} notes.md")
    removed = await workspace.call("rm", agent, path="/notes.md")
    assert removed.succeeded, removed

    approval = await asked(workspace, agent, "undo", calls=[str(removed.call_id)])

    assert (approval.approval.rule, approval.approval.changes[0]["target"]) == ("outward-link", BASHRC)
    await workspace.result("undo", calls=[str(removed.call_id)])
    assert (workspace.project / "notes.md").is_symlink()


async def test_owner_exempts_an_agent_from_the_question_about_links(workspace: WorkspaceFixture) -> None:
    exempt = await workspace.agent(
        trust="autonomous",
        toolsets=("studio",),
        tool_permissions={"bash": {"allowed": True}},
        unprotected_paths=("outward-link",),
    )

    assert (await workspace.call("bash", exempt, command=f"ln -s {BASHRC} notes.md")).succeeded
