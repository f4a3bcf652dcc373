"""A command as a transaction: its effect is known, bounded and discarded; its processes are ended."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.sandbox.sandbox_fixture import COPYING, SANDBOX, Stand, apply, snapshot
from tests.wait_until import PATIENCE
from toolcrib.core.errors import TooLarge, ToolFailed
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.overlay import EntryChange, EntryType
from toolcrib.sandbox.resource_limits import descendants
from toolcrib.sandbox.sandbox import Sandbox


@pytest.fixture(params=[SANDBOX, COPYING], ids=["overlay", "copy"])
async def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Stand:
    stand = Stand(tmp_path, request.param)
    await stand.sandbox.probe()  # from here on the fork server runs, and stays
    return stand


def steps(effect: object) -> list[tuple[str, str, str]]:
    return [(entry.change.value, entry.kind.value, entry.path) for entry in effect]  # type: ignore[attr-defined]


async def test_command_runs_in_the_first_directory_and_returns_output_and_exit_code(stand: Stand) -> None:
    shown: list[str] = []
    result = await stand.run("pwd; echo wrong >&2; echo 'é'; exit 7", shown.append)
    assert (result.exit_code, result.output.text) == (7, "/mnt/project\nwrong\né\n")
    assert "".join(shown) == result.output.text
    level = (await stand.sandbox.require()).level
    assert (result.timed_out, result.stopped, result.dropped, level) == (False, None, 0, "namespaces")


async def test_effect_lists_what_was_created_changed_and_deleted(stand: Stand) -> None:
    (stand.tree / "old" / "deep").mkdir(parents=True)
    (stand.tree / "old" / "deep" / "x").write_text("x")
    (stand.tree / "same").write_text("same")
    (stand.tree / "edited").write_text("before")
    (stand.tree / "script").write_text("#!/bin/sh")
    before = snapshot(stand.tree)
    async with stand.begin() as view:
        await view.run(
            SandboxCommand(
                "touch same; echo after > edited; chmod 755 script; rm -r old; mkdir old; echo y > old/y; "
                "ln -s edited link; mkdir -p n/e/w"
            )
        )
        effect = await view.effect()
        # A copy cannot distinguish a touched file from a rewritten one; an overlay can.
        untouched = [step for step in steps(effect) if step[2] != "same"]
        assert len(steps(effect)) - len(untouched) == (0 if stand.sandbox is SANDBOX else 1)
        assert untouched == [
            ("deleted", "file", "old/deep/x"),
            ("deleted", "folder", "old/deep"),
            ("modified", "file", "edited"),
            ("created", "link", "link"),
            ("created", "folder", "n"),
            ("created", "folder", "n/e"),
            ("created", "folder", "n/e/w"),
            ("created", "file", "old/y"),
            ("modified", "file", "script"),
        ]
        by_path = {entry.path: entry for entry in effect}
        assert (by_path["script"].body, oct(by_path["script"].mode)) == (False, "0o755")
        assert by_path["link"].target == "edited"
        with effect.open(by_path["edited"]) as body:
            assert body.read() == b"after\n"
    assert snapshot(stand.tree) == before
    assert list(stand.staging.iterdir()) == []


async def test_effect_of_a_transaction_combines_all_its_commands(stand: Stand) -> None:
    async with stand.begin() as view:
        await view.run(SandboxCommand("echo one > a; mkdir d"))
        assert (await view.run(SandboxCommand("cat a; echo two > d/b; rm a"))).output.text == "one\n"
        assert steps(await view.effect()) == [("created", "folder", "d"), ("created", "file", "d/b")]
        with pytest.raises(ToolFailed, match="begin another"):
            await view.run(SandboxCommand("true"))


async def test_effect_of_ten_thousand_files_is_read_without_their_contents(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    async with stand.begin() as view:
        made = await view.run(
            SandboxCommand('i=0; while [ $i -lt 100 ]; do mkdir $i; touch $i/$(seq -s " $i/" 100); i=$((i+1)); done')
        )
        assert made.exit_code == 0, made.output.text
        effect = await view.effect()
    assert len([entry for entry in effect if entry.kind is EntryType.FILE]) == 10_000


async def test_change_of_type_is_a_deletion_and_a_creation(stand: Stand) -> None:
    (stand.tree / "file").write_text("f")
    (stand.tree / "folder").mkdir()
    (stand.tree / "folder" / "inner").write_text("i")
    (stand.tree / "link").symlink_to("file")
    async with stand.begin() as view:
        await view.run(SandboxCommand("rm file; mkdir file; rm -r folder; ln -s x folder; rm link; echo now > link"))
        found = steps(await view.effect())
    assert set(found[:4]) == {
        ("deleted", "file", "file"),
        ("deleted", "file", "folder/inner"),
        ("deleted", "folder", "folder"),
        ("deleted", "link", "link"),
    }
    assert found[4:] == [("created", "folder", "file"), ("created", "link", "folder"), ("created", "file", "link")]


async def test_masked_paths_are_empty_and_changes_to_them_are_marked(stand: Stand) -> None:
    (stand.tree / ".env").write_text("SECRET=1")
    (stand.tree / ".git" / "hooks").mkdir(parents=True)
    (stand.tree / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh")
    async with stand.begin(masked=[".env", ".git/hooks", "missing"]) as view:
        result = await view.run(
            SandboxCommand("ls -A; wc -c < .env; ls -A .git/hooks; echo x > ok; rm -f .env; echo y > .env")
        )
        effect = await view.effect()
    assert result.output.text.split() == [".env", ".git", "0"]
    assert [entry.path for entry in effect.masked] == [".env"]
    assert "ok" in {entry.path for entry in effect if not entry.masked}
    assert (stand.tree / ".env").read_text() == "SECRET=1"


async def test_cancelling_ends_the_command_and_discards_its_effect(stand: Stand) -> None:
    before = len(list(descendants(os.getpid())))
    up = asyncio.Event()
    running = asyncio.create_task(stand.run("echo made > x; echo up; sleep 600", lambda _: up.set()))
    await asyncio.wait_for(up.wait(), PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(list(descendants(os.getpid()))) == before
    assert list(stand.tree.iterdir()) == []
    assert list(stand.staging.iterdir()) == []


async def test_timeout_leaves_the_tree_untouched(stand: Stand) -> None:
    result = await stand.run(SandboxCommand("echo made > x; sleep 600", seconds=0.3))
    assert result.timed_out
    assert list(stand.tree.iterdir()) == []
    assert list(stand.staging.iterdir()) == []


async def test_concurrent_commands_do_not_see_each_other(tmp_path: Path) -> None:
    stand = Stand(tmp_path)

    async def one(number: int) -> list[str]:
        async with stand.begin() as view:
            result = await view.run(SandboxCommand(f"echo {number} > mine; echo {number} > /tmp/t; ls /tmp; cat mine"))
            assert result.output.text == f"t\n{number}\n"
            return [entry.path for entry in await view.effect()]

    assert await asyncio.gather(*(one(number) for number in range(8))) == [["mine"]] * 8


async def test_works_in_a_git_repository_with_common_tools(stand: Stand) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], cwd=stand.tree, check=True)
    (stand.tree / "Makefile").write_text("all:\n\t@/usr/bin/python3 -c 'print(6*7)'\n\t@node -e 'console.log(6*8)'\n")
    for words in (["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=stand.tree, check=True)
    command = (
        "git status --short && make && echo new > f && git add f && "
        "git -c user.name=n -c user.email=e@example.org commit -qm second && git log --oneline | wc -l"
    )
    async with stand.begin(masked=[".git/config", ".git/hooks"]) as view:
        result = await view.run(SandboxCommand(command))
        apply_to = stand.folder / "applied"
        subprocess.run(["cp", "-a", "-T", stand.tree, apply_to], check=True)
        effect = await view.effect()
        apply(effect, apply_to)
    assert result.output.text.split() == ["42", "48", "2"]
    assert effect.masked == ()
    log = subprocess.run(
        ["git", "-c", "safe.directory=*", "log", "--format=%s"],
        cwd=apply_to,
        check=True,
        capture_output=True,
        text=True,
    )
    assert log.stdout.split() == ["second", "first"]


async def test_tree_with_odd_characters_in_its_path_is_mounted(tmp_path: Path) -> None:
    folder = tmp_path / "a,b:c\\d e\"f'$(x)\n-é"
    folder.mkdir()
    stand = Stand(folder)
    (stand.tree / "kept").write_text("kept")
    async with stand.begin() as view:
        assert (await view.run(SandboxCommand("cat kept; echo new > made"))).output.text == "kept"
        assert [entry.path for entry in await view.effect()] == ["made"]


async def test_copy_above_the_size_limit_is_rejected(tmp_path: Path) -> None:
    stand = Stand(tmp_path, Sandbox(overlay=False, largest_copy=1_000))
    (stand.tree / "large").write_bytes(bytes(2_000))
    with pytest.raises(TooLarge, match="too large to copy"):
        await stand.run("true")
    assert list(stand.staging.iterdir()) == []


async def test_command_that_is_too_long_or_contains_a_nul_is_rejected(stand: Stand) -> None:
    for text in ("echo " + "x" * 100_001, "echo \0"):
        with pytest.raises(ToolFailed):
            await stand.run(text)


async def test_mode_of_the_root_is_part_of_the_effect(stand: Stand) -> None:
    stand.tree.chmod(0o755)
    async with stand.begin() as view:
        await view.run(SandboxCommand("chmod 700 ."))
        assert [(entry.path, entry.change, oct(entry.mode)) for entry in await view.effect()] == [
            (".", EntryChange.MODIFIED, "0o700")
        ]
