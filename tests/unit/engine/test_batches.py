"""Which calls of a message wait for which: decided from what they declare to touch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.domain.effects import Effects
from toolcrib.domain.places import Mount, Place
from toolcrib.engine.batches import conflict, waits_for

pytestmark = pytest.mark.req("TL-9")


def at(*paths: str, mount: Mount = Mount.PROJECT) -> tuple[Place, ...]:
    return tuple(Place(mount, path) for path in paths)


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
        (writes("/a"), Effects(writes=(Place(Mount.STATE, "/a", "run"),))),
        (writes("/a"), Effects(contacts=("example.org",))),
        (Effects(contacts=("example.org",)), Effects(contacts=("example.org",))),
        (Effects(writes=at("/d/a"), needs=at("/d")), reads("/d/b")),
        (reads("/x"), Effects(reads_each=at("/x", "/y"))),
    ],
)
def test_calls_that_do_not_touch_the_same_do_not_conflict(one: Effects, other: Effects) -> None:
    assert not conflict(one, other)
    assert not conflict(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (writes("/a"), writes("/a")),
        (writes("/a"), reads("/a")),
        (writes("/a"), Effects(reads_each=at("/b", "/a"))),
        (writes("/d/a"), reads("/d")),
        (writes("/d/a"), reads("/")),
        (writes("/d"), reads("/d/a/b")),
        (writes("/"), writes("/a")),
        (writes("/b", "/c"), writes("/a", "/c/d")),
        (writes("/d/a"), Effects(writes=at("/d/b"), needs=at("/d"))),
        (reads("/a"), Effects(runs="ls")),
        (Effects(contacts=("example.org",)), Effects(runs="curl example.org")),
        (reads("/a"), Effects()),
        (Effects(), Effects()),
        (reads("/a"), None),
        (None, None),
    ],
)
def test_calls_whose_order_could_matter_conflict(one: Effects | None, other: Effects | None) -> None:
    assert conflict(one, other)
    assert conflict(other, one)


def test_calls_wait_for_those_before_them_that_they_conflict_with() -> None:
    effects = [writes("/a"), reads("/b"), reads("/a"), writes("/b"), Effects(runs="make"), reads("/c"), None]

    assert waits_for(effects) == [[], [], [0], [1], [0, 1, 2, 3], [4], [0, 1, 2, 3, 4, 5]]


def test_no_calls_wait_for_nothing() -> None:
    assert waits_for([]) == []


places = st.lists(st.sampled_from(at("/", "/a", "/a/b", "/a/b/c", "/d")), max_size=2).map(tuple)
any_effects = st.none() | st.builds(Effects, reads=places, reads_each=places, writes=places, needs=places)


@given(st.lists(any_effects, max_size=8))
def test_of_two_that_conflict_the_later_waits_and_nobody_waits_for_what_comes_after(
    effects: list[Effects | None],
) -> None:
    waiting = waits_for(effects)

    for later in range(len(effects)):
        assert waiting[later] == [n for n in range(later) if conflict(effects[n], effects[later])]
