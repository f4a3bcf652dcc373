"""Matches text against untrusted patterns in linear time: every expression runs in RE2.

Python's ``re`` backtracks: a glob with a dozen stars can block the process for years. RE2 does not, and its memory is
bounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import re2  # type: ignore[import-untyped]
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

# Far more than people write by hand. The limits bound the time of one match, not only its memory.
MAX_PATTERN_CHARACTERS: Final = 1_000
MAX_PATTERNS: Final = 4_000
MAX_WILDCARDS: Final = 8_000
_LEAST_MEMORY: Final = 128 * 1024
_MEMORY_PER_PATTERN: Final = 8 * 1024
_MOST_MEMORY: Final = 64 * 1024 * 1024


class PatternTooLargeError(ValueError):
    """Patterns that are too many, too long, or need too much memory. The message says which, and by how much."""


class BadPatternError(ValueError):
    """A line that git would not accept as a pattern."""


class ExpressionSet:
    """Regular expressions that are matched together. ``whole`` requires each to match the whole text."""

    def __init__(self, expressions: Sequence[str], *, whole: bool = False, ignore_case: bool = False) -> None:
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.dot_nl = True
        options.case_sensitive = not ignore_case
        options.max_mem = min(_MOST_MEMORY, _LEAST_MEMORY + _MEMORY_PER_PATTERN * len(expressions))
        self._set = re2.Set.FullMatchSet(options) if whole else re2.Set.SearchSet(options)
        try:
            for expression in expressions:
                self._set.Add(expression)
            # RE2 reports no match when it runs out of memory. This expression always matches, except then.
            self._always = self._set.Add("(?s).*" if whole else "")
            self._set.Compile()
        except re2.error as error:
            raise _too_large(expressions) from error
        self._count = len(expressions)
        self.matches("")

    def matches(self, text: str) -> list[int]:
        """Return the numbers of the expressions that match, in no order."""
        found = self._set.Match(text.encode("utf-8", "replace"))
        if not found:
            raise PatternTooLargeError(f"The {self._count} patterns exceed the memory limit. Use simpler patterns.")
        return [number for number in found if number != self._always]

    def any(self, text: str) -> bool:
        """Whether any expression matches."""
        return len(self.matches(text)) > 0


@dataclass(frozen=True, slots=True)
class _Rule:
    """The meaning of one expression. ``folder``: it matches a folder above the path, not the path itself."""

    number: int
    include: bool
    folder: bool


class GitIgnoreRules:
    """The lines of a ``.gitignore``, or globs in the same syntax.

    Args:
        lines: One pattern each. Empty lines and comments are ignored.
        strict: Whether an invalid line raises ``BadPatternError``; otherwise it is ignored.

    Raises:
        PatternTooLargeError: They would take too long, or too much memory.
    """

    def __init__(self, lines: Sequence[str], *, strict: bool = False) -> None:
        check_size(lines)
        self._rules: list[_Rule] = []
        expressions: list[str] = []
        for number, line in enumerate(lines):
            for expression, rule in _translated(line, number, strict=strict):
                expressions.append(expression)
                self._rules.append(rule)
        self._expressions = ExpressionSet(expressions)

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self._rules)

    def verdict(self, path: str) -> bool | None:
        """Whether the last matching rule ignores ``path``; ``None`` without a match. A folder's path ends with /."""
        matched = [self._rules[number] for number in self._expressions.matches(path)]
        # A rule for the path itself outranks one for a folder above it.
        last = max(matched, key=lambda rule: (not rule.folder, rule.number), default=None)
        return None if last is None else last.include

    def match(self, path: str) -> bool:
        """Whether the rules ignore ``path``."""
        return self.verdict(path) is True


def check_size(patterns: Iterable[str]) -> None:
    """Raise ``PatternTooLargeError`` if patterns are too many or too long to match quickly."""
    count = wildcards = 0
    for pattern in patterns:
        count += 1
        wildcards += pattern.count("*") + pattern.count("?") + pattern.count("[")
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise PatternTooLargeError(
                f"`{pattern[:60]}…` has {len(pattern):,} characters; the limit is {MAX_PATTERN_CHARACTERS:,}."
            )
    if count > MAX_PATTERNS:
        raise PatternTooLargeError(f"There are {count:,} patterns; the limit is {MAX_PATTERNS:,}.")
    if wildcards > MAX_WILDCARDS:
        raise PatternTooLargeError(f"The patterns have {wildcards:,} wildcards; the limit is {MAX_WILDCARDS:,}.")


def literal_expression(text: str) -> str:
    """Build an expression that matches exactly this text."""
    return "".join(char if char.isalnum() else _code(char) for char in text)


def glob_expression(glob: str) -> str:
    """Convert shell wildcards in one name (``*``, ``?`` and ``[…]``) to an RE2 expression."""
    parts: list[str] = []
    at = 0
    while at < len(glob):
        char, at = glob[at], at + 1
        if char == "*":
            if parts[-1:] != [".*"]:
                parts.append(".*")
        elif char == "?":
            parts.append(".")
        elif char == "[" and (end := _end_of_class(glob, at)) is not None:
            parts.append(_class_expression(glob[at:end]))
            at = end + 1
        else:
            parts.append(literal_expression(char))
    return "".join(parts)


def _translated(line: str, number: int, *, strict: bool) -> list[tuple[str, _Rule]]:
    """Convert one line to expressions: one for the path itself, one for a folder above it."""
    try:
        pattern = GitIgnoreSpecPattern(line)
    except GitIgnorePatternError as error:
        if strict:
            raise BadPatternError(str(error)) from error
        return []
    if pattern.include is None or pattern.regex is None:
        return []
    text, include = pattern.regex.pattern, pattern.include
    for name in pattern.regex.groupindex:
        # The library marks the end of a folder's name with a group.
        mark = f"(?P<{name}>/)"
        either = f"(?:{mark}|$)"
        if text.endswith(either):
            base = text.removesuffix(either)
            itself, above = _Rule(number, include, folder=False), _Rule(number, include, folder=True)
            return [(f"{base}$", itself), (f"{base}/", above)]
        return [(text.replace(mark, "/"), _Rule(number, include, folder=True))]
    return [(text, _Rule(number, include, folder=False))]


def _end_of_class(glob: str, start: int) -> int | None:
    """Return the position of the ``]`` that closes a class. It is never the first character."""
    first = start + 1 if glob[start : start + 1] == "!" else start
    end = glob.find("]", first + 1)
    return None if end < 0 else end


def _class_expression(body: str) -> str:
    """Convert ``[a-z]`` or ``[!a-z]``. An inverted range is empty, as in a shell."""
    negated, body = body.startswith("!"), body.removeprefix("!")
    members: list[str] = []
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            first, last = body[at], body[at + 2]
            if first <= last:
                members.append(f"{_code(first)}-{_code(last)}")
            at += 3
        else:
            members.append(_code(body[at]))
            at += 1
    if not members:
        return "." if negated else r"[^\x{0}-\x{10FFFF}]"
    return f"[{'^' if negated else ''}{''.join(members)}]"


def _code(char: str) -> str:
    return rf"\x{{{ord(char):X}}}"


def _too_large(expressions: Sequence[str]) -> PatternTooLargeError:
    size = sum(map(len, expressions))
    return PatternTooLargeError(
        f"The {len(expressions):,} patterns of {size:,} characters exceed the memory limit. Use simpler patterns."
    )
