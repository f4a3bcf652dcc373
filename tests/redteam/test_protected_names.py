"""Attack 14: files that become code on a person's machine, and secrets by other names (WS-4, PO-6)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.fakes.model_server import ModelServer, model_server
from tests.integration.conftest import Crib
from tests.integration.gate.builders import EVERYTHING, trusted
from tests.integration.gate.test_approvals import NO, YES, asked, carried_out, decide, in_session
from tests.integration.runs.conftest import opened_office, says
from tests.integration.tools.shell.builders import hand, new_crib
from toolcrib.core.agents import TrustLevel
from toolcrib.core.approvals import ApprovalDecision, Grant, GrantRule, GrantScope
from toolcrib.core.errors import BadArguments, ProtectedPath
from toolcrib.core.ids import GrantId, new_id
from toolcrib.core.runs import RunEnding, RunState
from toolcrib.policy.agent_definition import render_definition
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import Database, Tenant

pytestmark = pytest.mark.req("WS-4", part="attacks")

BECOMES_CODE = [
    ".pre-commit-config.yaml", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".codex/config.toml", ".zed/tasks.json",
    ".nvim.lua", ".exrc", ".cargo/config.toml", ".git/worktrees/w/commondir", ".husky/pre-commit", "lefthook.yml",
    ".devcontainer/devcontainer.json", "x/commondir", "bare/HEAD", ".git/hooks/pre-commit", ".git/info/attributes",
]  # fmt: skip
SECRETS = ["prod.env", ".docker/config.json", "infra/terraform.tfstate", "my-secret", "aws-credentials.json"]
NO_SECRETS = ["docs/secretary.md", "lib/secrets.py", "src/credentials.py", "venv/certifi/cacert.pem"]


@pytest.fixture
async def crib(database: Database, settings: Settings) -> Crib:
    return await new_crib(database, settings)


@pytest.fixture
async def providers() -> AsyncIterator[ProviderRegistry]:
    async with open_providers(private_hosts=["*"]) as opened:
        yield opened


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.mark.parametrize("path", BECOMES_CODE)
async def test_file_that_becomes_code_is_written_only_after_approval(crib: Crib, path: str) -> None:
    agent = await trusted(crib)

    denied = await asked(crib, agent, path=f"/{path}", content="evil\n")
    await decide(crib, denied, NO)
    assert await carried_out(crib) == []
    assert not (crib.project / path).exists()

    agreed = await asked(crib, agent, path=f"/{path}", content="x\n")
    assert (agreed.rule, f"/{path}" in agreed.effects["protected"]) == ("protected-name", True)
    assert "+x" in str(agreed.changes)
    await decide(crib, agreed, YES)
    [outcome] = await carried_out(crib)
    assert outcome.succeeded, outcome.error
    assert (crib.project / path).read_text() == "x\n"


@pytest.mark.parametrize("trust", list(TrustLevel))
async def test_no_trust_and_no_grant_writes_a_file_that_becomes_code(crib: Crib, trust: TrustLevel) -> None:
    agent = await in_session(crib, await trusted(crib, trust=trust))
    assert agent.agent is not None
    standing = tuple(Grant(GrantId(new_id()), GrantRule("write", paths)) for paths in (None, ("**",), (".vscode/**",)))
    agent = replace(agent, agent=replace(agent.agent, grants=standing))

    approval = await asked(crib, agent, path="/.vscode/tasks.json", content="{}")

    assert approval.rule == "protected-name"
    for scope in (GrantScope.SESSION, GrantScope.ALWAYS):
        for rule in (approval.offered, GrantRule("write")):
            with pytest.raises(BadArguments) as refused:
                await decide(crib, approval, ApprovalDecision(approved=True, scope=scope, rule=rule))
            assert "`once`" in refused.value.fields["scope"]
    await decide(crib, approval, YES)
    [outcome] = await carried_out(crib)
    assert outcome.succeeded, outcome.error
    # An approval covers one call.
    again = {"path": "/.vscode/tasks.json", "content": "{1}", "overwrite": True}
    assert (await crib.call("write", agent, **again)).is_waiting


async def test_folder_moved_to_where_its_files_become_code_waits_for_approval(crib: Crib) -> None:
    await crib.result("write", path="/stuff/workflows/ci.yml", content="on: push\n")
    (crib.project / "stuff" / "workflows" / "unknown.yml").write_text("on: push\n")

    approval = await asked(crib, await trusted(crib), "mv", source="/stuff", destination="/.github")

    assert {"/.github/workflows/ci.yml", "/.github/workflows/unknown.yml"} <= set(approval.effects["protected"])
    assert not (crib.project / ".github").exists()


async def test_secret_below_a_name_that_may_be_approved_is_denied(crib: Crib) -> None:
    for path in ("/.vscode/.env", "/.git/hooks/my-secret", "/.github/workflows/deploy.pem"):
        outcome = await crib.call("write", await trusted(crib), path=path, content="x")
        assert isinstance(outcome.error, ProtectedPath)


async def test_name_that_is_protected_again_at_approval_is_asked_about_again(crib: Crib) -> None:
    lifted = await trusted(crib, trust="guided", unprotected_paths=[".husky"])
    approval = await asked(crib, lifted, path="/.husky/pre-commit", content="x\n")
    assert "protected" not in approval.effects
    assert lifted.agent is not None
    closed = render_definition(lifted.agent.rules.model_copy(update={"unprotected_paths": ()}))
    await AgentStore(crib.database).update(Tenant.of(crib.caller), lifted.agent.id, definition=closed)

    await decide(crib, approval, YES)
    [outcome] = await carried_out(crib)

    assert outcome.is_waiting
    assert not (crib.project / ".husky").exists()


async def test_git_hooks_are_readable_and_git_settings_are_not(crib: Crib) -> None:
    (crib.project / ".git" / "hooks").mkdir(parents=True)
    (crib.project / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    (crib.project / ".git" / "config").write_text("[core]\n")

    hook = await crib.call("read", await trusted(crib), path="/.git/hooks/pre-commit")
    config = await crib.call("read", await trusted(crib), path="/.git/config")

    assert hook.result["content"] == "#!/bin/sh\n"
    assert isinstance(config.error, ProtectedPath)


@pytest.mark.parametrize("path", SECRETS)
async def test_no_tool_of_an_agent_writes_a_secret(crib: Crib, path: str) -> None:
    outcome = await crib.call("write", await trusted(crib), path=f"/{path}", content="x")

    assert isinstance(outcome.error, ProtectedPath)
    assert not (crib.project / path).exists()


async def test_command_that_writes_any_of_them_waits_for_approval(crib: Crib) -> None:
    written = " ".join(f"mkdir -p $(dirname {path}); echo x > {path};" for path in BECOMES_CODE)

    outcome = await crib.call("bash", await hand(crib), command=written)

    assert outcome.is_waiting
    approval = await crib.engine.approvals.get(Tenant.of(crib.caller), outcome.metadata["approval_id"])
    assert {f"/{path}" for path in BECOMES_CODE} <= set(approval.effects["protected"])
    assert not any((crib.project / path).exists() for path in BECOMES_CODE)


async def test_command_cannot_create_a_bare_repository_without_approval(crib: Crib) -> None:
    """`git status` in such a folder runs what its configuration names."""
    command = (
        "mkdir -p b/objects b/refs; echo 'ref: refs/heads/x' > b/HEAD; printf '[core]\\nfsmonitor=id\\n' > b/config"
    )

    outcome = await crib.call("bash", await hand(crib), command=command)

    assert outcome.is_waiting
    assert not (crib.project / "b").exists()


async def test_secrets_are_empty_for_commands_and_similar_names_are_not(crib: Crib) -> None:
    for path in (*SECRETS, *NO_SECRETS):
        (crib.project / path).parent.mkdir(parents=True, exist_ok=True)
        (crib.project / path).write_text("hunter2\n")

    hidden = await crib.call("bash", await hand(crib), command=f"cat {' '.join(SECRETS)}")
    shown = await crib.call("bash", await hand(crib), command=f"cat {' '.join(NO_SECRETS)}")

    assert "hunter2" not in str(hidden.result)
    assert str(shown.result["output"]).count("hunter2") == len(NO_SECRETS)
    for path in SECRETS:
        assert isinstance((await crib.call("read", await trusted(crib), path=f"/{path}")).error, ProtectedPath)
    for path in NO_SECRETS:
        assert (await crib.call("read", await trusted(crib), path=f"/{path}")).succeeded


@pytest.mark.req("PO-6", part="protected names count from the third on")
async def test_third_protected_name_stops_a_run_and_no_earlier_one(
    crib: Crib, model: ModelServer, providers: ProviderRegistry
) -> None:
    office = await opened_office(crib, model, providers)
    asks = [says("", ("read", {"path": path})) for path in ("/.env", "/my-secret", "/prod.env")]

    curious = await office.send("Look.", *asks[:2], says("I may not."))
    stubborn = await office.send("Look again.", *asks)

    assert curious.end_reason is RunEnding.DONE
    assert stubborn.end_reason is RunEnding.VIOLATION
    assert any("is protected" in str(message["content"]) for message in office.told())


@pytest.mark.req("PO-6", part="what was asked about counts as nothing")
async def test_run_may_request_files_that_become_code_without_limit(
    crib: Crib, model: ModelServer, providers: ProviderRegistry
) -> None:
    office = await opened_office(crib, model, providers, trust="autonomous", tool_permissions=EVERYTHING)
    tries = [says("", ("write", {"path": f"/.zed/{number}.json", "content": "{}"})) for number in range(4)]

    run = await office.send("Set it up.", *tries, says("You do not want it."))
    for _ in tries:
        assert run.state is RunState.WAITING
        await office.decide(NO)
        await office.carry_on()
        run = await office.run(run.id)

    assert run.end_reason is RunEnding.DONE
    assert not (crib.project / ".zed").exists()
