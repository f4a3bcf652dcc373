"""Generated git work of an agent and a person, then undo: nothing of the person is lost, and git finds no damage."""

import os
import random

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.git_builders import Repository, new_repository

# In the gate; `make campaigns ONLY=git-undo` goes on to 500.
IN_THE_GATE = 12
COUNT = int(os.environ.get("TOOLCRIB_GIT_INTERLEAVINGS", IN_THE_GATE))
FIRST = int(os.environ.get("TOOLCRIB_GIT_FIRST", "0"))
SEEDS = [
    pytest.param(seed, marks=() if seed < IN_THE_GATE else pytest.mark.long) for seed in range(FIRST, FIRST + COUNT)
]

EDIT = "echo {n} > {file}"
STEPS = (
    EDIT + "; git add -A; git commit -qm {who}{n}",
    EDIT + "; git add {file}",
    EDIT,
    "git commit -q --allow-empty -m {who}{n}",
    "git commit -q --amend --allow-empty -m {who}{n}",
    "git checkout -q -b {who}{n}",
    "git checkout -q {branch}",
    "git branch {who}{n}",
    "git branch -D {branch}",
    "git tag -a {who}{n} -m x",
    "git stash -q",
    "git stash pop -q",
    "git reset -q --soft HEAD~1",
    "git merge -q {branch}",
    "git rebase -q {branch}",
    "git merge --abort",
    "git rebase --abort",
    "git rm -q --cached {file}",
    "git restore --staged {file}",
    "git status",
    "git pack-refs --all",
    "git gc -q",
    "git repack -qad",
    "git cherry-pick {branch}",
    "git config user.{who} x{n}",
)


def step(rng: random.Random, repository: Repository, who: str, number: int) -> str:
    branches = repository.person("git for-each-ref --format='%(refname:short)' refs/heads").split() or ["main"]
    names = {"n": number, "who": who, "file": rng.choice("abc") + ".txt", "branch": rng.choice(branches)}
    return rng.choice(STEPS).format(**names)


def made_by_person(repository: Repository, *heads: str) -> set[str]:
    """The commits of the person that these commits lead to; without any, those that a ref, HEAD or a stash leads to."""
    known = "git log --all --format='%H %cn'; git log -g --format='%H %cn' stash; git log --format='%H %cn'"
    if heads:
        known = f"git log --format='%H %cn' {' '.join(heads)}"
    found = repository.person(f"({known}) 2>/dev/null || true")
    return {line.split(" ", 1)[0] for line in found.splitlines() if line.endswith(" Ada")}


def heads_of(repository: Repository) -> dict[str, tuple[str, ...]]:
    """The commits of each ref, of HEAD, and of all stashes."""
    lines = repository.person("git for-each-ref --format='%(refname) %(objectname)'; echo HEAD $(git rev-parse HEAD)")
    found = {line.split(" ")[0]: tuple(line.split(" ")[1:]) for line in lines.splitlines()}
    return found | {"refs/stash": tuple(repository.person("git stash list --format=%H").split())}


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_of_the_person_is_lost(workspace: WorkspaceFixture, seed: int) -> None:
    rng = random.Random(seed)
    repository = new_repository(workspace)
    made: list[str] = []
    staged_by_person: dict[str, str] = {}
    # Where the person left each ref. A commit that they dropped themselves is not lost by undo.
    left_by_person = {name: set(commits) for name, commits in heads_of(repository).items()}
    for number in range(rng.randint(3, 8)):
        who = rng.choice(("agent", "person"))
        script = step(rng, repository, who, number)
        made.append(f"{who}: {script}")
        index, heads = staged(repository), heads_of(repository)
        if who == "agent":
            await repository.agent(script, check=False)
        else:
            repository.person(script, check=False)
        for name, blob in staged(repository).items():
            # Whoever staged a content last; the person's must stay.
            if index.get(name) != blob:
                staged_by_person.pop(name, None)
                if who == "person":
                    staged_by_person[name] = blob
        if who == "person":
            now = heads_of(repository)
            for name in {name for name in {*heads, *now} if heads.get(name) != now.get(name)}:
                left = left_by_person.setdefault(name, set())
                left.difference_update(heads.get(name, ()))
                left.update(now.get(name, ()))
    if not repository.calls:
        return
    repository.check()
    before, index = made_by_person(repository), staged(repository)
    before &= made_by_person(repository, *(commit for left in left_by_person.values() for commit in left))
    kept = {name: blob for name, blob in staged_by_person.items() if index.get(name) == blob}
    is_committed = committed(repository)

    undone = await repository.undo()

    repository.check()
    assert made_by_person(repository) >= before, made
    held = committed(repository) | set(staged(repository).items())
    assert {item for item in kept.items() if item not in is_committed} <= held, made
    state = repository.state()
    redone = await repository.undo(undone["call_id"]) if undone["changes"] else {"conflicts": []}
    repository.check()
    assert redone["conflicts"] == [], made
    # Redo removes no object, so it may have nothing to do.
    await repository.undo(redone["call_id"]) if redone.get("changes") else None
    assert repository.state() == state, made


def staged(repository: Repository) -> dict[str, str]:
    """The files in the index with their contents."""
    lines = repository.person("git ls-files -s").splitlines()
    return {line.split("\t")[1]: line.split()[1] for line in lines}


def committed(repository: Repository) -> set[tuple[str, str]]:
    """The files of every commit that a ref leads to, with their contents."""
    lines = repository.person("git rev-list --all | while read c; do git ls-tree -r $c; done").splitlines()
    return {(line.split("\t")[1], line.split()[2]) for line in lines}
