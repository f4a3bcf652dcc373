"""Names that are protected from agents: hidden from their commands, and written only with a person's approval."""

from pathlib import Path

import pytest

from tests.integration.conftest import Crib
from tests.integration.gate.test_approvals import NO, asked, carried_out, decide, stored
from tests.integration.tools.shell.builders import another_engine, hand, ran
from toolcrib.core.errors import PermissionDenied

pytestmark = pytest.mark.req("WS-4", part="commands")

SECRET = "hunter2"


async def test_protected_file_is_empty_in_an_agents_view_and_complete_in_a_persons(crib: Crib) -> None:
    (crib.project / ".env").write_text(SECRET)
    (crib.project / "deep").mkdir()
    (crib.project / "deep" / "My.Credentials.txt").write_text(SECRET)

    seen = await ran(crib, "cat .env deep/*; grep -r hunter2 . ; ls -A", await hand(crib))

    assert SECRET not in seen["output"]
    assert ".env" in seen["output"]
    assert SECRET in (await ran(crib, "cat .env"))["output"]


async def test_unprotected_name_is_visible(crib: Crib) -> None:
    (crib.project / ".env").write_text(SECRET)

    assert SECRET in (await ran(crib, "cat .env", await hand(crib, unprotected_paths=(".env",))))["output"]


async def test_hard_link_to_a_protected_file_is_hidden_too(crib: Crib) -> None:
    (crib.project / ".env").write_text(SECRET)
    agent = await hand(crib)
    await ran(crib, "cat .env", agent)
    (crib.project / "d").mkdir()
    (crib.project / "d" / "notes").hardlink_to(crib.project / ".env")

    assert SECRET not in (await ran(crib, "cat d/notes", agent))["output"]


async def test_new_secret_in_a_known_tree_is_hidden_from_the_next_command(crib: Crib) -> None:
    agent = await hand(crib)
    (crib.project / "d").mkdir()
    await ran(crib, "ls -R", agent)
    (crib.project / "d" / "my-secret").write_text(SECRET)

    assert SECRET not in (await ran(crib, "cat d/*", agent))["output"]


async def test_unreadable_folder_is_hidden_completely(crib: Crib) -> None:
    locked = crib.project / "locked"
    locked.mkdir()
    (locked / ".env").write_text(SECRET)
    locked.chmod(0)
    outcome = await crib.call("bash", await hand(crib), command="chmod 700 locked; cat locked/.env")
    locked.chmod(0o700)

    assert SECRET not in str(outcome.result)


async def test_git_init_by_an_agent_waits_with_the_protected_names_first(crib: Crib) -> None:
    agent = await hand(crib)

    approval = await asked(crib, agent, "bash", command="git init -q && echo a > a")

    assert "/.git/config" in approval.effects["protected"]
    assert approval.reason.startswith("It would write /.git")
    assert approval.rule == "protected-name"
    assert approval.isolation == "namespaces"
    assert list(crib.project.iterdir()) == []
    await decide(crib, approval)
    [outcome] = await carried_out(crib)
    assert outcome.succeeded, outcome.error
    assert (crib.project / ".git" / "config").exists()
    assert (crib.project / "a").read_text() == "a\n"
    assert (await stored(crib, approval.call_id)).state == "done"


async def test_rejected_effect_leaves_no_trace(crib: Crib) -> None:
    approval = await asked(crib, await hand(crib), "bash", command="echo evil > .envrc")

    await decide(crib, approval, NO)

    assert await carried_out(crib) == []
    assert list(crib.project.iterdir()) == []


@pytest.mark.req("SH-4", part="a proposed effect outlives the process that made it")
async def test_effect_proposed_by_one_node_is_committed_by_another(crib: Crib) -> None:
    approval = await asked(crib, await hand(crib), "bash", command="git init -q; echo '#!/bin/sh' > .git/hooks/x")
    crib.engine.shell.close()

    heir = another_engine(crib)
    await decide(heir, approval)
    [outcome] = await carried_out(heir)

    assert outcome.succeeded, outcome.error
    assert (crib.project / ".git" / "hooks" / "x").exists()


async def test_approval_of_protected_names_lifts_no_other_rule(crib: Crib) -> None:
    agent = await hand(crib, paths=["src/**"])

    outcome = await crib.call("bash", agent, command="echo evil > .envrc")

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
async def test_agents_command_cannot_write_a_protected_name_without_approval(crib: Crib, command: str) -> None:
    (crib.project / ".env").write_text(SECRET)

    approval = await asked(crib, await hand(crib), "bash", command=command)

    assert approval.effects["protected"]
    assert _files(crib.project) == {".env": SECRET}


async def test_person_needs_no_approval(crib: Crib) -> None:
    assert (await ran(crib, "git init -q; echo x > .env"))["is_error"] is False


def _files(folder: Path) -> dict[str, str]:
    return {place.name: place.read_text() for place in folder.iterdir()}
