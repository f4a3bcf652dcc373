"""Cases of a parametrized test: the gate runs some of them, ``make campaigns`` all others."""

from collections import defaultdict
from collections.abc import Iterable

import pytest


def leave_out_cases(items: Iterable[pytest.Item]) -> None:
    """Mark as long all but ``count`` cases of each test that is marked ``gate_cases(count)``, evenly spread.

    A case that is left out for another reason does not count.
    """
    cases_of: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        is_left_out = any(item.get_closest_marker(name) for name in ("long", "crash"))
        if not is_left_out and item.get_closest_marker("gate_cases") is not None:
            cases_of[item.nodeid.partition("[")[0]].append(item)
    for cases in cases_of.values():
        marker = cases[0].get_closest_marker("gate_cases")
        assert marker is not None
        (count,) = marker.args
        kept = {number * len(cases) // count for number in range(count)}
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.long)
