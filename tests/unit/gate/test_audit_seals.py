"""Positions as ranges: the ranges of a seal are compact and cover exactly its positions."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.audit_seals import runs


@given(st.sets(st.integers(1, 60)).map(sorted))
def test_ranges_cover_the_positions_and_nothing_else(positions: list[int]) -> None:
    found = runs(positions)

    assert [position for part in found for position in part] == positions
    assert all(later.start > earlier.stop for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    ("positions", "ranges"),
    [([], ()), ([5], (range(5, 6),)), ([1, 2, 3], (range(1, 4),)), ([1, 3, 4], (range(1, 2), range(3, 5)))],
)
def test_adjacent_positions_are_one_range(positions: list[int], ranges: tuple[range, ...]) -> None:
    assert runs(positions) == ranges
