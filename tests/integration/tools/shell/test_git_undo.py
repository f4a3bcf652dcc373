"""Undo in git repositories: as git, with a person who works in between."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.git_builders import Repository, new_repository
from tests.integration.workspace.undo_builders import snapshot

COMMIT = "echo agent > a.txt; echo new > c.txt; git add -A; git commit -qm agent"
PERSON = "echo person > p.txt; git add p.txt; git commit -qm person"


@pytest.fixture
def repository(workspace: WorkspaceFixture) -> Repository:
    return new_repository(workspace)


def outside(repository: Repository) -> dict[str, object]:
    return {path: entry for path, entry in snapshot(repository.root).items() if not path.startswith(".git/")}


SCRIPTS = [
    COMMIT,
    "git commit -q --amend -m other",
    "git checkout -q -b topic/one; " + COMMIT,
    "git checkout -q --detach HEAD~1",
    "git branch -m main trunk",
    "git tag -a v1 -m v1; git tag light",
    "git rm -q b.txt",
    "git add -N . ; echo x > x; git add x",
    "git config user.name Agent; git config alias.x status",
    "echo x > a.txt; git stash -q",
    "echo x > a.txt; git stash -q; echo y > a.txt; git stash -q; git stash drop -q",
    "git reset -q --hard HEAD~1",
    "git gc -q --prune=now",
    "git pack-refs --all; " + COMMIT,
    "git checkout -q -b t HEAD~1; echo z > b.txt; git add .; git commit -qm t; git merge -q main || true",
    "git checkout -q -b t HEAD~1; echo z > b.txt; git add .; git commit -qm t; git rebase -q main || true",
    "git checkout -q -b t HEAD~1; echo z > b.txt; git add .; git commit -qm t; git cherry-pick main || true",
    "git worktree add -q w -b w; cd w; " + COMMIT,
    "git symbolic-ref refs/heads/alias refs/heads/main",
    "git update-ref -d refs/heads/main",
    "git bisect start HEAD HEAD~1",
    "git update-index --index-version 4; " + COMMIT,
]
BETWEEN = ["true", "git status", "git gc -q", "git pack-refs --all"]
# Here nothing tells what was before: a tag has no log, and a collection writes the others' logs again.
UNTOLD = [(5, "git gc -q"), (5, "git pack-refs --all"), (19, "git gc -q")]
TOLD = [
    pytest.param(script, between, id=f"{number}-{between}", marks=() if between == "git status" else pytest.mark.long)
    for number, script in enumerate(SCRIPTS)
    for between in BETWEEN
    if (number, between) not in UNTOLD
]


@pytest.mark.parametrize(("script", "between"), TOLD)
async def test_commands_are_undone_and_redone(repository: Repository, script: str, between: str) -> None:
    before, files = repository.state(), outside(repository)
    await repository.agent(script)
    after, left = repository.state(), outside(repository)
    repository.person(between)

    undone = await repository.undo()

    assert undone["conflicts"] == []
    assert repository.state() == before
    assert outside(repository) == files
    repository.check()
    repository.person(between)
    redone = await repository.undo(undone["call_id"])
    assert redone["conflicts"] == []
    assert repository.state() == after
    assert outside(repository) == left
    repository.check()


async def test_a_branch_deleted_and_made_again_is_undone_and_redone(repository: Repository) -> None:
    repository.person("git branch other HEAD~1")
    before = repository.state()
    await repository.agent("git checkout -q other; git branch -q -D main; git reflog expire --all")
    await repository.agent("git gc -q --prune=now; git switch -q -c main")
    after = repository.state()

    undone = await repository.undo()

    assert undone["conflicts"] == []
    assert repository.state() == before
    redone = await repository.undo(undone["call_id"])
    assert redone["conflicts"] == []
    assert repository.state() == after
    repository.check()


@pytest.mark.parametrize(("number", "between"), UNTOLD)
async def test_where_nothing_tells_what_was_before_it_stays(repository: Repository, number: int, between: str) -> None:
    await repository.agent(SCRIPTS[number])
    repository.person(between)
    now = repository.state()

    undone = await repository.undo()

    assert undone["conflicts"] != []
    assert repository.state().refs == now.refs
    repository.check()


@pytest.mark.parametrize("packed", [False, True])
async def test_commits_on_packed_refs_are_undone_after_a_person_packs_again(
    repository: Repository, packed: bool
) -> None:
    repository.person("git branch other; git tag -a v1 -m v1; git gc -q")
    before = repository.state()
    await repository.agent(COMMIT)
    await repository.agent("git branch -D other; git branch new; git tag -d v1")
    repository.person("git gc -q" if packed else "git status")

    undone = await repository.undo()

    assert undone["conflicts"] == []
    assert repository.state() == before
    repository.check()


@pytest.mark.parametrize("pack", ["git gc -q", "git pack-refs --all; git repack -qad"])
async def test_branch_that_a_person_packs_between_commits_is_undone_and_redone(
    repository: Repository, pack: str
) -> None:
    before = repository.state()
    await repository.agent(COMMIT)
    repository.person(pack)
    await repository.agent("git commit -q --allow-empty -m second")
    after = repository.state()

    undone = await repository.undo()

    assert undone["conflicts"] == []
    assert repository.state() == before
    assert (await repository.undo(undone["call_id"]))["conflicts"] == []
    assert repository.state() == after
    repository.check()


@pytest.mark.parametrize("move", ["git reset -q --soft HEAD~1", "git branch -m main x; git checkout -q -b main HEAD~1"])
async def test_branch_that_a_person_moves_and_packs_between_commits_stays(repository: Repository, move: str) -> None:
    await repository.agent(COMMIT)
    repository.person(f"{move}; git pack-refs --all")
    await repository.agent("git commit -q --allow-empty -m second")
    now = repository.state()

    undone = await repository.undo()

    assert "/.git/refs/heads/main" in {conflict["path"] for conflict in undone["conflicts"]}
    assert repository.state().refs == now.refs
    repository.check()


async def test_undo_runs_no_program_of_the_repository(repository: Repository) -> None:
    marker = repository.root.parent / "ran"
    hooks = repository.root / ".git" / "hooks"
    repository.person(
        f"printf '#!/bin/sh\\ntouch {marker} 2>/dev/null || true\\n' > run; chmod +x run; "
        f"for h in post-checkout post-commit reference-transaction post-index-change; do cp run {hooks}/$h; done; "
        "git config core.fsmonitor $PWD/run; git status"
    )
    assert marker.exists()
    marker.unlink()
    await repository.agent(COMMIT)

    undone = await repository.undo()
    await repository.undo(undone["call_id"])

    assert undone["conflicts"] == []
    assert not marker.exists()


async def test_a_commit_on_top_stays_with_what_it_stands_on(repository: Repository) -> None:
    await repository.agent(COMMIT)
    repository.person(PERSON)
    now = repository.state()

    undone = await repository.undo()

    assert "/.git/refs/heads/main" in {conflict["path"] for conflict in undone["conflicts"]}
    assert repository.state() == now
    repository.check()
    assert (repository.root / "a.txt").read_text() == "one\n"


async def test_branch_stays_that_has_what_a_moved_branch_left(repository: Repository) -> None:
    left = repository.state().refs["refs/heads/main"]
    await repository.agent("git branch backup; git branch other HEAD~1; git reset -q --soft HEAD~1")
    repository.person("git commit -qm person")
    state = repository.state()

    undone = await repository.undo()

    refs = repository.state().refs
    assert refs == {name: value for name, value in state.refs.items() if name != "refs/heads/other"}
    assert refs["refs/heads/backup"] == left
    assert any("backup has the commit that" in one["reason"] for one in undone["conflicts"])
    repository.check()


async def test_a_staged_change_of_a_person_stays(repository: Repository) -> None:
    await repository.agent(COMMIT)
    repository.person("echo staged > s.txt; git add s.txt")
    now = repository.state()

    undone = await repository.undo()

    assert undone["conflicts"] != []
    assert repository.state() == now
    repository.check()


async def test_branch_that_a_person_checked_out_stays(repository: Repository) -> None:
    await repository.agent("git branch topic")
    repository.person("git checkout -q topic")
    now = repository.state()

    undone = await repository.undo()

    assert undone["conflicts"] != []
    assert repository.state() == now
    repository.check()


async def test_a_persons_stash_stays(repository: Repository) -> None:
    await repository.agent("echo x > a.txt; git stash -q")
    repository.person("echo y > b.txt; git stash -q")
    now = repository.state()

    await repository.undo()

    assert repository.state().stashes == now.stashes
    repository.check()


async def test_commits_are_undone_one_after_the_other(repository: Repository) -> None:
    before = [repository.state()]
    for number in range(3):
        await repository.agent(f"echo {number} > a.txt; git commit -qam {number}")
        before.append(repository.state())

    for expected in reversed(before[:-1]):
        undone = await repository.workspace.result("undo", last="call")
        assert undone["conflicts"] == []
        assert repository.state() == expected
    repository.check()


async def test_repository_that_the_agent_made_is_removed(workspace: WorkspaceFixture) -> None:
    repository = Repository(workspace)
    (workspace.project / "a.txt").write_text("one\n")
    before = snapshot(workspace.project)
    await repository.agent("git init -q; git add .; git commit -qm first")
    repository.person("git status")

    undone = await repository.undo()

    assert undone["conflicts"] == []
    assert snapshot(workspace.project) == before


async def test_repository_that_the_agent_made_stays_once_it_is_used(workspace: WorkspaceFixture) -> None:
    repository = Repository(workspace)
    await repository.agent("git init -q; echo a > a.txt; git add .; git commit -qm first")
    repository.person(PERSON)
    now = repository.state()

    undone = await repository.undo()

    assert [conflict["path"] for conflict in undone["conflicts"]] == ["/.git/HEAD"]
    assert repository.state() == now
    repository.check()


async def test_worktree_with_a_persons_commit_stays(repository: Repository) -> None:
    await repository.agent("git worktree add -q w -b w")
    # The agent's paths are not the person's, so git finds the worktree only by its directories.
    git = "git --git-dir=$PWD/.git/worktrees/w --work-tree=$PWD/w"
    repository.person(f"{git} commit -q --allow-empty -m person")
    commit = repository.person("git rev-parse w")

    await repository.undo()

    assert repository.person("git rev-parse w") == commit
    repository.check()


async def test_commits_in_a_submodule_are_undone(repository: Repository) -> None:
    repository.person(
        "git init -q -b main lib; cd lib; echo l > l; git add .; git commit -qm lib; cd ..; "
        "git submodule add -q ./lib sub; git commit -qm sub"
    )
    before = [repository.state(), repository.state("sub")]
    await repository.agent("cd sub; echo m > l; git commit -qam inside; cd ..; git commit -qam outside")
    repository.person("git status")

    undone = await repository.undo()

    assert undone["conflicts"] == []
    assert [repository.state(), repository.state("sub")] == before
    repository.check()
    repository.check("sub")


@pytest.mark.parametrize("used", [False, True])
async def test_refs_in_tables_return_with_everything_or_not_at_all(repository: Repository, used: bool) -> None:
    tables = repository.root / ".git" / "reftable"
    tables.mkdir()
    (tables / "tables.list").write_text("one\n")
    before = repository.state()
    await repository.agent(f"{COMMIT}; echo two > .git/reftable/tables.list")
    if used:
        (tables / "tables.list").write_text("three\n")
    now = repository.state()

    undone = await repository.undo()

    assert (undone["conflicts"] != []) == used
    assert repository.state() == (now if used else before)
    assert (tables / "tables.list").read_text() == ("three\n" if used else "one\n")
    repository.check()


async def test_nothing_is_undone_while_git_runs(repository: Repository) -> None:
    await repository.agent(COMMIT)
    now = repository.state()
    (repository.root / ".git" / "index.lock").touch()

    outcome = await repository.workspace.call("undo", calls=repository.calls)

    assert outcome.error is not None
    assert "index.lock exists" in outcome.error.message
    assert (repository.root / "a.txt").read_text() == "agent\n"
    assert repository.state() == now


async def test_commit_of_a_person_between_those_of_the_agent_stays(repository: Repository) -> None:
    await repository.agent(COMMIT)
    repository.person(PERSON)
    await repository.agent("echo again > a.txt; git commit -qam again")
    now = repository.state()

    await repository.undo()

    assert repository.state() == now
    repository.check()


async def test_staged_change_of_a_person_between_those_of_the_agent_stays(repository: Repository) -> None:
    await repository.agent("echo x > x; git add x")
    repository.person("git status; echo p > p; git add p")
    await repository.agent("echo y > y; git add y")
    now = repository.state()

    await repository.undo()

    assert repository.state() == now
