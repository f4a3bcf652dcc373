"""Edits: the passage changes, and every other byte stays as it is."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolcrib.domain.errors import BadArguments
from toolcrib.workspace.editing import inserted, replaced

pytestmark = pytest.mark.req("TL-4", part="edit")

# What files are really made of: line ends of both kinds, a BOM, half a character, a NUL.
bodies = st.lists(
    st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\r", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\0", "é".encode()]),
    max_size=20,
).map(b"".join)
passages = st.text(st.sampled_from("abé\n\r"), min_size=1, max_size=6)
new_texts = st.text(st.sampled_from("abxé\n\r\ufeff\0"), max_size=8)


def occurrences(body: bytes, passage: bytes) -> list[int]:
    """Every place where it stands, overlapping ones too."""
    return [at for at in range(len(body)) if body.startswith(passage, at)]


@given(bodies, passages, new_texts, bodies)
def test_everything_outside_the_passage_survives_byte_for_byte(head: bytes, old: str, new: str, tail: bytes) -> None:
    body = head + old.encode() + tail
    assume(len(occurrences(body, old.encode())) == 1)

    assert replaced(body, old, new) == head + new.encode() + tail


@given(bodies, passages)
def test_a_passage_is_replaced_if_and_only_if_it_stands_there_once(body: bytes, old: str) -> None:
    if len(occurrences(body, old.encode())) == 1:
        replaced(body, old, "x")
        return
    with pytest.raises(BadArguments) as caught:
        replaced(body, old, "x")
    assert set(caught.value.fields) == {"old_string"}


def test_a_passage_that_overlaps_itself_is_not_unique() -> None:
    with pytest.raises(BadArguments, match="Validation failed") as caught:
        replaced(b"}\n}\n}\n", "}\n}\n", "}\n")

    assert "Found 2 times (lines 1, 2)" in caught.value.fields["old_string"]


def test_a_passage_that_stands_twice_is_refused_with_its_lines() -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"x\ny\nx\n", "x", "z")

    assert "Found 2 times (lines 1, 3)" in caught.value.fields["old_string"]


def test_a_passage_that_stands_very_often_is_refused_at_once() -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"a\n" * 1_000_000, "a", "b")

    assert "Found 1000000 times (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 …)" in caught.value.fields["old_string"]


@pytest.mark.parametrize("old", ["", "\ud800"])
def test_a_passage_that_is_none_is_refused(old: str) -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"a", old, "b")

    assert set(caught.value.fields) == {"old_string"}


def test_a_lone_surrogate_cannot_be_put_in() -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"a", "a", "\udfff")
    assert set(caught.value.fields) == {"new_string"}

    with pytest.raises(BadArguments) as caught:
        inserted(b"a", 0, "\udfff")
    assert set(caught.value.fields) == {"insert_content"}


def lines_of(body: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in body.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@given(bodies, new_texts, st.data())
def test_inserting_leaves_every_line_before_and_after_as_it_is(body: bytes, content: str, data: st.DataObject) -> None:
    lines = lines_of(body)
    at = data.draw(st.integers(0, len(lines)))

    result = inserted(body, at, content)

    before, after = b"".join(lines[:at]), b"".join(lines[at:])
    middle = result[len(before) : len(result) - len(after)]
    assert result == before + middle + after
    # Besides the content itself only missing line ends are put in.
    ends = (b"", b"\n", b"\r\n")
    assert middle in {start + content.encode() + end for start in ends for end in ends}


@given(bodies, st.data())
def test_inserting_nothing_changes_nothing(body: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(lines_of(body))))

    assert inserted(body, at, "") == body


@pytest.mark.parametrize(
    ("body", "line", "content", "expected"),
    [
        (b"", 0, "a", b"a\n"),
        (b"a\nc\n", 1, "b", b"a\nb\nc\n"),
        (b"a\nc\n", 1, "b\n", b"a\nb\nc\n"),
        (b"a\n", 1, "b", b"a\nb\n"),
        (b"a", 1, "b", b"a\nb\n"),
        (b"a", 0, "b", b"b\na"),
        (b"a\r\nc\r\n", 1, "b", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nc", 2, "d", b"a\r\nc\r\nd\r\n"),
        (b"\xef\xbb\xbfa\n", 1, "b", b"\xef\xbb\xbfa\nb\n"),
        (b"\xff\n", 1, "b", b"\xff\nb\n"),
    ],
)
def test_lines_are_inserted_with_the_files_own_line_ends(body: bytes, line: int, content: str, expected: bytes) -> None:
    assert inserted(body, line, content) == expected


@pytest.mark.parametrize("line", [-1, 3, 10**30])
def test_a_line_that_is_not_there_is_told_with_how_many_there_are(line: int) -> None:
    with pytest.raises(BadArguments) as caught:
        inserted(b"a\nb", line, "c")

    assert "2 lines" in caught.value.fields["insert_line"]
