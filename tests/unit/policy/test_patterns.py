"""Patterns in RE2: they match as git does, take linear time, and are rejected when too large."""

import fnmatch
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.wait_until import is_quick
from toolcrib.policy.patterns import (
    ExpressionSet,
    GitIgnoreRules,
    PatternTooLargeError,
    check_size,
    glob_expression,
)

# With Python's matcher each took minutes or longer.
EXPLODE = [
    "*a*a*a*a*a*a*a*a*a*a*a*a*b",
    "*a*a*a/*a*a*a/*a*a*a/zzz",
    "**/a/**/a/**/a/**/a/**/a/**/b",
    "a**a**a**a**a**a**a**b",
    "[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*!",
]
LONG = ["a" * 4_000, "a/" * 2_000, f"{'a' * 200}/" * 20, "/".join(["a" * 30] * 100)]


@pytest.mark.parametrize("pattern", EXPLODE)
def test_an_exponential_pattern_takes_no_time(pattern: str) -> None:
    def match_all() -> None:
        rules = GitIgnoreRules([pattern])
        names = ExpressionSet([glob_expression(pattern)], whole=True)
        assert not any(rules.match(path) for path in LONG)
        assert not any(names.any(path) for path in LONG)

    assert is_quick(match_all, seconds=0.25)


def test_every_accepted_list_of_patterns_is_fast_on_any_path() -> None:
    chance = random.Random(7)
    paths = ["".join(chance.choice("ab/") for _ in range(4_000)) for _ in range(5)]
    for stars, count in ((400, 1), (40, 50), (10, 20), (10, 200), (4, 1_000), (2, 3_000)):
        for piece in ("*a", "**/a/", "**/*a*/", "[ab]", "?*"):
            lines = [f"{piece * stars}b{number}" for number in range(count)]
            try:
                GitIgnoreRules(lines)
            except PatternTooLargeError:
                continue
            # Slow patterns are slow every time; a busy machine is not slow three times in a row.
            assert any(_slowest_match(lines, paths) < 0.25 for _ in range(3)), (piece, stars, count)


def _slowest_match(lines: list[str], paths: list[str]) -> float:
    """Processor time, without a cached match of these patterns."""
    rules, slowest = GitIgnoreRules(lines), 0.0
    for path in paths:
        began = time.process_time()
        rules.match(path)
        slowest = max(slowest, time.process_time() - began)
    return slowest


def test_too_large_patterns_are_rejected_with_their_size() -> None:
    for lines, said in (
        (["a" * 1_001], "1,001 characters"),
        (["a"] * 4_001, "4,001 patterns"),
        (["*a" * 400] * 40, "wildcards"),
        (["*a" * 450], "memory"),
    ):
        with pytest.raises(PatternTooLargeError, match=said):
            GitIgnoreRules(lines)
    with pytest.raises(PatternTooLargeError):
        check_size(["?" * 1_000] * 9)
    with pytest.raises(PatternTooLargeError, match="memory"):
        ExpressionSet(["(?:[^/]{900}){900}"])


def test_a_large_but_ordinary_ignore_file_is_parsed() -> None:
    lines = [f"/build/{number}/**/out*/" for number in range(1_000)] + [f"*.ext{number}" for number in range(2_000)]

    rules = GitIgnoreRules(lines)

    assert rules.match("build/999/x/y/out-1/")
    assert rules.match("a/b.ext1999")
    assert rules.verdict("a/b.ext2001") is None


RULES = [
    ["*.log", "!keep.log"],
    ["/build/", "!/build/keep"],
    ["node_modules/", "dist", "!src/dist"],
    ["**/tmp/**", "!**/tmp"],
    ["a/**/b", "doc/*.txt", "\\#x", "\\!y", "sp\\ ace"],
    ["/*", "!/src", "!/keep.log"],
    ["[ab].c", "[!ab].d", "x?z", "foo*bar", "**/", "b"],
    ["b", "!a", "*/c", "a/**"],
]
PATHS = [
    "keep.log", "a.log", "build/x", "build/keep", "src/dist/x", "dist/x", "x/dist", "node_modules/a/b.js",
    "tmp/x", "q/tmp/y", "q/tmp/x", "a/b", "a/q/b", "a/q/r/b", "doc/a.txt", "doc/x/a.txt", "#x", "!y", "sp ace",
    "src/x.py", "a.c", "c.c", "c.d", "a.d", "xyz", "xz", "foo-bar", "foobar/x", "b", "a/c", "d/c", "d/e/c", "a/b/c",
]  # fmt: skip


def test_ignore_rules_match_as_in_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for lines in RULES:
        (tmp_path / ".gitignore").write_text("".join(f"{line}\n" for line in lines))
        asked = "".join(f"{path}\0" for path in PATHS)
        result = subprocess.run(
            ["git", "-C", str(tmp_path), "check-ignore", "-z", "--stdin", "--no-index"],
            input=asked.encode(), capture_output=True, check=False,
        )  # fmt: skip
        git = set(result.stdout.decode().split("\0")) - {""}

        assert {path for path in PATHS if ignored(GitIgnoreRules(lines), path)} == git, lines


def ignored(rules: GitIgnoreRules, path: str) -> bool:
    """As the caller does: everything in an ignored folder is ignored."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) + "/" for count in range(1, len(parts)))
    return any(map(rules.match, above)) or rules.match(path)


def test_wildcards_match_as_in_a_shell() -> None:
    chance = random.Random(3)
    for _ in range(3_000):
        glob = "".join(chance.choice("ab*?[]!-.\\^{(") for _ in range(chance.randrange(1, 8)))
        name = "".join(chance.choice("ab.]-!^\\") for _ in range(chance.randrange(0, 6)))
        matched = ExpressionSet([glob_expression(glob)], whole=True).any(name)
        # The names are too short for exponential time.
        assert matched == fnmatch.fnmatchcase(name, glob), (glob, name)


def test_text_that_is_not_unicode_is_matched_without_an_error() -> None:
    assert ExpressionSet(["a.*"], whole=True).any("a\udcff")
