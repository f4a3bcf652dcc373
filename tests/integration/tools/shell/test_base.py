"""A command's base is its start: a concurrent change of others is a conflict that names the file and its author."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.gate.builders import rows
from tests.integration.tools.builders import state_of
from tests.integration.tools.shell.builders import another_engine, hand, ran
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Conflict, PermissionDenied, ReadOnlyMount
from toolcrib.core.tool_calls import Outcome, ToolCall


@dataclass
class Running:
    """A command that has started and waits for a signal to continue."""

    task: asyncio.Task[Outcome]
    flag: Path

    async def ended(self) -> Outcome:
        self.flag.write_text("go")
        return await self.task


async def begun(workspace: WorkspaceFixture, command: str, caller: Caller | None = None) -> Running:
    """The command waits for a file in its own @state, which its view shows."""
    caller = caller or workspace.caller
    flag = state_of(workspace, caller) / "flag"
    flag.write_text("wait")
    started = asyncio.Event()
    text = f"ls -R > /dev/null; echo begun; until grep -q go /state/flag; do :; done; {command}"
    call = ToolCall("bash", {"command": text})
    task = asyncio.create_task(workspace.engine.executor.execute(call, caller, emit=lambda _: started.set()))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert started.is_set(), task.result()
    return Running(task, flag)


async def test_of_two_commands_that_change_a_file_one_commits_and_the_other_names_it_and_its_author(
    workspace: WorkspaceFixture,
) -> None:
    await ran(workspace, "echo first > shared; echo other > other")
    agent = await hand(workspace)
    slow = await begun(workspace, "echo slow >> shared; echo slow > new")

    quick = await workspace.call("bash", agent, command="echo quick >> shared")
    outcome = await slow.ended()

    assert quick.succeeded
    assert isinstance(outcome.error, Conflict)
    assert f"/shared (by agent {agent.agent_id}" in outcome.error.message
    assert (workspace.project / "shared").read_text() == "first\nquick\n"
    assert not (workspace.project / "new").exists()


async def test_commands_that_change_different_files_both_commit(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "mkdir d; echo a > d/a; echo b > d/b")
    slow = await begun(workspace, "echo slow > d/a; echo x > d/new")

    await ran(another_engine(workspace), "echo quick > d/b; echo y > d/also")
    outcome = await slow.ended()

    assert outcome.succeeded, outcome.error
    assert {f.name: f.read_text() for f in (workspace.project / "d").iterdir()} == {
        "a": "slow\n", "b": "quick\n", "new": "x\n", "also": "y\n",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("echo theirs > f", "echo ours > f"),
        ("echo theirs > f", "rm f"),
        ("rm f", "echo ours > f"),
        ("echo theirs > new", "echo ours > new"),
        ("chmod 600 f", "echo ours > f"),
        ("rm -r d", "echo ours > d/g"),
        ("echo theirs > d/more", "rm -r d"),
        ("echo theirs > d/g", "rm -r d; mkdir d"),
        ("rm f; mkdir f", "rm -rf f"),
        ("ln -sf elsewhere f", "rm f"),
    ],
)
async def test_any_change_by_others_to_a_changed_path_is_a_conflict_and_stays(
    workspace: WorkspaceFixture, theirs: str, ours: str
) -> None:
    await ran(workspace, "echo before > f; mkdir d; echo before > d/g")
    slow = await begun(workspace, ours)

    await ran(workspace, theirs)
    then = await ran(workspace, "ls -lR --time-style=+ ; cat f d/*")
    outcome = await slow.ended()

    assert isinstance(outcome.error, Conflict), outcome
    assert (await ran(workspace, "ls -lR --time-style=+ ; cat f d/*"))["output"] == then["output"]


@pytest.mark.parametrize("how", ["echo theirs > f", "echo theirs > f.new; mv f.new f", "touch f"])
async def test_concurrent_change_by_a_program_outside_is_not_overwritten(workspace: WorkspaceFixture, how: str) -> None:
    await ran(workspace, "echo before > f")
    slow = await begun(workspace, "echo ours > f")

    process = await asyncio.create_subprocess_shell(how, cwd=workspace.project)
    await process.wait()
    outcome = await slow.ended()

    assert isinstance(outcome.error, Conflict), outcome
    assert "by a program outside Toolcrib" in outcome.error.message
    assert "ours" not in (workspace.project / "f").read_text()


async def test_change_on_disk_before_the_command_is_no_conflict_and_undo_restores_it(
    workspace: WorkspaceFixture,
) -> None:
    await ran(workspace, "echo known > f")
    (workspace.project / "f").write_text("edited outside\n")
    (workspace.project / "unknown").write_text("never seen\n")
    outcome = await workspace.call("bash", command="echo ours > f; rm unknown")
    assert outcome.succeeded, outcome.error

    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert (workspace.project / "f").read_text() == "edited outside\n"
    assert (workspace.project / "unknown").read_text() == "never seen\n"


async def test_command_right_after_a_write_has_no_conflict(workspace: WorkspaceFixture) -> None:
    for number in range(10):
        (workspace.project / "f").write_text(f"{number}\n")
        await workspace.result("write", path=f"/g{number}", content="x")
        assert (await ran(workspace, f"echo more >> f; echo more >> g{number}"))["is_error"] is False


async def test_effect_outside_the_agents_paths_is_denied_completely(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, paths=["src/**"])

    outside = await workspace.call("bash", agent, command="mkdir src; echo a > src/a; echo b > b")
    inside = await workspace.call("bash", agent, command="mkdir src; echo a > src/a")

    assert isinstance(outside.error, PermissionDenied)
    assert inside.succeeded, inside.error
    assert [path.name for path in workspace.project.iterdir()] == ["src"]
    assert await rows(workspace, "select from toolcrib.versions where path = '/b' and workspace_id = %s") == []


async def test_command_cannot_write_the_logs_of_a_state(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("bash", command="mkdir -p /state/logs; echo forged > /state/logs/execution.jsonl")

    assert isinstance(outcome.error, ReadOnlyMount)


async def test_workspace_runs_four_commands_at_once_and_blocks_no_other_workspace(
    workspace: WorkspaceFixture,
) -> None:
    callers = [await hand(workspace) for _ in range(4)]
    four = [await begun(workspace, ":", caller) for caller in callers]
    fifth = asyncio.create_task(ran(workspace, "echo fifth"))
    other = replace(workspace, caller=await new_caller(workspace.engine))

    assert (await ran(other, "echo other"))["output"] == "other\n"
    assert not fifth.done()
    await four[0].ended()
    assert (await fifth)["output"] == "fifth\n"
    for running in four[1:]:
        assert (await running.ended()).succeeded
