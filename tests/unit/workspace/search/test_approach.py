"""The ripgrep expression for a pattern, and the lines on which its result is final."""

import pytest

from toolcrib.workspace.search.regex_translation import (
    EVERYTHING,
    MatchCertainty,
    SearchPlan,
    is_plain,
    plan_search,
    to_postgres_regex,
)


def reach(pattern: str, *, ignore_case: bool = False) -> MatchCertainty:
    return plan_search(pattern, ignore_case=ignore_case).reach


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        ("TODO:", r"TODO\x3A"),
        (r"a\.b", r"a\x2Eb"),
        ("a|bc", "(?:a|bc)"),
        ("(ab)+?c", "(?:ab)+c"),
        ("a{2,5}", "(?:a){2,5}"),
        ("a{,5}", r"a\x7B\x2C5\x7D"),
        ("[a-c]x", "[a-c]x"),
        ("é", "[é]"),
        ("foo$", r"foo(?:\r?$)"),
        ("^foo", r"(?:^\x{FEFF}?)foo"),
        (r"\bfoo\b", r"(?-u:\b)foo(?-u:\b)"),
        (r"foo(?=bar)", "foo"),
        (r"(a)\1", r"a(?-u:[^\n]*)"),
    ],
)
def test_the_ripgrep_expression_of_a_pattern(pattern: str, expression: str) -> None:
    assert plan_search(pattern, ignore_case=False).expression == expression


def test_ignoring_case_is_an_option_of_the_complete_pattern() -> None:
    assert plan_search("Todo", ignore_case=True) == SearchPlan("(?i)todo", MatchCertainty.EVERY_LINE)
    assert plan_search("(?i)Todo", ignore_case=False) == plan_search("Todo", ignore_case=True)
    assert plan_search("(?c)Todo", ignore_case=True) == plan_search("Todo", ignore_case=False)


@pytest.mark.parametrize("pattern", ["TODO", "a|b", "x{3}", "[abc]+", "é", "foo$", r"a\tb"])
def test_plain_text_means_the_same_on_every_line(pattern: str) -> None:
    assert reach(pattern) is MatchCertainty.EVERY_LINE


@pytest.mark.parametrize(
    "pattern", [".", r"\w+", "[^a]", r"\s", "[[:alpha:]]", "^a", r"\bfoo", r"\mfoo", r"foo\M", r"\y(foo|b)", "[é-ü]"]
)
def test_unicode_dependent_patterns_are_final_on_plain_lines_only(pattern: str) -> None:
    assert reach(pattern) is MatchCertainty.PLAIN_LINES


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "a(?!b)", "(?<=a)b", r"\b\w+", r"\Yfoo", r"\yé", r"\m", r"foo\m", "a(?=b)c"]
)
def test_ripgrep_narrows_down_patterns_that_only_postgresql_can_match(pattern: str) -> None:
    assert reach(pattern) is MatchCertainty.NO_LINE
    assert plan_search(pattern, ignore_case=False) != EVERYTHING or pattern in (r"\m",)


@pytest.mark.parametrize("letter", ["\u017f", "\u212a", "\u0130", "\u0131", "[é-\u017f]", "[^\u017f]"])
def test_letters_whose_other_case_is_ascii_are_left_to_postgresql(letter: str) -> None:
    assert reach(letter, ignore_case=True) is MatchCertainty.NO_LINE


@pytest.mark.parametrize("pattern", ["s", "k", "ask"])
def test_letters_that_ripgrep_folds_differently_are_final_on_plain_lines_only(pattern: str) -> None:
    assert reach(pattern, ignore_case=False) is MatchCertainty.EVERY_LINE
    assert reach(pattern, ignore_case=True) is MatchCertainty.PLAIN_LINES


@pytest.mark.parametrize(
    "pattern",
    [
        "*a", "^*", "a**", "a{1}{2}", "(a", "a)", "[a", "[z-a]", "[a-c-e]", "a{256}", "a{3,2}", "a{2", "\\", r"\q",
        r"\x41", r"\u0041", "***=a", "(?x)a b", "(?q)a", "(?b)a", "[[.a.]]", "[[=a=]]", "[[:<:]]a", "[[:punct:]]",
        r"[a-\d]", "a\nb", r"a\nb", "(?#c)a", r"\12", "(?=a)*", r"\y+", "$^", "a^b", "a$b", "(a$)*", "(^a)+", "x(^|a)",
    ],
)  # fmt: skip
def test_rare_or_invalid_patterns_are_left_to_postgresql(pattern: str) -> None:
    assert plan_search(pattern, ignore_case=False) == EVERYTHING


def test_deep_nesting_is_accepted() -> None:
    assert plan_search("(" * 5_000 + "a" + ")" * 5_000, ignore_case=False) == EVERYTHING


@pytest.mark.parametrize("line", [b"", b"a b\tc", b"a\rb", b"~"])
def test_plain_lines(line: bytes) -> None:
    assert is_plain(line)


@pytest.mark.parametrize("line", ["é".encode(), b"\xff", b"a\r", b"\0", b"a\x1cb"])
def test_lines_that_are_not_plain(line: bytes) -> None:
    assert not is_plain(line)


@pytest.mark.parametrize(
    ("pattern", "result"),
    [
        (r"\bfoo\b", r"\yfoo\y"),
        (r"\\b", r"\\b"),
        (r"\\\b", r"\\\y"),
        (r"[\b]\b", r"[\b]\y"),
        (r"[]\b]\b", r"[]\b]\y"),
        (r"[^]\b]\b", r"[^]\b]\y"),
        (r"[[:alpha:]\b]\b", r"[[:alpha:]\b]\y"),
        (r"[\]\b]\b", r"[\]\b]\y"),
        (r"***=\b", r"***=\b"),
        (r"(?q)\b", r"(?q)\b"),
        (r"(?i)\b", r"(?i)\y"),
        (r"\B", r"\B"),
    ],
)
def test_a_word_boundary_of_models_is_translated_for_postgresql(pattern: str, result: str) -> None:
    assert to_postgres_regex(pattern) == result
