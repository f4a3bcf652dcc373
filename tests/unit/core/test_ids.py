"""Ids: UUIDv7, each greater than the one before, whatever threads and clocks do."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest

from toolcrib.core.ids import new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = new_id()

    assert made.version == 7
    assert made.variant == RFC_4122


def test_an_id_contains_its_creation_time() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()

    assert abs((made.int >> 80) - before) < 1_000


def test_every_id_is_greater_than_the_one_before() -> None:
    made = [new_id() for _ in range(20_000)]

    assert all(earlier < later for earlier, later in pairwise(made))


def test_ids_grow_across_threads_too() -> None:
    made: list[UUID] = []
    turn = threading.Lock()

    def make_some() -> None:
        for _ in range(2_000):
            with turn:
                made.append(new_id())

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(make_some) for _ in range(8)]:
            done.result()

    assert all(earlier < later for earlier, later in pairwise(made))


def test_no_two_threads_make_the_same_id_and_each_sees_its_own_grow() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [new_id() for _ in range(2_000)], range(8)))

    assert len({made for batch in batches for made in batch}) == 16_000
    assert all(earlier < later for batch in batches for earlier, later in pairwise(batch))


@pytest.mark.parametrize("hours_back", [0, 1], ids=["stands still", "goes back"])
def test_ids_grow_while_the_clock_stops(monkeypatch: pytest.MonkeyPatch, hours_back: int) -> None:
    last = new_id()
    frozen = time.time_ns() - hours_back * 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: frozen)

    # More ids than one millisecond can hold: the counter overflows.
    made = [last, *(new_id() for _ in range(10_000))]

    assert all(earlier < later for earlier, later in pairwise(made))
    assert all(one.version == 7 and one.variant == RFC_4122 for one in made)
