"""Names that are protected from agents: hidden from their commands, and written only with a person's approval."""

from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import NO, asked, carried_out, decide, stored
from tests.integration.tools.shell.builders import another_engine, hand, ran
from toolcrib.core.errors import PermissionDenied

SECRET = "hunter2"


async def test_protected_file_is_empty_in_an_agents_view_and_complete_in_a_persons(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".env").write_text(SECRET)
    (workspace.project / "deep").mkdir()
    (workspace.project / "deep" / "My.Credentials.txt").write_text(SECRET)

    seen = await ran(workspace, "cat .env deep/*; grep -r hunter2 . ; ls -A", await hand(workspace))

    assert SECRET not in seen["output"]
    assert ".env" in seen["output"]
    assert SECRET in (await ran(workspace, "cat .env"))["output"]


async def test_command_does_not_move_a_secret_among_installed_packages(workspace: WorkspaceFixture) -> None:
    (workspace.project / "vendor").mkdir()
    (workspace.project / "deep").mkdir()
    (workspace.project / "deep" / "client_secret.json").write_text(SECRET)
    command = "mv deep vendor/deep; cp -r deep vendor/copy; ln deep/* vendor/linked; cat vendor/*/* vendor/linked"
    agent = await hand(workspace)

    outcome = await workspace.call("bash", agent, command=command)
    later = await workspace.call("bash", agent, command="cat vendor/*/*")

    assert SECRET not in str(outcome.result)
    assert SECRET not in str(later.result)
    assert (workspace.project / "deep" / "client_secret.json").read_text() == SECRET


async def test_git_configuration_that_git_rewrites_keeps_what_git_did_not_see(workspace: WorkspaceFixture) -> None:
    git = "git init -q; git config user.name Ada; git config user.email a@example.org; git commit -q --allow-empty -m A"
    await ran(workspace, f"{git}; git config credential.helper {SECRET}")
    config = workspace.project / ".git" / "config"
    before = config.read_text()
    await ran(workspace, "git branch fix; git config branch.fix.remote origin")
    rewritten = await ran(workspace, "cp .git/config c; rm -f .git/config; mv c .git/config", await hand(workspace))

    # Git removes the section of a deleted branch, and writes the file anew.
    await ran(workspace, "git branch -q -d fix", await hand(workspace))

    assert config.read_text() == before
    assert rewritten["metadata"]["skipped"] == ["@project/.git/config, which was hidden from it"]
    assert not (workspace.project / ".git" / "refs" / "heads" / "fix").exists()


async def test_unprotected_name_is_visible(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".env").write_text(SECRET)

    assert SECRET in (await ran(workspace, "cat .env", await hand(workspace, unprotected_paths=(".env",))))["output"]


async def test_hard_link_to_a_protected_file_is_hidden_too(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".env").write_text(SECRET)
    agent = await hand(workspace)
    await ran(workspace, "cat .env", agent)
    (workspace.project / "d").mkdir()
    (workspace.project / "d" / "notes").hardlink_to(workspace.project / ".env")

    assert SECRET not in (await ran(workspace, "cat d/notes", agent))["output"]


async def test_new_secret_in_a_known_tree_is_hidden_from_the_next_command(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace)
    (workspace.project / "d").mkdir()
    await ran(workspace, "ls -R", agent)
    (workspace.project / "d" / "my-secret").write_text(SECRET)

    assert SECRET not in (await ran(workspace, "cat d/*", agent))["output"]


async def test_unreadable_folder_is_hidden_completely(workspace: WorkspaceFixture) -> None:
    locked = workspace.project / "locked"
    locked.mkdir()
    (locked / ".env").write_text(SECRET)
    locked.chmod(0)
    outcome = await workspace.call("bash", await hand(workspace), command="chmod 700 locked; cat locked/.env")
    locked.chmod(0o700)

    assert SECRET not in str(outcome.result)


async def test_git_init_by_an_agent_waits_with_the_protected_names_first(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace)

    approval = await asked(workspace, agent, "bash", command="git init -q && echo a > a")

    assert "/.git/config" in approval.approval.effects["protected"]
    assert approval.approval.reason.startswith("It would write /.git")
    assert approval.approval.rule == "protected-name"
    assert approval.approval.isolation == "namespaces"
    assert list(workspace.project.iterdir()) == []
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    assert (workspace.project / ".git" / "config").exists()
    assert (workspace.project / "a").read_text() == "a\n"
    assert (await stored(workspace, approval.call_id)).state == "done"


async def test_rejected_effect_leaves_no_trace(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await hand(workspace), "bash", command="echo evil > .envrc")

    await decide(workspace, approval, NO)

    assert await carried_out(workspace) == []
    assert list(workspace.project.iterdir()) == []


async def test_effect_proposed_by_one_node_is_committed_by_another(workspace: WorkspaceFixture) -> None:
    approval = await asked(
        workspace, await hand(workspace), "bash", command="git init -q; echo '#!/bin/sh' > .git/hooks/x"
    )
    workspace.engine.shell.close()

    heir = another_engine(workspace)
    await decide(heir, approval)
    [outcome] = await carried_out(heir)

    assert outcome.succeeded, outcome.error
    assert (workspace.project / ".git" / "hooks" / "x").exists()


async def test_approval_of_protected_names_lifts_no_other_rule(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, paths=["src/**"])

    outcome = await workspace.call("bash", agent, command="echo evil > .envrc")

    assert isinstance(outcome.error, PermissionDenied)


@pytest.mark.parametrize(
    "command",
    [
        "rm -f .env; echo x > .env",
        "rm .env",
        "mv .env env",
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
        "echo x > .MCP.json",
        "ln -s /etc/passwd .netrc",
        "chmod 777 .env",
        "rm -r ../project/* .env",
    ],
)
async def test_agents_command_cannot_write_a_protected_name_without_approval(
    workspace: WorkspaceFixture, command: str
) -> None:
    (workspace.project / ".env").write_text(SECRET)

    approval = await asked(workspace, await hand(workspace), "bash", command=command)

    assert approval.approval.effects["protected"]
    assert _files(workspace.project) == {".env": SECRET}


async def test_person_needs_no_approval(workspace: WorkspaceFixture) -> None:
    assert (await ran(workspace, "git init -q; echo x > .env"))["is_error"] is False


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}
