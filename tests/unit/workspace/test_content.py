"""Contents: lines as a reader counts them, JSON values, and other bytes."""

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import ContentKind
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.text.content import (
    LineWindow,
    decode_content,
    encode_content,
    file_state,
    is_binary,
    line_count,
    line_window,
)

texts = st.text(st.sampled_from("ab\n\r\f\u2028\ufeff\t"), max_size=40)


def naive(text: str, *, offset: int, limit: int | None) -> LineWindow:
    """The lines one by one, as a reader would count them."""
    lines: list[str] = []
    line = ""
    for char in text:
        line += char
        if char == "\n":
            lines.append(line)
            line = ""
    if line:
        lines.append(line)
    start = offset if offset >= 0 else len(lines) + offset
    start = min(max(start, 0), len(lines))
    rest = lines[start:]
    chosen = rest if limit is None else rest[:limit]
    return LineWindow("".join(chosen), start, len(lines), truncated=len(chosen) < len(rest))


@given(texts, st.integers(-12, 12), st.none() | st.integers(1, 12))
def test_a_window_matches_a_simple_line_count(text: str, offset: int, limit: int | None) -> None:
    assert line_window(text, offset=offset, limit=limit) == naive(text, offset=offset, limit=limit)


@given(texts, st.integers(1, 5))
def test_consecutive_windows_make_the_text(text: str, limit: int) -> None:
    pieces: list[str] = []
    offset = 0
    while (part := line_window(text, offset=offset, limit=limit)).text:
        pieces.append(part.text)
        offset += limit

    assert "".join(pieces) == text


@pytest.mark.parametrize(
    ("text", "offset", "limit", "expected"),
    [
        ("", 0, 500, LineWindow("", 0, 0, truncated=False)),
        ("\n", 0, 500, LineWindow("\n", 0, 1, truncated=False)),
        ("a", 0, 1, LineWindow("a", 0, 1, truncated=False)),
        ("a\nb", 0, 1, LineWindow("a\n", 0, 2, truncated=True)),
        ("a\nb", 1, 1, LineWindow("b", 1, 2, truncated=False)),
        ("a\nb\n", -1, 500, LineWindow("b\n", 1, 2, truncated=False)),
        ("a\nb", -1, 500, LineWindow("b", 1, 2, truncated=False)),
        ("a\nb\nc", -100, 2, LineWindow("a\nb\n", 0, 3, truncated=True)),
        ("a\nb\nc", -2, 1, LineWindow("b\n", 1, 3, truncated=True)),
        ("a\nb", 99, 5, LineWindow("", 2, 2, truncated=False)),
        ("a\r\nb\r\n", 1, 1, LineWindow("b\r\n", 1, 2, truncated=False)),
        ("a\rb\n", 0, 1, LineWindow("a\rb\n", 0, 1, truncated=False)),
        ("\ufeffa\nb", 0, 1, LineWindow("\ufeffa\n", 0, 2, truncated=True)),
        ("a\fb\u2028c\n", 0, 1, LineWindow("a\fb\u2028c\n", 0, 1, truncated=False)),
        ("a\n", 10**30, 10**30, LineWindow("", 1, 1, truncated=False)),
        ("a\n", -(10**30), 10**30, LineWindow("a\n", 0, 1, truncated=False)),
    ],
)
def test_windows_at_the_edges(text: str, offset: int, limit: int, expected: LineWindow) -> None:
    assert line_window(text, offset=offset, limit=limit) == expected


@given(texts)
def test_a_files_lines_are_counted_as_a_window_counts_them(text: str) -> None:
    assert line_count(text.encode()) == line_window(text, offset=0, limit=None).total_lines


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
        ),
    )
)
def test_a_value_round_trips_through_its_stored_json(value: Any) -> None:
    body, kind = encode_content(value)

    assert kind is ContentKind.JSON
    assert json.loads(body) == value
    assert decode_content(body, kind) == value


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_a_string_is_stored_as_its_own_bytes(text: str) -> None:
    body, kind = encode_content(text)

    assert (body, kind) == (text.encode(), ContentKind.TEXT)
    assert decode_content(body, kind) == text


@pytest.mark.parametrize(
    "value",
    ["\ud800", {"a": "\udfff"}, {"\ud800": 1}, math.nan, [math.inf], {"a": -math.inf}, 10**5_000],
    ids=["text", "value", "key", "nan", "infinity", "minus infinity", "huge number"],
)
def test_a_value_that_cannot_be_stored_is_a_wrong_argument(value: object) -> None:
    with pytest.raises(BadArguments) as caught:
        encode_content(value)

    assert set(caught.value.fields) == {"content"}


def test_a_number_with_too_many_digits_is_not_called_infinite() -> None:
    with pytest.raises(BadArguments) as caught:
        encode_content(10**5_000)

    assert "infinity" not in caught.value.fields["content"]


def test_a_value_that_is_nested_too_deeply_is_a_wrong_argument() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(BadArguments) as caught:
        encode_content(deep)

    assert set(caught.value.fields) == {"content"}


def test_invalid_json_is_text() -> None:
    assert decode_content(b'{"a": ', ContentKind.JSON) == '{"a": '


@pytest.mark.parametrize(
    "text",
    ["[" * 300 + "]" * 300, "[" * 200_000 + "]" * 200_000, "[NaN]", "[-Infinity]", '["\\ud800"]', "1" * 5_000],
    ids=["deep", "very deep", "nan", "infinity", "lone surrogate", "huge number"],
)
def test_json_that_cannot_be_encoded_again_is_text(text: str) -> None:
    assert decode_content(text.encode(), ContentKind.JSON) == text


def test_binary_bytes_are_returned_as_base64() -> None:
    body = b"\x89PNG\0\0"

    assert is_binary(body)
    assert decode_content(body) == {"encoding": "base64", "data": base64.b64encode(body).decode()}


@given(st.binary())
def test_base64_is_stored_as_its_bytes(body: bytes) -> None:
    value = {"encoding": "base64", "data": base64.b64encode(body).decode()}

    assert encode_content(value)[0] == body


@pytest.mark.parametrize("data", ["A", "AA=A", "A\nAA", "ä===", "!!!!"])
def test_invalid_base64_is_a_wrong_argument(data: str) -> None:
    with pytest.raises(BadArguments) as caught:
        encode_content({"encoding": "base64", "data": data})

    assert "base64" in caught.value.fields["content"]


@pytest.mark.parametrize(
    "value",
    [{"encoding": "base64", "data": "AAAA", "name": "a"}, {"encoding": "hex", "data": "AAAA"}, {"data": "AAAA"}],
)
def test_other_objects_are_json(value: dict[str, str]) -> None:
    body, kind = encode_content(value)

    assert (json.loads(body), kind) == (value, ContentKind.JSON)


def test_invalid_utf_8_is_returned_with_replacements() -> None:
    assert decode_content(b"caf\xe9\n") == "caf\ufffd\n"


def test_hash_size_and_lines_are_of_the_bytes() -> None:
    state = file_state(WorkspacePath(Mount.PROJECT, "/a"), b"\xef\xbb\xbfa\r\nb")

    assert (state.size, state.line_count, state.content_kind) == (7, 2, ContentKind.TEXT)
    assert file_state(WorkspacePath(Mount.PROJECT, "/a"), b"\0\n").line_count is None
