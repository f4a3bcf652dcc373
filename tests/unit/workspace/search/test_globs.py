"""Globs over paths."""

import pytest

from tests.wait_until import is_quick
from toolcrib.core.errors import BadArguments
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.search.find_files import globs

ROOT = WorkspacePath(Mount.PROJECT, "/")


def matches(pattern: str, path: str, base: str = "/") -> bool:
    return globs([pattern], WorkspacePath(Mount.PROJECT, base)).match(path, path.rpartition("/")[2])


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.rs", "/main.rs"),
        ("*.rs", "/src/deep/lib.rs"),
        ("**/*.md", "/a.md"),
        ("**/*.md", "/x/y/a.md"),
        ("/src/**/*.rs", "/src/a.rs"),
        ("/src/**/*.rs", "/src/x/y/a.rs"),
        ("test_*", "/x/test_a"),
        ("*/file.txt", "/x/file.txt"),
        ("src/**", "/src/a"),
        ("src/**", "/src/a/b"),
        ("**", "/a"),
        ("**/x/**/y", "/x/y"),
        ("**/x/**/y", "/a/x/b/x/c/y"),
        ("file?.[ch]", "/file1.c"),
        ("[!a]*", "/b"),
        ("*.{rs,md}", "/a.md"),
        ("{a,b}/{c,d}", "/b/c"),
        ("{a}", "/{a}"),
        ("./src/*.rs", "/src/a.rs"),
    ],
)
def test_what_a_pattern_matches(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.rs", "/a.rsx"),
        ("*.RS", "/a.rs"),
        ("*/file.txt", "/file.txt"),
        ("*/file.txt", "/x/y/file.txt"),
        ("/src/**/*.rs", "/lib/src/a.rs"),
        ("src/**", "/src"),
        ("src/*", "/src/a/b"),
        ("a?b", "/a/b"),
        ("**/x/y", "/x/z/y"),
    ],
)
def test_what_a_pattern_does_not_match(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


def test_a_pattern_is_relative_to_the_base_and_with_a_leading_slash_to_the_root() -> None:
    assert matches("*/a", "/src/x/a", base="/src")
    assert not matches("*/a", "/x/a", base="/src")
    assert matches("/src/*/a", "/src/x/a", base="/src")
    assert matches("*/a", "/s[r]c/x/a", base="/s[r]c")


@pytest.mark.parametrize("pattern", ["../a", "a/..", "/", "", ".", "a/../../b"])
def test_a_pattern_that_leads_outside_or_nowhere_is_rejected(pattern: str) -> None:
    with pytest.raises(BadArguments, match="Validation"):
        globs([pattern], ROOT)


def test_braces_that_multiply_are_rejected() -> None:
    with pytest.raises(BadArguments) as refused:
        globs(["{a,b}" * 20], ROOT)

    assert "200" in refused.value.fields["pattern"]


@pytest.mark.parametrize("pattern", ["*a" * 60 + "b", "**/a/" * 60 + "b"])
def test_every_pattern_is_fast(pattern: str) -> None:
    found = globs([pattern], ROOT)

    assert not found.match("/" + "a" * 250, "a" * 250)
    assert not found.match("/a" * 1_000, "a")
    assert is_quick(lambda: found.match("/" + "a" * 250, "a" * 250), seconds=0.5)
    assert is_quick(lambda: found.match("/a" * 1_000, "a"), seconds=0.5)
