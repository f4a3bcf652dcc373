"""git in commands of agents: the repository's format, its remotes and the person's settings, without secrets."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, carried_out, decide
from tests.integration.sandbox.sandbox_fixture import COPYING
from tests.integration.tools.shell.builders import another_engine, hand, ran

TOKEN = "hunter2"
HEADER = f'[http]\n\textraHeader = "Authorization: Basic {TOKEN}"\n'
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *IDENTITY, *words], check=True, capture_output=True, text=True)
    return done.stdout


def repository(folder: Path, *options: str, settings: Sequence[str] = ()) -> Path:
    """A repository with one commit, a remote whose address has a token, and a header with one."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main", *options)
    git(folder, "remote", "add", "origin", f"https://ada:{TOKEN}@example.org/shop.git")
    for setting in settings:
        git(folder, "config", *setting.split("=", 1))
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Start")
    with (folder / ".git" / "config").open("a") as config:
        config.write(HEADER)
    return folder


@pytest.mark.parametrize("copied", [False, True])
async def test_repository_with_sha256_is_read_and_committed_to(workspace: WorkspaceFixture, *, copied: bool) -> None:
    repository(workspace.project, "--object-format=sha256")
    place = workspace.with_engine(sandbox=COPYING) if copied else workspace
    command = "git rev-parse --show-object-format && echo two >> a.txt && git commit -qam Second && git log --format=%s"

    seen = await ran(place, f"{command}; git remote -v; git config --list; cat .git/config", await hand(workspace))

    assert seen["output"].startswith("sha256\nSecond\nStart\norigin\thttps://example.org/shop.git (fetch)\n")
    assert TOKEN not in str(seen)
    assert git(workspace.project, "log", "--format=%s") == "Second\nStart\n"
    assert git(workspace.project, "status", "--short") == ""


async def test_files_with_other_line_ends_and_modes_are_not_changed(workspace: WorkspaceFixture) -> None:
    repository(workspace.project, settings=["core.autocrlf=true", "core.fileMode=false"])
    (workspace.project / "a.txt").unlink()
    git(workspace.project, "checkout", "-q", "a.txt")
    (workspace.project / "a.txt").chmod(0o755)

    assert (workspace.project / "a.txt").read_bytes() == b"one\r\n"
    assert git(workspace.project, "status", "--short") == ""
    # Otherwise git does not look at the content.
    os.utime(workspace.project / "a.txt", (1, 1))
    assert (await ran(workspace, "git status --short", await hand(workspace)))["output"] == ""


async def test_branch_that_follows_a_remote_is_made_and_deleted_without_approval(workspace: WorkspaceFixture) -> None:
    repository(workspace.project)
    git(workspace.project, "update-ref", "refs/remotes/origin/main", "HEAD")
    config, agent = workspace.project / ".git" / "config", await hand(workspace)
    before = config.read_text()

    await ran(workspace, "git branch -q --track fix origin/main", agent)
    followed = config.read_text()
    await ran(workspace, "git branch -q -D fix", agent)

    assert followed.startswith(before)
    assert followed.removeprefix(before) == '[branch "fix"]\n\tremote = "origin"\n\tmerge = "refs/heads/main"\n'
    assert config.read_text() == before


async def test_approved_change_keeps_what_the_command_did_not_see(workspace: WorkspaceFixture) -> None:
    repository(workspace.project)
    before = (workspace.project / ".git" / "config").read_text()

    approval = await asked(workspace, await hand(workspace), "bash", command="git remote add fork ../fork")
    await decide(workspace, approval)
    [outcome] = await carried_out(workspace)

    assert outcome.succeeded, outcome.error
    after = (workspace.project / ".git" / "config").read_text()
    assert after.startswith(before)
    assert after.removeprefix(before) == (
        '[remote "fork"]\n\turl = "../fork"\n\tfetch = "+refs/heads/*:refs/remotes/fork/*"\n'
    )


async def test_linked_worktree_can_be_read_and_its_repository_not_changed(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    main = repository(tmp_path / "main")
    workspace.project.rmdir()
    git(main, "worktree", "add", "-q", "-b", "topic", str(workspace.project))
    (workspace.project / "a.txt").write_text("two\n")
    agent, before = await hand(workspace), (main / ".git" / "config").read_bytes()

    seen = await ran(workspace, "git status --short -b; git diff --stat; git log --format=%s; git remote -v", agent)
    write = f"git add a.txt; touch {main}/.git/HEAD; cat {main}/.git/config {main}/a.txt"
    written = await ran(workspace, write, agent)
    limited = await ran(workspace, "git log", await hand(workspace, paths=["docs/**"]))

    assert seen["output"].startswith("## topic\n M a.txt\n a.txt | 2 +-\n")
    assert "\nStart\norigin\thttps://example.org/shop.git (fetch)\n" in seen["output"]
    assert "Read-only file system" in written["output"]
    assert "No such file" in written["output"]
    assert TOKEN not in str([seen, written])
    assert git(workspace.project, "status", "--short") == " M a.txt\n"
    assert (main / ".git" / "config").read_bytes() == before
    assert "[git does not work in commands here: `.git` names " in limited["output"]


async def test_pointer_to_a_repository_that_does_not_know_the_project_shows_nothing(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "other"))
    pointer = (tmp_path / "other" / ".git").read_text()
    (workspace.project / ".git").write_text(pointer)

    seen = await ran(workspace, f"git log; ls {main}/.git; git --git-dir {main}/.git log", await hand(workspace))

    assert "Start" not in seen["output"]
    assert f"[git does not work in commands here: `.git` names {main}/.git/worktrees/other" in seen["output"]


async def test_persons_ignore_rules_and_settings_reach_commands_without_secrets(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    repository(workspace.project)
    (workspace.project / "a.swp").write_text("")
    (tmp_path / "ignored").write_text("*.swp\n")
    personal = tmp_path / "gitconfig"
    personal.write_text(
        f"[core]\n\texcludesFile = {tmp_path}/ignored\n\tautocrlf = input\n\tpager = touch pwned\n"
        f"[credential]\n\thelper = {TOKEN}\n"
    )
    place = another_engine(workspace, git_config_files=(personal,))

    seen = await ran(place, "git status --short; git config --list; cat /etc/git/*", await hand(workspace))

    assert "a.swp" not in seen["output"]
    assert "core.autocrlf=input" in seen["output"]
    assert TOKEN not in seen["output"]
    assert "pwned" not in seen["output"]
    assert git(workspace.project, "status", "--short") == "?? a.swp\n"


async def test_commands_in_a_repository_leave_no_file_open(workspace: WorkspaceFixture) -> None:
    repository(workspace.project)
    agent = await hand(workspace)
    await ran(workspace, "git status --short", agent)
    before = open_below(workspace.project)

    for _ in range(3):
        await ran(workspace, "git status --short", agent)

    assert open_below(workspace.project) == before


def open_below(folder: Path) -> list[str]:
    """Return the paths of this process's descriptors that lead into a folder."""
    links = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    paths = [os.readlink(link) for link in links if link.is_symlink()]
    return sorted(path for path in paths if Path(path).is_relative_to(folder))
