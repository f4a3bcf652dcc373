"""Undo of ignored folders: what calls made and changed there leaves nothing behind."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.git_builders import Repository
from tests.integration.workspace.undo_builders import Snapshot, snapshot

SCRIPTS = {
    "made, then changed": ["mkdir build; echo 1 > build/a; echo 2 > build/b", "echo 3 > build/a"],
    "made, then added to": ["mkdir build; echo 1 > build/a", "mkdir build/deep; echo 3 > build/deep/c"],
    "made, then emptied": ["mkdir build; echo 1 > build/a; echo 2 > build/b", "rm build/a"],
    "made, removed, made": ["mkdir build; echo 1 > build/a", "rm -r build", "mkdir build; echo 2 > build/a"],
    "made in two places": [
        "mkdir -p src/build; echo 1 > src/build/a; mkdir build; echo 2 > build/b",
        "echo 3 > build/b",
    ],
    "changed below a folder": [
        "mkdir -p build/p/q; echo 1 > build/p/q/a",
        "mkdir build/p/r; echo 1 > build/p/r/x",
        "rm -r build/p/r; mkdir build/p/s; echo 1 > build/p/s/x",
    ],
    "links to folders": [
        "mkdir -p build/bin; echo 1 > build/bin/a; ln -s bin build/lib",
        "echo 2 > build/bin/b; rm build/bin/a",
    ],
    "moved": ["mkdir build; echo 1 > build/a", "mv build other", "echo 2 > other/a"],
    "mode": ["mkdir build; echo 1 > build/a", "chmod 700 build"],
    "links": ["mkdir build; ln -s ../a.txt build/l; echo 1 > build/a", "rm build/l; ln -s a build/l"],
    "python": [
        "echo 'x = 1' > m.py; python3 -c 'import m'",
        "echo 'x = 22' > m.py; python3 -c 'import m'",
        "echo 'x = 333' > m.py; echo 'y=1' > n.py; python3 -c 'import m, n'",
    ],
}
EARLIER = {
    "changed": ["echo 9 > there/a"],
    "changed twice": ["echo 9 > there/a", "echo 8 > there/a; echo 7 > there/new"],
    "removed": ["rm -r there"],
    "removed and made": ["rm -r there", "mkdir there; echo x > there/y"],
    "replaced at once": ["rm -r there; mkdir there; echo x > there/y"],
    "moved away": ["mv there elsewhere", "echo 1 > elsewhere/a"],
}


@pytest.fixture
def repository(workspace: WorkspaceFixture) -> Repository:
    repository = Repository(workspace)
    repository.person(
        "echo one > a.txt; printf 'build/\\nother/\\nthere/\\nelsewhere/\\n__pycache__/\\n' > .gitignore; "
        "mkdir -p there/deep; echo a > there/a; echo b > there/deep/b; ln -s a there/l; chmod 700 there/deep"
    )
    return repository


@pytest.mark.parametrize("scripts", [*SCRIPTS.values(), *EARLIER.values()], ids=[*SCRIPTS, *EARLIER])
@pytest.mark.parametrize("singly", [False, True], ids=["together", "one by one"])
async def test_ignored_folders_are_undone_and_redone(repository: Repository, scripts: list[str], singly: bool) -> None:
    before = snapshot(repository.root)
    for script in scripts:
        await repository.agent(script)

    await check_undo_and_redo(repository, before, singly=singly)


@pytest.mark.parametrize("last", ["true", "mv new/sub new/part", "mv new/m.py .", "rm -r new", "rm new/m.py"])
@pytest.mark.parametrize("singly", [False, True], ids=["together", "one by one"])
async def test_a_folder_goes_back_with_what_was_tracked_and_ignored_in_it_since(
    repository: Repository, last: str, singly: bool
) -> None:
    repository.person("mkdir -p old/sub; touch old/__init__.py old/sub/__init__.py; echo 'x = 1' > old/m.py")
    before = snapshot(repository.root)
    moved = await repository.workspace.call("mv", source="/old", destination="/new")
    repository.calls.append(str(moved.call_id))
    await repository.agent("sed -i s/1/22/ new/m.py")
    await repository.agent("python3 -c 'import new.m, new.sub'")
    await repository.agent(last)

    await check_undo_and_redo(repository, before, singly=singly)


@pytest.mark.parametrize(
    "by_hand",
    ["echo 2 > build/deep/theirs", "echo 2 > build/a", "echo 2 > build/later"],
    ids=["added", "edited", "known"],
)
async def test_a_folder_stays_if_someone_else_changed_files_in_it(repository: Repository, by_hand: str) -> None:
    await repository.agent("mkdir -p build/deep; echo 1 > build/a")
    await repository.agent("echo 1 > build/later")
    # Clocks of the database and of the machine may differ by a second.
    repository.person(f"sleep 1.1; {by_hand}")
    before = snapshot(repository.root)

    undone = await repository.undo(*repository.calls, dry_run=True)

    path = by_hand.split()[-1]
    assert [(c["path"], c["reason"]) for c in undone["conflicts"] if c["path"] == "/build"] == [
        ("/build", f"Someone else changed files in it: /{path}.")
    ]
    await repository.undo(repository.calls[0])
    assert snapshot(repository.root) == before


async def test_force_takes_a_folder_that_someone_else_changed(repository: Repository) -> None:
    before = snapshot(repository.root)
    await repository.agent("mkdir build; echo 1 > build/a")
    repository.person("sleep 1.1; echo 2 > build/theirs")
    after = snapshot(repository.root)

    undone = await repository.undo(*repository.calls, force=True)

    assert snapshot(repository.root) == before
    await repository.undo(undone["call_id"])
    assert snapshot(repository.root) == after


async def check_undo_and_redo(repository: Repository, before: Snapshot, *, singly: bool) -> None:
    after = snapshot(repository.root)

    undone = []
    for calls in [[call] for call in reversed(repository.calls)] if singly else [repository.calls]:
        undone.append(await repository.undo(*calls))

    assert [undo["conflicts"] for undo in undone] == [[] for _ in undone]
    assert snapshot(repository.root) == before
    for undo in reversed(undone):
        assert (await repository.undo(undo["call_id"]))["conflicts"] == []
    assert snapshot(repository.root) == after
