"""Attack 14: files that become code on a person's machine, and secrets by other names."""

from dataclasses import replace

import pytest

from tests.fakes.model_server import ModelServer
from tests.integration.conftest import WorkspaceFixture, model, providers
from tests.integration.gate.builders import EVERYTHING, trusted
from tests.integration.gate.test_approvals import NO, YES, asked, carried_out, decide, in_session
from tests.integration.runs.conftest import opened_office, says
from tests.integration.tools.shell.builders import hand
from tests.integration.tools.shell.conftest import workspace
from toolcrib.core.agents import TrustLevel
from toolcrib.core.errors import BadArguments, ProtectedPath
from toolcrib.core.ids import GrantId, new_id
from toolcrib.core.paused_calls import ApprovalDecision, Grant, GrantRule, GrantScope
from toolcrib.core.runs import RunEnding, RunState
from toolcrib.policy.agent_definition import render_definition
from toolcrib.providers.provider_registry import ProviderRegistry

__all__ = ["model", "providers", "workspace"]


BECOMES_CODE = [
    ".pre-commit-config.yaml", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".codex/config.toml", ".zed/tasks.json",
    ".agents/skills/x/SKILL.md",
    ".nvim.lua", ".exrc", ".cargo/config.toml", ".git/worktrees/w/commondir", ".husky/pre-commit", "lefthook.yml",
    ".devcontainer/devcontainer.json", "x/commondir", "bare/HEAD", ".git/hooks/pre-commit", ".git/info/attributes",
]  # fmt: skip
SECRETS = ["prod.env", ".docker/config.json", "infra/terraform.tfstate", "my-secret", "aws-credentials.json"]
NO_SECRETS = ["docs/secretary.md", "lib/secrets.py", "src/credentials.py", "venv/certifi/cacert.pem"]


@pytest.mark.parametrize("path", BECOMES_CODE)
async def test_file_that_becomes_code_is_written_only_after_approval(workspace: WorkspaceFixture, path: str) -> None:
    agent = await trusted(workspace)

    denied = await asked(workspace, agent, path=f"/{path}", content="evil\n")
    await decide(workspace, denied, NO)
    assert await carried_out(workspace) == []
    assert not (workspace.project / path).exists()

    agreed = await asked(workspace, agent, path=f"/{path}", content="x\n")
    assert (agreed.approval.rule, f"/{path}" in agreed.approval.effects["protected"]) == ("protected-name", True)
    assert "+x" in str(agreed.approval.changes)
    await decide(workspace, agreed, YES)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    assert (workspace.project / path).read_text() == "x\n"


@pytest.mark.parametrize("trust", list(TrustLevel))
async def test_no_trust_and_no_grant_writes_a_file_that_becomes_code(
    workspace: WorkspaceFixture, trust: TrustLevel
) -> None:
    agent = await in_session(workspace, await trusted(workspace, trust=trust))
    assert agent.agent is not None
    grants = tuple(Grant(GrantId(new_id()), GrantRule(("write",), paths)) for paths in (None, ("**",), (".vscode/**",)))
    agent = replace(agent, agent=replace(agent.agent, grants=grants))

    approval = await asked(workspace, agent, path="/.vscode/tasks.json", content="{}")

    assert approval.approval.rule == "protected-name"
    for scope in (GrantScope.SESSION, GrantScope.ALWAYS):
        for rule in (approval.approval.suggested_rule, GrantRule(("write",))):
            with pytest.raises(BadArguments) as refused:
                await decide(workspace, approval, ApprovalDecision(approved=True, scope=scope, rule=rule))
            assert "`once`" in refused.value.fields["scope"]
    await decide(workspace, approval, YES)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    # An approval covers one call.
    again = {"path": "/.vscode/tasks.json", "content": "{1}", "overwrite": True}
    assert (await workspace.call("write", agent, **again)).is_waiting


