"""Attack 12: an approval that does not show what it is about. Every tool that changes files shows its change set."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture, workspace
from tests.integration.gate.builders import with_tools
from tests.integration.gate.test_approvals import asked, carried_out, decide
from tests.integration.tools.shell.builders import hand, new_workspace_fixture
from toolcrib import ToolContext, tool
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, Conflict
from toolcrib.core.files import ContentKind
from toolcrib.core.ids import CallId
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.paused_calls import ApprovalDecision, GrantRule, GrantScope, PausedCall, PauseState
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

__all__ = ["workspace"]


PATCH = {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "n2"}}}
PLAN = {"title": "t", "content": "one\n"}


@dataclass
class Past:
    """What happens before the agent's call."""

    file_id: str
    version_id: str
    call_id: CallId


Arguments = Callable[[Past], dict[str, Any]]
# A call of every tool that can change files by its draft, and so must be shown beforehand.
CHANGES: dict[str, Arguments] = {
    "write": lambda _: {"path": "/new.txt", "content": "new\n"},
    "edit": lambda _: {"path": "/a.txt", "old_string": "two", "new_string": "three"},
    "touch": lambda _: {"path": "/touched.txt"},
    "mkdir": lambda _: {"path": "/folder"},
    "rm": lambda _: {"path": "/a.txt"},
    "mv": lambda _: {"source": "/a.txt", "destination": "/b.txt"},
    "plan_write": lambda _: {"path": "/plans/x.plan", **PLAN},
    "plan_edit": lambda _: {"path": "/plans/p.plan", "old_string": "one", "new_string": "two"},
    "fs.write": lambda _: {"path": "@project/new.md", "content": "new\n"},
    "fs.apply_patch": lambda _: {"path": "@state/note.md", "patch": PATCH},
    "file_write": lambda _: {"path": "new.txt", "content": "new\n"},
    "undo": lambda past: {"calls": [str(past.call_id)]},
    "file_restore": lambda past: {"file_id": past.file_id, "version_id": past.version_id},
}
# Commands are shown as they are written, or, with ``approve: effect``, by their effect. The others change no file.
COMMANDS = {"bash", "bash_start", "bash_input"}
NO_FILE = {
    "ask_user", "bash_list", "bash_output", "bash_stop", "cat", "changes", "deleted_files", "exit_plan_mode",
    "file_compare", "file_info", "file_read", "file_version", "file_versions", "find", "fs.list", "fs.read",
    "fs.search", "glob", "grep", "list_directory", "ls", "plan_list", "plan_read", "read", "read_file",
    "read_multiple_files", "read_result", "run_agent", "tool_search", "web_fetch", "web_search",
}  # fmt: skip
# No agent can call these, so nobody is asked about them.
FOR_PEOPLE = {"attach", "review", "review_decide"}


@pytest.fixture
async def past(workspace: WorkspaceFixture) -> Past:
    made = await workspace.result("write", path="/a.txt", content="one\n")
    outcome = await workspace.call("write", path="/a.txt", content="two\n", overwrite=True)
    await workspace.result("plan_write", path="/plans/p.plan", **PLAN)
    return Past(made["file_id"], made["version_id"], outcome.call_id)


async def supervised(workspace: WorkspaceFixture, *names: str) -> Caller:
    return await workspace.agent(
        trust="supervised",
        toolsets=["workspace", "history", "mounts", "project", "studio"],
        tool_permissions={name: {"allowed": True} for name in names},
    )


async def ready(workspace: WorkspaceFixture, past: Past, name: str) -> tuple[Caller, dict[str, Any]]:
    """An agent, and a call of it that would change something."""
    agent = await supervised(workspace, name, "write", "fs.write")
    if name == "fs.apply_patch":
        await done(workspace, agent, "fs.write", path="@state/note.md", content="---\ncurrentNodeId: n1\n---\nbody\n")
    if name == "undo":
        # An agent undoes only its own calls.
        await workspace.result("write", path="/a.txt", content="one\n", overwrite=True)
        past.call_id = await done(workspace, agent, "write", path="/a.txt", content="two\n", overwrite=True)
    return agent, CHANGES[name](past)


async def done(workspace: WorkspaceFixture, agent: Caller, name: str, **arguments: Any) -> CallId:
    approval = await asked(workspace, agent, name, **arguments)
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    return approval.call_id


def test_every_tool_is_either_shown_or_known_to_change_no_file(workspace: WorkspaceFixture) -> None:
    known = {tool.name for tool in workspace.engine.registry.list_for_scope(None)}

    assert known - COMMANDS - NO_FILE - FOR_PEOPLE <= CHANGES.keys()
    assert CHANGES.keys() <= {name for name in CHANGES if workspace.engine.registry.get(name)}


@pytest.mark.parametrize("name", CHANGES)
async def test_approval_shows_the_changes_and_exactly_those_are_executed(
    workspace: WorkspaceFixture, past: Past, name: str
) -> None:
    agent, arguments = await ready(workspace, past, name)
    before = listing(workspace)

    approval = await asked(workspace, agent, name, **arguments)

    assert approval.approval.changes, name
    assert approval.approval.change_set_id is not None
    assert approval.approval.effects["writes"]
    assert listing(workspace) == before
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded, outcome.error
    assert listing(workspace) != before


