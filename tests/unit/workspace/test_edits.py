"""Edits: the passage changes, and every other byte stays."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolcrib.core.errors import BadArguments
from toolcrib.workspace.text.edits import (
    Edit,
    EditedText,
    InsertEdit,
    ReplaceEdit,
    edited,
    edited_by_all,
    inserted,
    replaced,
)

# What real files contain: line ends of both kinds, a BOM, half a character, a NUL.
bodies = st.lists(
    st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\r", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\0", "é".encode()]),
    max_size=20,
).map(b"".join)
read_chunks = st.text(st.sampled_from("abé\n\r"), min_size=1, max_size=6)
new_texts = st.text(st.sampled_from("abxé\n\r\ufeff\0"), max_size=8)


def occurrences(body: bytes, passage: bytes) -> list[int]:
    """Every offset of the passage, including overlapping ones."""
    return [at for at in range(len(body)) if body.startswith(passage, at)]


@given(bodies, read_chunks, new_texts, bodies)
def test_everything_outside_the_passage_survives_byte_for_byte(head: bytes, old: str, new: str, tail: bytes) -> None:
    body = head + old.encode() + tail
    assume(len(occurrences(body, old.encode())) == 1)

    assert replaced(body, old, new) == head + new.encode() + tail


@given(bodies, read_chunks)
def test_a_passage_is_replaced_if_and_only_if_it_occurs_once(body: bytes, old: str) -> None:
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


def test_a_passage_that_occurs_twice_is_rejected_with_its_lines() -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"x\ny\nx\n", "x", "z")

    assert "Found 2 times (lines 1, 3)" in caught.value.fields["old_string"]


def test_a_passage_that_occurs_very_often_is_rejected_at_once() -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"a\n" * 1_000_000, "a", "b")

    assert "Found 1000000 times (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 …)" in caught.value.fields["old_string"]


@pytest.mark.parametrize("old", ["", "\ud800"])
def test_an_empty_or_invalid_passage_is_rejected(old: str) -> None:
    with pytest.raises(BadArguments) as caught:
        replaced(b"a", old, "b")

    assert set(caught.value.fields) == {"old_string"}


def test_a_lone_surrogate_cannot_be_inserted() -> None:
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
def test_inserting_keeps_every_line_before_and_after(body: bytes, content: str, data: st.DataObject) -> None:
    lines = lines_of(body)
    at = data.draw(st.integers(0, len(lines)))

    result = inserted(body, at, content)

    before, after = b"".join(lines[:at]), b"".join(lines[at:])
    middle = result[len(before) : len(result) - len(after)]
    assert result == before + middle + after
    # Apart from the content, only missing line ends are inserted.
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
def test_a_line_beyond_the_end_is_rejected_with_the_number_of_lines(line: int) -> None:
    with pytest.raises(BadArguments) as caught:
        inserted(b"a\nb", line, "c")

    assert "2 lines" in caught.value.fields["insert_line"]


# With the file's line ends and encoding


@pytest.mark.parametrize(
    ("body", "old", "new", "expected"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\nb", "ab", b"ab\r\n"),
        (b"one\na\r\nb\r\n", "a\nb", "x\ny", b"one\nx\r\ny\r\n"),
    ],
)
def test_a_file_with_crlf_keeps_it_with_a_note(body: bytes, old: str, new: str, expected: bytes) -> None:
    result = edited(body, ReplaceEdit(old, new))

    assert result.body == expected
    assert result.note is not None
    assert "CRLF" in result.note


@pytest.mark.parametrize(
    ("body", "old", "new", "expected"),
    [
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "a", "x\ry\n", b"x\ry\n\r\nb\r\n"),
        (b"a\nb\r\nb", "a\nb", "x\ny", b"x\ny\r\nb"),
        (b"a\nb\n", "a\nb", "x\ny", b"x\ny\n"),
        (b"a\r\nb\r\n", "a", "x", b"x\r\nb\r\n"),
    ],
)
def test_an_exact_match_is_replaced_exactly(body: bytes, old: str, new: str, expected: bytes) -> None:
    assert edited(body, ReplaceEdit(old, new)) == EditedText(expected)


@given(st.lists(st.text("abé", max_size=3), min_size=2, max_size=6), st.text(st.sampled_from("abé\n"), max_size=8))
def test_no_edit_leaves_a_bare_line_feed_in_a_file_with_crlf(lines: list[str], new: str) -> None:
    body = "\r\n".join(["start", *lines, "end"]).encode()

    replacing = edited(body, ReplaceEdit("start", new)).body
    inserting = edited(body, InsertEdit(1, new)).body

    for result in (replacing, inserting):
        assert result.count(b"\n") == result.count(b"\r\n")
    assert replacing.replace(b"\r\n", b"\n") == body.replace(b"\r\n", b"\n").replace(b"start", new.encode(), 1)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_end_of_the_last_line_is_kept(end: str) -> None:
    assert edited(f"a\nb{end}".encode(), ReplaceEdit("b", "c")).body == f"a\nc{end}".encode()
    assert edited(f"a\nb{end}".encode(), InsertEdit(0, "x")).body == f"x\na\nb{end}".encode()


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (ReplaceEdit("a", "b"), "\ufeffb\n"),
        (ReplaceEdit("\ufeffa", "\ufeffb"), "\ufeffb\n"),
        (InsertEdit(0, "x"), "\ufeffx\na\n"),
        (InsertEdit(1, "x"), "\ufeffa\nx\n"),
    ],
)
def test_a_byte_order_mark_stays_at_the_start(edit: ReplaceEdit | InsertEdit, expected: str) -> None:
    assert edited("\ufeffa\n".encode(), edit).body == expected.encode()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("edit", [ReplaceEdit("é", "ü😀"), InsertEdit(1, "ü😀")])
def test_utf_16_stays_utf_16(encoding: str, edit: ReplaceEdit | InsertEdit) -> None:
    text = "é\r\nb\ud800\r\n"

    def wide(text: str) -> bytes:
        return f"\ufeff{text}".encode(encoding, "surrogatepass")

    expected = {"é": "ü😀\r\nb\ud800\r\n", "": "é\r\nü😀\r\nb\ud800\r\n"}
    assert edited(wide(text), edit).body == wide(expected[edit.old if isinstance(edit, ReplaceEdit) else ""])


def test_a_file_of_another_encoding_accepts_ascii_only() -> None:
    body = "un café\n".encode("latin-1")

    assert edited(body, ReplaceEdit("un", "deux")).body == "deux café\n".encode("latin-1")
    for edit, field in ((ReplaceEdit("un", "é"), "new_string"), (InsertEdit(0, "é"), "insert_content")):
        with pytest.raises(BadArguments) as caught:
            edited(body, edit)
        assert "not UTF-8 (byte 0xe9 in line 1)" in caught.value.fields[field]


def test_a_binary_file_has_no_lines_to_insert_between() -> None:
    with pytest.raises(BadArguments) as caught:
        edited(b"\x7fELF\0\n", InsertEdit(0, "x"))

    assert "not text" in caught.value.fields["insert_line"]


# Several edits at once


def test_edits_are_applied_in_order_each_on_the_result_of_the_last() -> None:
    edits: list[Edit] = [
        ReplaceEdit("a", "b\nc"),
        ReplaceEdit("c", "d"),
        InsertEdit(0, "top"),
        ReplaceEdit("top\nb", "e"),
    ]

    assert edited_by_all(b"a\n", edits) == EditedText(b"e\nd\n")


def test_the_edit_that_fails_is_named_by_its_number() -> None:
    with pytest.raises(BadArguments) as caught:
        edited_by_all(b"a\n", [ReplaceEdit("a", "b"), ReplaceEdit("zzz", "y"), ReplaceEdit("", "y")])
    assert list(caught.value.fields) == ["edits.1.old_string"]

    with pytest.raises(BadArguments) as caught:
        edited_by_all(b"a\n", [InsertEdit(7, "b")])
    assert list(caught.value.fields) == ["edits.0.insert_line"]


def test_several_edits_get_one_note() -> None:
    result = edited_by_all(b"a\r\nb\r\n", [ReplaceEdit("a", "x\ny"), ReplaceEdit("b", "c"), InsertEdit(0, "1\n2")])

    assert result.body == b"1\r\n2\r\nx\r\ny\r\nc\r\n"
    assert result.note == edited(b"a\r\n", ReplaceEdit("a", "x\ny")).note


@given(bodies, read_chunks, new_texts)
def test_an_edit_of_a_file_without_crlf_is_an_exact_replacement(body: bytes, old: str, new: str) -> None:
    assume(b"\r\n" not in body and new.isascii())
    assume(not body.startswith((b"\xff\xfe", b"\xfe\xff")))
    if len(occurrences(body, old.encode())) != 1:
        return

    assert edited(body, ReplaceEdit(old, new)) == EditedText(replaced(body, old, new))
