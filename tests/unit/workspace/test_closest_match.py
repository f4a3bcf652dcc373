"""Why a passage was not found: the error names the line, and is fast whatever the file contains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wait_until import is_quick
from toolcrib.workspace.text.closest_match import explain_no_match

FUNCTIONS = "".join(
    f"def function_{number}(argument):\n    value = compute({number}, argument)\n    return value\n\n"
    for number in range(12_500)
)


@pytest.mark.parametrize(
    ("text", "old", "words"),
    [
        ("x\nfoo  \nbar\n", "foo\nbar", ("Lines 2–3 differ", "whitespace at the ends of lines", r"'foo  '")),
        ("x\n\tfoo()\n\tbar()\n", "    foo()\n    bar()", ("Lines 2–3 differ", "indentation", r"'\tfoo()'")),
        ("x\n  foo()\n", "   foo()", ("Line 2 differs", "indentation", "'  foo()'")),
        ("call(a,  b)\n", "call(a, b)", ("Line 1 differs", "only in whitespace", "'call(a,  b)'")),
        ("x\nLet it be\n", "let it be", ("Line 2 differs", "upper and lower case", "'Let it be'")),
        ("a\r\nb\nc\r\n", "a\nb\nc\n", ("Lines 1–3 differ", "CRLF", r"'a\r'")),
        ("a\nb\n", "a\r\nb\r\n", ("Lines 1–2 differ", "CRLF", "'a'")),
        ("say “hi” – now\n", 'say "hi" - now', ("Line 1 differs", "look alike", "“hi”")),
        ("cafe\u0301\n", "caf\u00e9", ("Line 1 differs", "look alike", "accents")),
        ("x\n  Say “Hi”\n", 'say  "hi"', ("Line 2 differs", "whitespace, case or characters that look alike")),
        ("foo\nbar", "bar\n", ("Line 2 differs", "a line end before or after it")),
        ("let x = 2;\n", "let x = 1;", ("new_string is already there (line 1)",)),
        ("a\r\nlet x = 2;\r\n", "let x = 1;\n", ("new_string is already there (line 2)",)),
    ],
)  # fmt: skip
def test_the_reason_is_named_with_the_line_and_its_text(text: str, old: str, words: tuple[str, ...]) -> None:
    why = explain_no_match(text, old, "let x = 2;")

    assert all(word in why for word in words), why


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("value = compte(777, argument)", ("closest match is line 3110", "'    value = compute(777, argument)'")),
        ("fnction_777", ("closest match is line 3109", "'def function_777(argument):'")),
        (
            "    value = compute(777, argument)\n    return valeu\n",
            (
                "closest match is lines 3110–3111",
                "first different line is 3111",
                "'    return value'",
                "'    return valeu'",
            ),
        ),
    ],
)
def test_the_closest_lines_are_named_when_no_single_reason_explains_it(old: str, words: tuple[str, ...]) -> None:
    why = explain_no_match(FUNCTIONS, old, "something else")

    assert all(word in why for word in words), why


def test_a_passage_that_resembles_nothing_is_reported_as_such() -> None:
    assert "Nothing similar" in explain_no_match(FUNCTIONS, "Жур§§вль", "x")
    assert "Nothing similar" in explain_no_match("", "a passage", "x")


def test_a_short_new_string_is_no_evidence_of_an_earlier_edit() -> None:
    assert "already" not in explain_no_match("a = b\n", "qqqqqq", "=")


HARD = {
    "code": (FUNCTIONS, "    value = compte(1, argument)\n    retrun value\n"),
    "one letter": ("a" * 1_000_000, "a" * 1_000 + "b"),
    "one letter in lines": (("a" * 100 + "\n") * 10_000, ("a" * 99 + "b\n") * 40),
    "one word": ("a " * 500_000, "a " * 5_000 + "b"),
    "two letters": ("ab" * 500_000, "ba" * 5_000 + "c"),
    "spaces": (" " * 1_000_000, "a b"),
    "empty lines": ("\n" * 1_000_000, "a\n b"),
    "the same words": ("foo bar\n" * 125_000, "foo baz\n" * 500),
    "one long line": ("function a(){return 1};" * 43_000, "function b(){return 2};"),
    "accents": ("e\u0301" * 500_000, "\u00e9\u00e9x"),
    "much more than is compared": ("foo bar\n" * 1_000_000, "foo baz"),
}


@pytest.mark.parametrize(("text", "old"), HARD.values(), ids=HARD)
def test_a_megabyte_is_explained_in_a_fraction_of_a_second(text: str, old: str) -> None:
    assert explain_no_match(text, old, "something else")
    assert is_quick(lambda: explain_no_match(text, old, "something else"), seconds=2)


@given(
    st.text(st.sampled_from("aB \t\n\r“é\u0301")), st.text(st.sampled_from("aB \t\n\r“é\u0301"), min_size=1), st.text()
)
def test_every_mismatch_has_an_explanation(text: str, old: str, new: str) -> None:
    assert explain_no_match(text, old, new).endswith(".")