def listing(workspace: WorkspaceFixture) -> dict[str, bytes | None]:
    parent = workspace.project.parent
    return {
        str(path.relative_to(parent)): path.read_bytes() if path.is_file() else None
        for path in parent.rglob("*")
        if "logs" not in path.parts
    }


@pytest.mark.parametrize("name", ["undo", "file_restore"])
async def test_undo_is_shown_as_a_diff(workspace: WorkspaceFixture, past: Past, name: str) -> None:
    agent, arguments = await ready(workspace, past, name)
    approval = await asked(workspace, agent, name, **arguments)

    [change] = approval.approval.changes
    assert (change["path"], change["change"]) == ("/a.txt", "modified")
    assert "-two" in change["diff"]
    assert "+one" in change["diff"]
    assert change["before"]["sha256"] != change["after"]["sha256"]


@pytest.mark.parametrize("name", ["undo", "file_restore"])
async def test_grant_covers_nothing_that_was_not_shown(workspace: WorkspaceFixture, past: Past, name: str) -> None:
    agent, arguments = await ready(workspace, past, name)
    approval = await asked(workspace, agent, name, **arguments)

    for rule in (GrantRule((name,)), GrantRule((name,), paths=("**",)), approval.approval.suggested_rule):
        with pytest.raises(BadArguments) as wrong:
            await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=rule))
        assert "scope" in wrong.value.fields


@pytest.mark.parametrize("name", ["undo", "file_restore"])
async def test_approval_covers_the_versions_that_were_shown(workspace: WorkspaceFixture, past: Past, name: str) -> None:
    agent, arguments = await ready(workspace, past, name)
    approval = await asked(workspace, agent, name, **arguments)
    await workspace.result("write", path="/a.txt", content="mine\n", overwrite=True)

    with pytest.raises(Conflict):
        await decide(workspace, approval)

    assert (workspace.project / "a.txt").read_text() == "mine\n"
    assert (await again(workspace, approval)).state is PauseState.STALE


async def again(workspace: WorkspaceFixture, approval: PausedCall) -> PausedCall:
    return await workspace.engine.paused_calls.get(workspace.tenant, approval.id)


@tool()
async def sneaky(context: ToolContext) -> str:
    """Write where nobody was told."""
    path_state = await context.draft.lookup(WorkspacePath(Mount.PROJECT, "/unseen.txt"))
    await context.draft.write(path_state, b"x\n", content=ContentKind.TEXT)
    return "done"


async def test_tool_that_writes_undeclared_files_is_asked_about_again(workspace: WorkspaceFixture) -> None:
    """A custom tool may change files that its arguments do not name."""
    workspace = with_tools(workspace, sneaky)
    outcome = await workspace.call("sneaky", await supervised(workspace, "sneaky"))
    first = await workspace.engine.paused_calls.get(workspace.tenant, outcome.metadata["pause_id"])
    assert first.approval.changes == []

    await decide(workspace, first)
    [outcome] = await carried_out(workspace)

    assert outcome.is_waiting
    assert not (workspace.project / "unseen.txt").exists()
    second = await workspace.engine.paused_calls.get(workspace.tenant, outcome.metadata["pause_id"])
    assert [change["path"] for change in second.approval.changes] == ["/unseen.txt"]
    await decide(workspace, second)
    [outcome] = await carried_out(workspace)
    assert outcome.succeeded
    assert (workspace.project / "unseen.txt").read_text() == "x\n"


# Ignored files are moved and not read, and yet an approval covers their content.

INSTALL = "mkdir -p out/deep out/locked; echo one > out/a; echo two > out/deep/b; ln -s a out/l; echo x > out/locked/c"


@pytest.fixture
async def shell(database: Database, settings: Settings) -> WorkspaceFixture:
    workspace = await new_workspace_fixture(database, settings)
    (workspace.project / ".gitignore").write_text("*.log\nout/\n.env\n")
    return workspace


async def effect(workspace: WorkspaceFixture, command: str) -> PausedCall:
    return await asked(workspace, await hand(workspace, trust="guided", approve="effect"), "bash", command=command)


def by_path(approval: PausedCall) -> dict[str, Mapping[str, Any]]:
    return {change["path"]: change for change in approval.approval.changes}


def hexdigest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def staged(workspace: WorkspaceFixture) -> Path:
    [lying] = (workspace.project.parent / "trash").iterdir()
    return lying


async def test_ignored_file_changed_by_a_command_is_shown_by_its_hash_and_as_a_diff(shell: WorkspaceFixture) -> None:
    (shell.project / "build.log").write_text("old\n")

    approval = await effect(shell, "echo new > build.log; echo more > other.log; echo kept > kept; mkdir d")

    changes = by_path(approval)
    assert changes["/build.log"]["before"]["sha256"] == hexdigest("old\n")
    assert changes["/build.log"]["after"]["sha256"] == hexdigest("new\n")
    assert "-old\n+new\n" in changes["/build.log"]["diff"]
    assert changes["/other.log"]["after"]["sha256"] == hexdigest("more\n")
    assert "+more\n" in changes["/other.log"]["diff"]
    await decide(shell, approval)
    [outcome] = await carried_out(shell)
    assert outcome.succeeded, outcome.error
    assert (shell.project / "build.log").read_text() == "new\n"


