"""What is excluded from the garbage collection."""

import gc
import sys
import weakref
from types import ModuleType

import pytest

from toolcrib.runtime.process_setup import freeze_gc


class Circle:
    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _collects_as_before() -> None:
    freeze_gc()


def test_garbage_of_a_process_that_loads_nothing_more_is_freed() -> None:
    dropped = weakref.ref(Circle())

    freeze_gc()
    gc.collect()

    assert dropped() is None


def test_what_was_loaded_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    monkeypatch.setitem(sys.modules, "test_process_setup_module", ModuleType("test_process_setup_module"))
    kept: list[list[int]] = [[] for _ in range(1_000)]

    freeze_gc()

    assert gc.get_freeze_count() >= before + len(kept)
