"""The order of renames, tested on random moves in a tree that is a dictionary."""

import random

import pytest

from tests.wait_until import is_quick
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.sync.apply_to_disk import RenameOrder


def at(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)


def turns(moves: dict[str, str], folders: set[str]) -> RenameOrder:
    return RenameOrder({at(source): at(goal) for source, goal in moves.items()}, {at(path) for path in folders})


def order(moves: dict[str, str], folders: set[str]) -> list[str]:
    return [path.path for path in turns(moves, folders)]


def test_a_folder_that_replaces_another_waits_and_so_do_its_contents() -> None:
    found = order({"/b": "/c/b", "/b/b": "/c/b/b", "/c/b": "/a/b", "/c/b/a": "/a/b/a"}, {"/b", "/c/b"})

    assert found.index("/c/b") < found.index("/b") < found.index("/b/b")


def test_entries_that_leave_a_folder_move_before_it() -> None:
    moves = {"/a": "/b", "/a/x": "/x", "/a/y": "/b/y"}

    assert order(moves, {"/a"}) == ["/a/x", "/a", "/a/y"]
    assert turns(moves, {"/a"}).carrier(at("/a/y")) == at("/a")
    assert list(turns(moves, {"/a"}).leaving(at("/a"))) == [at("/a/x")]


def test_folders_that_swap_paths_stay_and_their_contents_move() -> None:
    found = order({"/a": "/b", "/b": "/a", "/a/x": "/b/x", "/b/y": "/a/y", "/c": "/a/c"}, {"/a", "/b", "/c"})

    assert sorted(found) == ["/a/x", "/b/y", "/c"]


def test_a_folder_that_moves_into_itself_stays() -> None:
    assert order({"/a": "/a/b", "/a/x": "/a/b/x"}, {"/a"}) == ["/a/x"]


def test_a_long_chain_and_many_swaps_are_ordered_quickly() -> None:
    chain = {f"/{number}": f"/{number + 1}" for number in range(5_000)}
    trades = {f"/t/{number}": f"/t/{number ^ 1}" for number in range(5_000)}

    found = order(chain | trades, set())

    assert is_quick(lambda: order(chain | trades, set()), seconds=2)
    assert found[: len(chain)] == list(reversed(chain))
    assert set(found) == {*chain, *trades}


@pytest.mark.parametrize("seed", range(400))
def test_no_folder_carries_along_an_entry_that_moves_elsewhere(seed: int) -> None:
    chance = random.Random(seed)
    tree = {path: path for path in _random_paths(chance)}
    folders = {path for path in tree if any(other.startswith(path + "/") for other in tree)}
    moves = _random_moves(chance, set(tree), folders)
    before = dict(tree)

    for workspace_path in (found := turns(moves, folders)):
        _rename(tree, found, workspace_path, moves, folders)

    for path, came_from in tree.items():
        allowed = {came_from, moves.get(came_from, came_from)}
        assert path in allowed, f"{came_from} is at {path} after {moves}"
    assert sorted(tree.values()) == sorted(before)


def _rename(
    tree: dict[str, str], found: RenameOrder, workspace_path: WorkspacePath, moves: dict[str, str], folders: set[str]
) -> None:
    """Renames as the disk does: only to a free path with no file above it, and with everything inside."""
    source, goal = workspace_path.path, moves[workspace_path.path]
    is_stuck = any(left.path in tree for left in found.leaving(workspace_path))
    is_below_a_file = any(
        tree.get(above.path, above.path) not in folders for above in at(goal).ancestors if above.path in tree
    )
    if tree.get(source) != source or goal in tree or is_stuck or is_below_a_file or goal.startswith(source + "/"):
        return
    for path in [path for path in tree if path == source or path.startswith(source + "/")]:
        tree[goal + path[len(source) :]] = tree.pop(path)


def _random_paths(chance: random.Random) -> set[str]:
    paths: set[str] = set()
    for _ in range(chance.randint(2, 8)):
        parts = chance.choices("abc", k=chance.randint(1, 3))
        paths.update("/" + "/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return paths


def _random_moves(chance: random.Random, paths: set[str], folders: set[str]) -> dict[str, str]:
    """Random moves. Entries of a moved folder move along, or elsewhere. No two get the same path."""
    moves: dict[str, str] = {}
    taken: set[str] = set()
    for path in sorted(paths):
        above = next((folder for folder in sorted(folders, key=len, reverse=True) if path.startswith(folder + "/")), "")
        goal = moves.get(above, above) + path[len(above) :]
        if chance.random() < 0.4:
            goal = "/" + "/".join(chance.choices("abcd", k=chance.randint(1, 3)))
        while goal in taken or (goal == path and above in moves):
            goal += chance.choice("xyz")
        taken.add(goal)
        if goal != path:
            moves[path] = goal
    return moves
