"""Which calls of a message wait for which, decided from their declared effects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wait_until import is_quick
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.gate.parallel_calls import conflicts, dependencies


def at(*paths: str, mount: Mount = Mount.PROJECT) -> tuple[WorkspacePath, ...]:
    return tuple(WorkspacePath(mount, path) for path in paths)


def reads(*paths: str) -> Effects:
    return Effects(reads=at(*paths))


def writes(*paths: str) -> Effects:
    return Effects(writes=at(*paths))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (reads("/a"), reads("/a")),
        (reads("/"), reads("/a/b")),
        (writes("/a"), writes("/b")),
        (writes("/a"), reads("/b")),
        (writes("/ab"), writes("/a")),
        (writes("/d/a"), writes("/d/b")),
        (writes("/a"), Effects(writes=at("/a", mount=Mount.CENTRAL))),
        (writes("/a"), Effects(writes=(WorkspacePath(Mount.STATE, "/a", "run"),))),
        (writes("/a"), Effects(hosts=("example.org",))),
        (Effects(hosts=("example.org",)), Effects(hosts=("example.org",))),
        (Effects(writes=at("/d/a"), requires=at("/d")), reads("/d/b")),
        (reads("/x"), Effects(reads_batch=at("/x", "/y"))),
    ],
)
def test_calls_with_separate_effects_do_not_conflict(one: Effects, other: Effects) -> None:
    assert not conflicts(one, other)
    assert not conflicts(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (writes("/a"), writes("/a")),
        (writes("/a"), reads("/a")),
        (writes("/a"), Effects(reads_batch=at("/b", "/a"))),
        (writes("/d/a"), reads("/d")),
        (writes("/d/a"), reads("/")),
        (writes("/d"), reads("/d/a/b")),
        (writes("/"), writes("/a")),
        (writes("/b", "/c"), writes("/a", "/c/d")),
        (writes("/d/a"), Effects(writes=at("/d/b"), requires=at("/d"))),
        (reads("/a"), Effects(command="ls")),
        (Effects(hosts=("example.org",)), Effects(command="curl example.org")),
        (reads("/a"), Effects()),
        (Effects(), Effects()),
        (reads("/a"), None),
        (None, None),
    ],
)
def test_calls_whose_order_could_matter_conflict(one: Effects | None, other: Effects | None) -> None:
    assert conflicts(one, other)
    assert conflicts(other, one)


def test_calls_wait_for_earlier_calls_that_they_conflict_with() -> None:
    effects = [writes("/a"), reads("/b"), reads("/a"), writes("/b"), Effects(command="make"), reads("/c"), None]

    assert dependencies(effects) == [[], [], [0], [1], [0, 1, 2, 3], [4], [0, 1, 2, 3, 4, 5]]


def test_an_empty_list_of_calls_has_no_dependencies() -> None:
    assert dependencies([]) == []


paths = st.lists(st.sampled_from(at("/", "/a", "/a/b", "/a/b/c", "/d")), max_size=2).map(tuple)
any_effects = st.none() | st.builds(Effects, reads=paths, reads_batch=paths, writes=paths, requires=paths)


@given(st.lists(any_effects, max_size=8))
def test_the_later_of_two_conflicting_calls_waits_and_none_waits_for_a_later_one(
    effects: list[Effects | None],
) -> None:
    waiting = dependencies(effects)

    for later in range(len(effects)):
        assert waiting[later] == [n for n in range(later) if _order_matters(effects[n], effects[later])]


def _order_matters(one: Effects | None, other: Effects | None) -> bool:
    """Compare all paths of two calls with each other."""
    if one is None or other is None or not (one.paths or one.hosts) or not (other.paths or other.hosts):
        return True
    return _meet(one.writes, (*other.paths, *other.requires)) or _meet((*one.paths, *one.requires), other.writes)


def _meet(some: tuple[WorkspacePath, ...], others: tuple[WorkspacePath, ...]) -> bool:
    return any(one == other or one.is_below(other) or other.is_below(one) for one in some for other in others)


def test_hundreds_of_calls_with_many_deep_paths_are_put_in_order_quickly() -> None:
    deep = "/d" * 30
    effects = [writes(f"{deep}/w{n}") for n in range(128)]
    effects += [reads(*(f"{deep}/r{n}-{k}" for k in range(50))) for n in range(128)]

    assert is_quick(lambda: dependencies(effects), 0.5)
