"""Lines as a search counts them."""

import pytest

from toolcrib.workspace.search.hit_verification import TextLines, shown


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
def test_lines_end_at_newlines_and_exclude_them(body: bytes, texts: list[str]) -> None:
    lines = TextLines(body)

    assert [lines.text(number) for number in range(1, len(lines) + 1)] == texts


def test_context_lines_stay_within_the_text() -> None:
    lines = TextLines(b"1\n2\n3\n")

    assert lines.shown(-5, 1) == ["1"]
    assert lines.shown(2, 9) == ["2", "3"]
    assert lines.raw(0) is lines.raw(4) is None


def test_a_long_line_is_truncated() -> None:
    assert shown("x" * 2_000) == "x" * 2_000
    assert shown("x" * 3_500) == "x" * 2_000 + "… [1,500 more characters]"
