"""Effects that ``approve: effect`` does not ask about: empty ones, and those in ignored folders of the session."""

import shutil
from dataclasses import replace

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of
from tests.integration.gate.test_approvals import NO, asked, carried_out, decide, in_session
from tests.integration.tools.shell.builders import another_engine, hand, ran
from tests.integration.tools.shell.git_builders import Repository
from toolcrib.core.callers import Caller

IGNORING = "printf 'build/\\n.venv/\\nnode_modules/\\n' > .gitignore"


async def careful(workspace: WorkspaceFixture, trust: str = "guided") -> Caller:
    return await in_session(workspace, await hand(workspace, trust=trust, approve="effect"))


async def applied(workspace: WorkspaceFixture, agent: Caller, command: str) -> None:
    outcome = await workspace.call("bash", agent, command=command)
    assert outcome.succeeded, outcome


async def test_empty_effect_is_not_asked_about(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "echo a > a")

    await applied(workspace, await careful(workspace), "cat a; ls; touch x; rm x")


async def test_refreshed_index_of_git_is_not_asked_about_and_a_staged_file_is(workspace: WorkspaceFixture) -> None:
    repository = Repository(workspace)
    repository.person("git init -q .; echo 1 > a; git add a; git commit -qm first; touch -d '1 hour ago' a")
    agent = await careful(workspace)
    before = (repository.root / ".git" / "index").read_bytes()

    outcome = await workspace.call("bash", agent, command="git status --short; git diff --stat")

    assert outcome.succeeded, outcome
    assert (repository.root / ".git" / "index").read_bytes() != before
    await ran(workspace, "echo 2 > a")
    approval = await asked(workspace, agent, "bash", command="git add a")
    assert "/.git/index" in {change["path"] for change in approval.approval.changes}


async def test_ignored_folders_that_the_sessions_agent_created_are_not_asked_about(workspace: WorkspaceFixture) -> None:
    await ran(workspace, IGNORING)
    agent = await careful(workspace)

    await applied(workspace, agent, "mkdir -p build/sub; echo 1 > build/sub/a; echo 1 > build/b")
    await applied(workspace, agent, "echo 2 > build/sub/a; rm build/b; echo 3 > build/c")
    # Nothing is remembered in a process.
    outcome = await another_engine(workspace).call("bash", agent, command="rm -rf build; mkdir build; echo 4 > build/d")

    assert outcome.succeeded, outcome
    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.decision, record.rule) == ("allow", "effect.ignored-folders")
    assert [path.name for path in (workspace.project / "build").iterdir()] == ["d"]


@pytest.mark.parametrize(
    "command",
    [
        "echo 1 > build/a; echo 1 > kept",
        "rm -rf build; ln -s . build",
        "mv kept0 build/",
        "echo x > build/.envrc",
    ],
)
async def test_what_reaches_out_of_an_ignored_folder_is_asked_about(workspace: WorkspaceFixture, command: str) -> None:
    await ran(workspace, f"{IGNORING}; echo 0 > kept0")
    agent = await careful(workspace)
    await applied(workspace, agent, "mkdir build")

    await asked(workspace, agent, "bash", command=command)


async def test_ignore_rules_are_those_from_before_the_command(workspace: WorkspaceFixture) -> None:
    agent = await careful(workspace)

    first = await asked(workspace, agent, "bash", command="echo dist/ > .gitignore; mkdir dist; echo 1 > dist/a")
    inner = await asked(workspace, agent, "bash", command="mkdir out; echo '*' > out/.gitignore; echo 1 > out/a")

    assert {one["path"] for one in first.approval.changes} >= {"/.gitignore", "/dist"}
    assert inner.approval.changes != []


async def test_ignored_folder_that_existed_before_is_asked_about_once_per_folder_and_session(
    workspace: WorkspaceFixture,
) -> None:
    folders = ".venv node_modules"
    await ran(workspace, f"{IGNORING}; mkdir {folders}; for d in {folders}; do echo 1 > $d/a; done")
    agent = await careful(workspace)

    rejected = await asked(workspace, agent, "bash", command="echo 2 > .venv/a")
    await decide(workspace, rejected, NO)
    approval = await asked(workspace, agent, "bash", command="echo 3 > .venv/a")
    assert approval.approval.effects["ignored_folders"] == ["/.venv"]
    assert "/.venv. If you approve it, later changes inside them are not asked about" in approval.approval.reason
    await decide(workspace, approval)
    await carried_out(workspace)

    await applied(workspace, agent, "echo 4 > .venv/a; mkdir .venv/bin; echo 5 > .venv/bin/b")
    other = await asked(workspace, agent, "bash", command="echo 6 > .venv/a; echo 6 > node_modules/a")
    assert other.approval.effects["ignored_folders"] == ["/node_modules"]
    session = await in_session(workspace, agent)
    again = await asked(workspace, session, "bash", command="echo 7 > .venv/a")
    assert again.approval.effects["ignored_folders"] == ["/.venv"]


@pytest.mark.parametrize("by", ["command", "other program"])
async def test_folder_that_a_person_replaced_is_not_the_agents_any_more(workspace: WorkspaceFixture, by: str) -> None:
    await ran(workspace, IGNORING)
    agent = await careful(workspace)
    await applied(workspace, agent, "mkdir build; echo 1 > build/a")
    if by == "command":
        await ran(workspace, "rm -rf build")
        await ran(workspace, "mkdir build; echo mine > build/a")
    else:
        shutil.rmtree(workspace.project / "build")
        (workspace.project / "build").mkdir()
        (workspace.project / "build" / "a").write_text("mine\n")

    await asked(workspace, agent, "bash", command="echo 2 > build/a")


async def test_folder_that_got_the_inode_of_the_agents_is_not_the_agents(workspace: WorkspaceFixture) -> None:
    await ran(workspace, IGNORING)
    agent = await careful(workspace)
    await applied(workspace, agent, "mkdir build; echo 1 > build/a")
    build = workspace.project / "build"
    inode = build.stat().st_ino
    shutil.rmtree(build)
    # Others may take it first: folders beside it, until it is free again.
    for number in range(10_000):
        build.mkdir()
        if build.stat().st_ino == inode:
            break
        build.rename(workspace.project / f"other-{number}")
    for other in workspace.project.glob("other-*"):
        other.rmdir()
    (build / "a").write_text("mine\n")

    assert build.stat().st_ino == inode
    await asked(workspace, agent, "bash", command="echo 2 > build/a")


async def test_supervised_agent_and_one_without_a_session_are_asked_about_everything(
    workspace: WorkspaceFixture,
) -> None:
    await ran(workspace, IGNORING)

    await asked(workspace, await careful(workspace, "supervised"), "bash", command="mkdir build")
    await asked(workspace, replace(await careful(workspace), session_id=None), "bash", command="mkdir build")
