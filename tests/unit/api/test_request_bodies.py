"""What is valid JSON, and when a body is too large."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from toolcrib.api.request_guard import limited
from toolcrib.core.errors import BadArguments, TooLarge
from toolcrib.core.strict_json import MAX_DEPTH, strict_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@given(VALUES, st.booleans())
def test_every_json_value_is_parsed_unchanged(value: Any, ascii_only: bool) -> None:
    assert strict_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b'{"a": 1, "a": 2}',
        b'[{"b": {"a": 1, "a": 1}}]',
        b"NaN",
        b"[-Infinity]",
        b'"\\ud83d"',
        b'"\\uDE00\\uD83D"',
        b'"\xed\xa0\xbd"',
        b"\xff",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"[" * 1_000_000,
    ],
)
def test_ambiguous_and_invalid_json_is_rejected(body: bytes) -> None:
    with pytest.raises(BadArguments):
        strict_json(body)


def test_a_surrogate_pair_of_escapes_is_one_character() -> None:
    assert strict_json(b'"\\ud83d\\ude00"') == "😀"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_beyond_the_limit_is_rejected(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    assert strict_json(nested(MAX_DEPTH))
    with pytest.raises(BadArguments, match="Validation failed"):
        strict_json(nested(MAX_DEPTH + 1))


def test_brackets_within_text_do_not_count_as_nesting() -> None:
    text = "[{" * 10_000

    assert strict_json(json.dumps({"content": text}).encode()) == {"content": text}


async def test_a_body_is_stopped_at_its_limit() -> None:
    parts = iter([b"12345", b"67890", b"1"])

    async def receive() -> Message:
        return {"type": "http.request", "body": next(parts), "more_body": True}

    bounded = limited(receive, 10)

    assert [(await bounded())["body"] for _ in range(2)] == [b"12345", b"67890"]
    with pytest.raises(TooLarge):
        await bounded()
