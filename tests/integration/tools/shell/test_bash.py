"""``bash``: what a command returns, what it sees, and what it leaves behind."""

import asyncio
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.gate.builders import rows
from tests.integration.tools.shell.builders import hand, ran
from toolcrib.core.tool_calls import ToolCall
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.storage.users import ActingUser


async def test_ac15_echo_hello_is_output_with_exit_code_0(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, "echo hello")

    assert result["output"] == "hello\n"
    assert result["is_error"] is False
    assert result["metadata"]["exitCode"] == 0


async def test_ac16_exit_42_is_an_error_with_that_code(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, "echo before; exit 42")

    assert result["is_error"] is True
    assert result["metadata"]["exitCode"] == 42
    assert "before" in result["output"]


async def test_ac17_command_longer_than_its_timeout_is_a_timeout_error(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("bash", command="echo begun; echo x > made; sleep 300", timeout=1)

    assert outcome.error is not None
    assert outcome.error.code == "TIMED_OUT"
    assert outcome.result["is_error"] is True
    assert "timed out after 1 s" in outcome.result["output"]
    assert "begun" in outcome.result["output"]
    assert list(workspace.project.iterdir()) == []


async def test_command_starts_in_the_root_of_the_project(workspace: WorkspaceFixture) -> None:
    assert (await ran(workspace, "pwd"))["output"] == "/project\n"


async def test_path_printed_by_a_command_works_in_the_file_tools(workspace: WorkspaceFixture) -> None:
    said = (await ran(workspace, "mkdir d; echo a > d/a; readlink -f d/a; echo b > /central/b"))["output"].strip()

    assert said == "/project/d/a"
    assert (await workspace.result("file_read", path=said))["output"] == "a\n"
    assert (await workspace.result("file_read", path="/central/b"))["output"] == "b\n"


async def test_persons_own_directory_stays_where_it_is(workspace: WorkspaceFixture) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as own:
        created = await workspace.stores.workspaces.create(
            ActingUser(workspace.caller.user_id), name="own", node=workspace.settings.node_name, root_path=own
        )
        here = replace(workspace, caller=replace(workspace.caller, workspace_id=created.id))

        result = await ran(here, "pwd; echo a > a")

        assert result["output"] == f"{own}\n"
        assert Path(own, "a").read_text() == "a\n"


async def test_changes_of_a_failed_command_are_committed_and_reported(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, "echo kept > a.txt; exit 3")

    assert result["is_error"] is True
    assert "its file changes were kept" in result["output"]
    assert result["metadata"]["changed"] == {"created": 1, "modified": 0, "deleted": 0, "paths": ["a.txt"]}
    assert (workspace.project / "a.txt").read_text() == "kept\n"


async def test_long_output_keeps_head_and_tail_and_counts_the_rest(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, "echo first; yes | head -c 1000000; echo last")

    assert result["output"].startswith("first\n")
    assert result["output"].endswith("last\n")
    assert len(result["output"]) < 101_000
    assert result["metadata"]["truncatedBytes"] >= 900_011


async def test_output_is_shown_while_the_command_runs(workspace: WorkspaceFixture) -> None:
    heard: list[str] = []

    await workspace.engine.executor.execute(
        ToolCall("bash", {"command": "echo one; echo two >&2"}), workspace.caller, emit=heard.append
    )

    assert "".join(heard) == "one\ntwo\n"


async def test_environment_has_no_secret_of_the_server(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_API_KEY", "hunter2")

    assert "hunter2" not in (await ran(workspace, "env; cat /proc/*/environ"))["output"]


async def test_agents_own_limit_ends_a_command_that_asked_for_more(workspace: WorkspaceFixture) -> None:
    agent = await hand(workspace, timeout=1)

    outcome = await workspace.call("bash", agent, command="sleep 300", timeout=200)

    assert outcome.error is not None
    assert outcome.error.code == "TIMED_OUT"


async def test_cancelling_raises_and_leaves_the_tree_untouched(workspace: WorkspaceFixture) -> None:
    begun = asyncio.Event()
    call = ToolCall("bash", {"command": "echo x > made; echo begun; sleep 300"})
    running = asyncio.create_task(workspace.engine.executor.execute(call, workspace.caller, emit=lambda _: begun.set()))
    await begun.wait()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(workspace.project.iterdir()) == []


async def test_no_process_outlives_its_command(workspace: WorkspaceFixture) -> None:
    mark = f"toolcrib-{secrets.token_hex(8)}"
    detach = f"(setsid sh -c 'trap \"\" TERM HUP; : {mark}; sleep 300' >/dev/null 2>&1 &)"

    await ran(workspace, detach)

    assert mark not in "".join(_command_lines())


def _command_lines() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield process.read_bytes().decode(errors="replace")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("python3 -c 'print(6 * 7)'", "42"),
        ("node -e 'console.log(6 * 7)'", "42"),
        ("printf 'all:\\n\\t@echo made\\n' > Makefile && make", "made"),
        ("git log --format=%s", "first"),
    ],
)
async def test_common_programs_work_in_a_repository(workspace: WorkspaceFixture, program: str, said: str) -> None:
    await ran(workspace, "git init -q && echo a > a && git add a && git commit -qm first")

    result = await ran(workspace, program, await hand(workspace))

    assert result["is_error"] is False, result["output"]
    assert result["output"].strip() == said