async def test_each_file_of_a_moved_folder_is_shown_by_its_hash(shell: WorkspaceFixture) -> None:
    approval = await effect(shell, f"{INSTALL}; chmod 000 out/locked/c out/locked")

    changes = by_path(approval)
    assert changes["/out/a"]["after"]["sha256"] == hexdigest("one\n")
    assert changes["/out/deep/b"]["after"]["sha256"] == hexdigest("two\n")
    # A locked folder hides nothing, and it is still locked.
    assert changes["/out/locked/c"]["after"] == {"sha256": hexdigest("x\n"), "size": 2, "mode": "0"}
    assert changes["/out/l"]["target"] == "a"
    assert len(changes["/out"]["after"]["sha256"]) == 64
    assert (staged(shell) / "locked").stat().st_mode & 0o777 == 0
    await decide(shell, approval)
    [outcome] = await carried_out(shell)
    assert outcome.succeeded, outcome.error
    assert (shell.project / "out" / "deep" / "b").read_text() == "two\n"
    os.chmod(shell.project / "out" / "locked", 0o700)


async def test_folder_with_very_many_files_shows_a_count_and_hashes_them_all(shell: WorkspaceFixture) -> None:
    approval = await effect(shell, "mkdir out; cd out; seq 700 | xargs touch")

    assert len(approval.approval.changes) < 600
    assert approval.approval.changes[-1] == {"path": None, "change": "omitted", "count": 200}
    [last] = sorted({path.name for path in staged(shell).iterdir()} - {Path(p or "").name for p in by_path(approval)})[
        -1:
    ]
    (staged(shell) / last).write_text("evil\n")
    await refused_as_unlike_shown(shell, approval)


async def test_ignored_secret_is_shown_by_its_hash_only(shell: WorkspaceFixture) -> None:
    (shell.project / ".env").write_text("KEY=hunter2\n")

    approval = await effect(shell, "rm .env; echo KEY=swordfish > .env")

    change = by_path(approval)["/.env"]
    assert change["before"]["sha256"] == hexdigest("KEY=hunter2\n")
    assert change["after"]["sha256"] == hexdigest("KEY=swordfish\n")
    assert "hunter2" not in str(approval.approval.changes)


def _other_bytes(lying: Path) -> None:
    (lying / "a").write_text("two\n")


def _another_file(lying: Path) -> None:
    (lying / "deep" / "evil").write_text("x\n")


def _our_own_kind_of_name(lying: Path) -> None:
    (lying / ".~toolcrib-0123456789abcdef.tmp").write_text("x\n")


def _a_mode(lying: Path) -> None:
    (lying / "a").chmod(0o755)


def _a_link(lying: Path) -> None:
    (lying / "l").unlink()
    (lying / "l").symlink_to("/etc/passwd")


def _a_file_less(lying: Path) -> None:
    (lying / "deep" / "b").unlink()


def _behind_a_lock(lying: Path) -> None:
    (lying / "locked" / "c").write_text("y\n")


@pytest.mark.parametrize(
    "tamper",
    [_other_bytes, _another_file, _our_own_kind_of_name, _a_mode, _a_link, _a_file_less, _behind_a_lock],
)
async def test_effect_tampered_with_while_pending_is_not_committed(
    shell: WorkspaceFixture, tamper: Callable[[Path], None]
) -> None:
    approval = await effect(shell, INSTALL)
    tamper(staged(shell))

    await refused_as_unlike_shown(shell, approval)


async def test_single_file_tampered_with_is_not_committed(shell: WorkspaceFixture) -> None:
    approval = await effect(shell, "echo good > x.log")
    # In place, so that it is the same inode with the same size.
    staged(shell).write_text("evil\n")

    await refused_as_unlike_shown(shell, approval)


async def test_base_of_a_shown_diff_must_be_unchanged(shell: WorkspaceFixture) -> None:
    (shell.project / "x.log").write_text("old\n")
    approval = await effect(shell, "echo new >> x.log")
    (shell.project / "x.log").write_text("own\n")

    renewed = await refused_as_unlike_shown(shell, approval)

    assert "-old" not in str(renewed.approval.changes)
    assert " own\n+new\n" in by_path(renewed)["/x.log"]["diff"]


async def refused_as_unlike_shown(workspace: WorkspaceFixture, approval: PausedCall) -> PausedCall:
    """The approval does not count: the call is asked about again, with its current changes."""
    before = listing(workspace)
    await decide(workspace, approval)

    [outcome] = await carried_out(workspace)

    assert outcome.is_waiting, outcome
    renewed = await workspace.engine.paused_calls.get(workspace.tenant, outcome.metadata["pause_id"])
    assert renewed.approval.replaces == approval.id
    assert {k: v for k, v in listing(workspace).items() if k.startswith("project")} == {
        k: v for k, v in before.items() if k.startswith("project")
    }
    return renewed
