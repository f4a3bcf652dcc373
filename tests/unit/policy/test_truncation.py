"""Truncation: the result for a model always fits, is always JSON, and counts what is missing."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wait_until import is_quick
from toolcrib.policy.truncation import SMALLEST_LIMIT, truncate

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=60), inner, max_size=12),
    max_leaves=60,
)


def _bytes(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return len(text.encode())


@given(_json, st.integers(SMALLEST_LIMIT, 2_000))
def test_the_output_is_json_that_fits(result: Any, limit: int) -> None:
    bounded = truncate(result, limit_bytes=limit)
    assert _bytes(bounded.value) <= limit
    assert bounded.was_truncated or bounded.value is result
    assert bounded == truncate(result, limit_bytes=limit)


@given(st.text('a"\\\n\x00é…😀', max_size=3_000), st.integers(SMALLEST_LIMIT, 1_000))
def test_a_text_keeps_its_head_and_its_tail(text: str, limit: int) -> None:
    bounded = truncate(text, limit_bytes=limit)
    if not bounded.was_truncated:
        return
    head, _, rest = bounded.value.partition("\n[… ")
    count, _, tail = rest.partition(" bytes truncated …]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len((head + tail).encode()) + int(count.replace(",", "")) == len(text.encode())
    assert limit - _bytes(bounded.value) < 32


def test_a_result_that_fits_exactly_is_unchanged() -> None:
    result = {"content": "x" * 500}
    assert truncate(result, limit_bytes=_bytes(result)).value is result
    assert truncate(result, limit_bytes=_bytes(result) - 1).was_truncated


def test_the_large_value_is_truncated_and_the_small_ones_stay() -> None:
    result = {"path": "/a", "content": "line\n" * 100_000, "lines": 100_000, "hash": "ab" * 32}
    bounded = truncate(result, limit_bytes=10_000)
    assert bounded.total_bytes == _bytes(result)
    assert {**bounded.value, "content": None} == {**result, "content": None}
    assert " bytes truncated …]" in bounded.value["content"]
    assert _bytes(bounded.value) > 9_900


def test_a_long_list_keeps_its_first_items_complete_and_counts_the_rest() -> None:
    matches = [{"path": f"/src/{number}.py", "line": number, "text": "x" * 80} for number in range(5_000)]
    shown = truncate({"matches": matches}, limit_bytes=20_000).value["matches"]
    assert shown[:-1] == matches[: len(shown) - 1]
    assert shown[-1] == f"[… {5_001 - len(shown):,} more items truncated …]"
    assert len(shown) > 150


def test_a_few_large_items_are_all_shortened_rather_than_dropped() -> None:
    files = [{"path": f"/{number}", "content": "x" * 50_000} for number in range(5)]
    shown = truncate(files, limit_bytes=50_000).value
    assert [file["path"] for file in shown] == ["/0", "/1", "/2", "/3", "/4"]


def test_a_wide_object_keeps_its_first_entries_and_counts_the_rest() -> None:
    shown = truncate({f"k{number}": number for number in range(10_000)}, limit_bytes=1_000).value
    assert shown["k0"] == 0
    assert shown["…"] == f"[… {10_001 - len(shown):,} more entries truncated …]"


def test_values_that_json_lacks_are_replaced() -> None:
    assert truncate([math.nan, math.inf, 1.5], limit_bytes=1_000).value == [None, None, 1.5]


def test_too_deep_nesting_is_reported() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    bounded = truncate(nested, limit_bytes=1_000)
    assert bounded.was_truncated
    assert "nested more than 100 levels deep" in json.dumps(bounded.value)


def test_a_limit_below_the_minimum_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 256"):
        truncate("", limit_bytes=255)


def _nested_text(levels: int) -> Any:
    value: Any = "x" * 10_000_000
    for _ in range(levels):
        value = {"inner": value}
    return value


@pytest.mark.parametrize(
    "result",
    [
        pytest.param("é\n" * 3_300_000, id="one text"),
        pytest.param([{"n": n, "text": "x" * 80} for n in range(100_000)], id="many items"),
        pytest.param({str(n): "x" * 80 for n in range(100_000)}, id="many entries"),
        pytest.param([["x" * 1_000] * 100] * 100, id="lists of lists"),
        pytest.param(_nested_text(90), id="deep inside"),
    ],
)
def test_ten_megabytes_are_truncated_in_moderate_time(result: Any) -> None:
    assert is_quick(lambda: truncate(result, limit_bytes=50_000), seconds=3)
    assert _bytes(truncate(result, limit_bytes=50_000).value) <= 50_000