async def test_agents_git_commit_is_undone_completely(workspace: WorkspaceFixture) -> None:
    await ran(workspace, "git init -q && echo a > a && git add a && git commit -qm first")
    agent = await hand(workspace)
    outcome = await workspace.call("bash", agent, command="echo b > b && git add b && git commit -qm second && git log")
    assert "second" in outcome.result["output"], outcome

    await workspace.result("undo", calls=[str(outcome.call_id)])

    assert (await ran(workspace, "git status --short; git log --format=%s; git fsck --no-dangling"))[
        "output"
    ] == "first\n"


async def test_isolation_level_is_in_the_result_and_in_the_audit_log(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("bash", command="echo a > a")

    assert outcome.result["metadata"]["isolation"] == "namespaces"
    [(isolation,)] = await rows(
        workspace,
        "select isolation from toolcrib.audit_records where call_id = %s and workspace_id = %s",
        outcome.call_id,
    )
    assert isolation == "namespaces"


async def test_without_isolation_bash_is_not_offered_and_the_error_gives_the_reason(
    database: Database, settings: Settings
) -> None:
    workspace = await new_workspace(database, settings, sandbox=Sandbox(binary="/nonexistent/bwrap"))
    await workspace.engine.shell.probe()
    agent = await hand(workspace)
    assert agent.agent is not None

    outcome = await workspace.call("bash", command="echo x > a")

    assert outcome.error is not None
    assert "bubblewrap is not installed" in outcome.error.message
    assert workspace.engine.registry.list_for_scope(agent.agent.rules) == []
    assert list(workspace.project.iterdir()) == []


async def test_other_mounts_are_visible_and_a_write_to_packages_fails(workspace: WorkspaceFixture) -> None:
    (workspace.mount("pkg") / "lib.txt").write_text("library\n")

    result = await ran(workspace, "cat /pkg/lib.txt; echo plan > /central/p.md; echo n > /state/n; echo x > /pkg/x; :")

    assert result["output"].startswith("library\n")
    assert "Read-only file system" in result["output"]
    assert (workspace.mount("central") / "p.md").read_text() == "plan\n"
    assert result["metadata"]["changed"]["paths"] == ["@central/p.md", "@state/n"]


async def test_special_files_are_reported_and_not_imported(workspace: WorkspaceFixture) -> None:
    result = await ran(workspace, "mkfifo pipe; echo a > a")

    assert "pipe" in result["metadata"]["skipped"][0]
    assert [path.name for path in workspace.project.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["$(printf 'a\\nb')", "$(printf '\\377')", "' x'", "'a\\b'"])
async def test_name_that_the_history_cannot_store_rejects_the_complete_effect(
    workspace: WorkspaceFixture, name: str
) -> None:
    outcome = await workspace.call("bash", command=f"echo a > a; echo b > {name}")

    assert outcome.error is not None
    assert "an invalid name" in outcome.error.message
    assert list(workspace.project.iterdir()) == []
