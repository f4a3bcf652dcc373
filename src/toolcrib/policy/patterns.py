"""Match text against patterns that others wrote, in time linear in the text: every expression runs in RE2.

Python's ``re`` backtracks: a glob of a dozen stars holds the process for years. RE2 cannot, and its memory is bounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import re2  # type: ignore[import-untyped]
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

# Far more than anybody writes by hand. What they bound is the time that one match takes, not only its memory.
MAX_PATTERN_CHARACTERS: Final = 1_000
MAX_PATTERNS: Final = 4_000
MAX_WILDCARDS: Final = 8_000
_LEAST_MEMORY: Final = 128 * 1024
_MEMORY_PER_PATTERN: Final = 8 * 1024
_MOST_MEMORY: Final = 64 * 1024 * 1024


class PatternTooLargeError(ValueError):
    """Patterns that are too many, too long, or need more memory than they get. The message says which and how much."""


class BadPatternError(ValueError):
    """A line that git would not read as a pattern."""


class ExpressionSet:
    """Regular expressions that are matched together, each by its number. ``whole`` makes all of them match all."""

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
            # RE2 says that nothing matches when it has no memory left. This one always matches, unless that is so.
            self._always = self._set.Add("(?s).*" if whole else "")
            self._set.Compile()
        except re2.error as error:
            raise _too_large(expressions) from error
        self._count = len(expressions)
        self.matches("")

    def matches(self, text: str) -> list[int]:
        """The numbers of the expressions that match, in no order."""
        found = self._set.Match(text.encode("utf-8", "replace"))
        if not found:
            raise PatternTooLargeError(
                f"The {self._count} patterns need more memory than they get. Write simpler ones."
            )
        return [number for number in found if number != self._always]

    def any(self, text: str) -> bool:
        return len(self.matches(text)) > 0


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one expression of a rule says: ``folder`` if it matched the folder above rather than the path itself."""

    number: int
    include: bool
    folder: bool


class GitIgnoreRules:
    """The lines of a ``.gitignore``, or globs that read like them.

    Args:
        lines: One pattern each. An empty line and a comment say nothing.
        strict: Whether a line that git would not read raises BadPatternError; otherwise it does not count.

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
        """Whether any line says anything."""
        return bool(self._rules)

    def verdict(self, path: str) -> bool | None:
        """Whether the last rule that means ``path`` ignores it; none if no rule does. A folder's path ends with /."""
        matched = [self._rules[number] for number in self._expressions.matches(path)]
        # A rule about the path itself outranks one about a folder above it.
        last = max(matched, key=lambda rule: (not rule.folder, rule.number), default=None)
        return None if last is None else last.include

    def match(self, path: str) -> bool:
        return self.verdict(path) is True


def check_size(patterns: Iterable[str]) -> None:
    """Raise PatternTooLargeError if patterns are too many or too long to be matched quickly."""
    count = wildcards = 0
    for pattern in patterns:
        count += 1
        wildcards += pattern.count("*") + pattern.count("?") + pattern.count("[")
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise PatternTooLargeError(
                f"`{pattern[:60]}…` has {len(pattern):,} characters; a pattern may have {MAX_PATTERN_CHARACTERS:,}."
            )
    if count > MAX_PATTERNS:
        raise PatternTooLargeError(f"There are {count:,} patterns; at most {MAX_PATTERNS:,} are taken.")
    if wildcards > MAX_WILDCARDS:
        raise PatternTooLargeError(f"The patterns have {wildcards:,} wildcards; at most {MAX_WILDCARDS:,} are taken.")


def literal_expression(text: str) -> str:
    """An expression that matches this very text."""
    return "".join(char if char.isalnum() else _code(char) for char in text)


def glob_expression(glob: str) -> str:
    """One name with shell wildcards, ``*``, ``?`` and ``[…]``, as an expression of RE2."""
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
    """The expressions of one line: one for the path itself, one for a folder above it."""
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
        # The library marks with a group where the name of a folder ends.
        mark = f"(?P<{name}>/)"
        either = f"(?:{mark}|$)"
        if text.endswith(either):
            base = text.removesuffix(either)
            itself, above = _Rule(number, include, folder=False), _Rule(number, include, folder=True)
            return [(f"{base}$", itself), (f"{base}/", above)]
        return [(text.replace(mark, "/"), _Rule(number, include, folder=True))]
    return [(text, _Rule(number, include, folder=False))]


def _end_of_class(glob: str, start: int) -> int | None:
    """Where the ``]`` stands that closes a class; the first character cannot be it."""
    first = start + 1 if glob[start : start + 1] == "!" else start
    end = glob.find("]", first + 1)
    return None if end < 0 else end


def _class_expression(body: str) -> str:
    """``[a-z]`` and ``[!a-z]``. A range that ends before it begins contains nothing, as in a shell."""
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
        f"The {len(expressions):,} patterns of {size:,} characters need more memory than they get. Write simpler ones."
    )
