"""Cases of a test of which the gate runs the first ones, and ``make campaigns`` the others."""

from collections.abc import Iterable

import pytest


def gate_runs(count: int, cases: Iterable[object]) -> list[object]:
    return [case if number < count else pytest.param(case, marks=pytest.mark.long) for number, case in enumerate(cases)]
