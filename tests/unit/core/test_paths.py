"""Workspace paths: ancestors, descendants, and the path of an entry after its folder moved."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.paths import Mount, WorkspacePath, mount_root, path_from_row

names = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=8)
paths = st.lists(names, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))
path_strategy = st.builds(WorkspacePath, st.sampled_from(Mount), paths, st.sampled_from(["", "run-1"]))


def project(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)


@pytest.mark.parametrize(
    ("path", "ancestors"),
    [("/", []), ("/a", []), ("/a/b", ["/a"]), ("/a/b/c.txt", ["/a", "/a/b"])],
)
def test_ancestors_are_the_folders_above_without_the_root(path: str, ancestors: list[str]) -> None:
    assert [workspace_path.path for workspace_path in project(path).ancestors] == ancestors


@given(path_strategy)
def test_every_ancestor_is_the_parent_of_the_next(path: WorkspacePath) -> None:
    chain = [mount_root(path.mount, path.scope), *path.ancestors, path]

    assert all(later.parent == earlier for earlier, later in pairwise(chain))
    assert all(path.is_below(above) for above in chain[:-1])


@given(path_strategy, names)
def test_a_child_has_its_name_its_parent_and_its_tree(path: WorkspacePath, name: str) -> None:
    child = path.child(name)

    assert (child.name, child.parent, child.mount_key) == (name, path, path.mount_key)
    assert child.parts == (*path.parts, name)
    assert child.is_below(path)
    assert not path.is_below(child)


@pytest.mark.parametrize(
    ("path", "folder", "below"),
    [
        ("/a/b", "/a", True),
        ("/a/b/c", "/a", True),
        ("/a", "/", True),
        ("/", "/", False),
        ("/a", "/a", False),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
    ],
)
def test_below_means_inside_and_not_a_common_prefix(path: str, folder: str, below: bool) -> None:
    assert project(path).is_below(project(folder)) is below


def test_nothing_is_below_a_folder_of_another_tree() -> None:
    mine, theirs = WorkspacePath(Mount.STATE, "/a/b", "run-1"), WorkspacePath(Mount.STATE, "/a", "run-2")

    assert not mine.is_below(theirs)
    assert not mine.is_below(WorkspacePath(Mount.PROJECT, "/a"))
    assert not mine.is_below(mount_root(Mount.STATE, "run-2"))


@given(path_strategy, st.lists(names, max_size=3), path_strategy)
def test_a_moved_entry_keeps_its_path_below_the_moved_folder(
    source: WorkspacePath, rest: list[str], destination: WorkspacePath
) -> None:
    inside, expected = source, destination
    for name in rest:
        inside, expected = inside.child(name), expected.child(name)

    assert inside.relocate(source, destination) == expected


@given(path_strategy)
def test_a_move_and_its_reverse_restore_the_path(path: WorkspacePath) -> None:
    elsewhere = WorkspacePath(Mount.CENTRAL, "/other/name")

    assert path.relocate(path, elsewhere).relocate(elsewhere, path) == path


@given(path_strategy)
def test_a_path_round_trips_through_its_stored_form(path: WorkspacePath) -> None:
    assert path_from_row(path.mount_key, path.path) == path


def test_scopes_distinguish_the_state_trees_of_one_workspace() -> None:
    one, other = mount_root(Mount.STATE, "run-1"), mount_root(Mount.STATE, "run-2")

    assert one != other
    assert (one.mount_key, other.mount_key) == ("state/run-1", "state/run-2")
    assert one.child("a").mount_key == "state/run-1"
    assert str(one.child("a")) == "@state/a"


def test_only_pkg_is_read_only() -> None:
    assert [mount for mount in Mount if not mount.writable] == [Mount.PKG]
