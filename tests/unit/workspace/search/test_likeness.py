"""``path_pattern``: SQL LIKE with stars, or a substring of the path."""

import pytest

from tests.wait_until import is_quick
from toolcrib.workspace.search.file_filter import like_pattern


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("%.rs", "/src/main.rs"),
        ("*.rs", "/src/main.rs"),
        ("*.RS", "/src/main.rs"),
        ("/src/%", "/src/a/b.txt"),
        ("src/*", "/src/a.txt"),
        ("src/*", "/lib/src/a.txt"),
        ("./src/*", "/src/a.txt"),
        ("main", "/src/main.rs"),
        ("MAIN", "/src/main.rs"),
        ("src/ma", "/src/main.rs"),
        ("/src", "/src/main.rs"),
        ("%ma_n%", "/src/main.rs"),
        (r"%a\_b%", "/a_b"),
        ("%a%b%c", "/a/x/b/y/c"),
        ("ä", "/Ärger.txt"),
        ("*", "/anything"),
    ],
)
def test_what_a_path_pattern_matches(pattern: str, path: str) -> None:
    assert like_pattern(pattern).matches(path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("%.rs", "/src/main.rst"),
        ("/src/%", "/lib/src/a"),
        ("rc/*", "/src/a.txt"),
        (r"%a\_b%", "/axb"),
        ("ma_n", "/src/main.rs"),
        ("%a%b", "/b/a"),
    ],
)
def test_what_a_path_pattern_does_not_match(pattern: str, path: str) -> None:
    assert not like_pattern(pattern).matches(path)


def test_the_file_extension_is_known_where_it_is_certain() -> None:
    assert {text: like_pattern(text).ending for text in ("%.rs", "src/*.py", "main", "/src/%", "%a_b", "%/a.c")} == {
        "%.rs": ".rs",
        "src/*.py": ".py",
        "main": "",
        "/src/%": "",
        "%a_b": "",
        "%/a.c": "",
    }


def test_every_path_pattern_is_fast() -> None:
    hostile = like_pattern("%a" * 200 + "%b")

    assert not hostile.matches("/" + "a" * 4_000)
    assert is_quick(lambda: hostile.matches("/" + "a" * 4_000), seconds=1)