async def test_folder_moved_to_where_its_files_become_code_waits_for_approval(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/stuff/workflows/ci.yml", content="on: push\n")
    (workspace.project / "stuff" / "workflows" / "unknown.yml").write_text("on: push\n")

    approval = await asked(workspace, await trusted(workspace), "mv", source="/stuff", destination="/.github")

    assert {"/.github/workflows/ci.yml", "/.github/workflows/unknown.yml"} <= set(
        approval.approval.effects["protected"]
    )
    assert not (workspace.project / ".github").exists()


async def test_secret_below_a_name_that_may_be_approved_is_denied(workspace: WorkspaceFixture) -> None:
    for path in ("/.vscode/.env", "/.git/hooks/my-secret", "/.github/workflows/deploy.pem"):
        outcome = await workspace.call("write", await trusted(workspace), path=path, content="x")
        assert isinstance(outcome.error, ProtectedPath)


async def test_name_that_is_protected_again_at_approval_is_asked_about_again(workspace: WorkspaceFixture) -> None:
    lifted = await trusted(workspace, trust="guided", unprotected_paths=[".husky"])
    approval = await asked(workspace, lifted, path="/.husky/pre-commit", content="x\n")
    assert "protected" not in approval.approval.effects
    assert lifted.agent is not None
    closed = render_definition(lifted.agent.rules.model_copy(update={"unprotected_paths": ()}))
    await workspace.stores.agents.update(workspace.tenant, lifted.agent.id, definition=closed)

    await decide(workspace, approval, YES)
    [outcome] = await carried_out(workspace)

    assert outcome.is_waiting
    assert not (workspace.project / ".husky").exists()


async def test_git_hooks_are_readable_and_git_settings_are_not(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".git" / "hooks").mkdir(parents=True)
    (workspace.project / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    (workspace.project / ".git" / "config").write_text("[core]\n")

    hook = await workspace.call("read", await trusted(workspace), path="/.git/hooks/pre-commit")
    config = await workspace.call("read", await trusted(workspace), path="/.git/config")

    assert hook.result["content"] == "#!/bin/sh\n"
    assert isinstance(config.error, ProtectedPath)


@pytest.mark.parametrize("path", SECRETS)
async def test_no_tool_of_an_agent_writes_a_secret(workspace: WorkspaceFixture, path: str) -> None:
    outcome = await workspace.call("write", await trusted(workspace), path=f"/{path}", content="x")

    assert isinstance(outcome.error, ProtectedPath)
    assert not (workspace.project / path).exists()


async def test_command_that_writes_any_of_them_waits_for_approval(workspace: WorkspaceFixture) -> None:
    written = " ".join(f"mkdir -p $(dirname {path}); echo x > {path};" for path in BECOMES_CODE)

    outcome = await workspace.call("bash", await hand(workspace), command=written)

    assert outcome.is_waiting
    approval = await workspace.engine.paused_calls.get(workspace.tenant, outcome.metadata["pause_id"])
    assert {f"/{path}" for path in BECOMES_CODE} <= set(approval.approval.effects["protected"])
    assert not any((workspace.project / path).exists() for path in BECOMES_CODE)


async def test_command_cannot_create_a_bare_repository_without_approval(workspace: WorkspaceFixture) -> None:
    """`git status` in such a folder runs what its configuration names."""
    command = (
        "mkdir -p b/objects b/refs; echo 'ref: refs/heads/x' > b/HEAD; printf '[core]\\nfsmonitor=id\\n' > b/config"
    )

    outcome = await workspace.call("bash", await hand(workspace), command=command)

    assert outcome.is_waiting
    assert not (workspace.project / "b").exists()


async def test_secrets_are_empty_for_commands_and_similar_names_are_not(workspace: WorkspaceFixture) -> None:
    for path in (*SECRETS, *NO_SECRETS):
        (workspace.project / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace.project / path).write_text("hunter2\n")

    hidden = await workspace.call("bash", await hand(workspace), command=f"cat {' '.join(SECRETS)}")
    shown = await workspace.call("bash", await hand(workspace), command=f"cat {' '.join(NO_SECRETS)}")

    assert "hunter2" not in str(hidden.result)
    assert str(shown.result["output"]).count("hunter2") == len(NO_SECRETS)
    for path in SECRETS:
        assert isinstance(
            (await workspace.call("read", await trusted(workspace), path=f"/{path}")).error, ProtectedPath
        )
    for path in NO_SECRETS:
        assert (await workspace.call("read", await trusted(workspace), path=f"/{path}")).succeeded


async def test_third_protected_name_stops_a_run_and_no_earlier_one(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    run_fixture = await opened_office(workspace, model, providers)
    asks = [says("", ("read", {"path": path})) for path in ("/.env", "/my-secret", "/prod.env")]

    curious = await run_fixture.send("Look.", *asks[:2], says("I may not."))
    stubborn = await run_fixture.send("Look again.", *asks)

    assert curious.end_reason is RunEnding.DONE
    assert stubborn.end_reason is RunEnding.VIOLATION
    assert any("is protected" in str(message["content"]) for message in run_fixture.model_input())


async def test_run_may_request_files_that_become_code_without_limit(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    run_fixture = await opened_office(workspace, model, providers, trust="autonomous", tool_permissions=EVERYTHING)
    tries = [says("", ("write", {"path": f"/.zed/{number}.json", "content": "{}"})) for number in range(4)]

    run = await run_fixture.send("Set it up.", *tries, says("You do not want it."))
    for _ in tries:
        assert run.state is RunState.WAITING
        await run_fixture.decide(NO)
        await run_fixture.carry_on()
        run = await run_fixture.run(run.id)

    assert run.end_reason is RunEnding.DONE
    assert not (workspace.project / ".zed").exists()
