"""Parses PostgreSQL regular expressions, as far as ripgrep can express the same.

Parses the advanced form (ARE) of PostgreSQL's documentation, 9.7.3. Recognizes lookaround and back references as such.
Everything rarer, and every invalid pattern, raises ``NotTranslatable``.
"""

import re
from dataclasses import dataclass
from enum import Enum

from toolcrib.workspace.search.char_classes import ANY, ASCII, DIGIT, NAMED, SPACE, WORD, CharClass, one, several


class NotTranslatable(Exception):
    """Only PostgreSQL can evaluate this pattern, or reject it."""


class RegexAnchor(Enum):
    START = "^"
    END = "$"


class WordBoundary(Enum):
    r"""A word boundary. ``\b`` is treated as PostgreSQL's ``\y``."""

    EITHER = "y"
    NEITHER = "Y"
    WORD_START = "m"
    WORD_END = "M"


class PostgresOnly(Enum):
    """Constructs that only PostgreSQL evaluates: lookaround, which consumes no character, and back references."""

    LOOK = "look"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class RegexRepeat:
    """A repetition; ``high`` is ``None`` without a limit. Greediness does not matter for whether a line matches."""

    item: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class RegexSequence:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class RegexChoice:
    branches: tuple["Node", ...]


Node = CharClass | RegexAnchor | WordBoundary | PostgresOnly | RegexRepeat | RegexSequence | RegexChoice


_OPTIONS = re.compile(r"\(\?([a-z]+)\)")
_BOUND = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}")
_NAME = re.compile(r":([a-z]+):\]")
# Characters that follow a bracket's second ``[`` if it opens a character class or a named character.
_NAMES = (".", "=", ":")
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")
_MOST_REPEATS = 255
_CONTROL = {"a": "\a", "e": "\x1b", "f": "\f", "r": "\r", "t": "\t", "v": "\v"}
_SHORTHANDS = {"d": DIGIT, "s": SPACE, "w": WORD}
# Options about newlines. They have no effect, because a line has none.
_NO_MATTER = frozenset("smnpwt")


def parsed(pattern: str, *, ignore_case: bool) -> tuple[Node, bool]:
    """Parse the pattern into a tree. Also returns whether it ignores case, which the pattern itself may set.

    Raises:
        NotTranslatable: Only PostgreSQL can evaluate the pattern.
    """
    if pattern.startswith("***"):
        raise NotTranslatable
    if options := _OPTIONS.match(pattern):
        for letter in options[1]:
            if letter not in "ic" and letter not in _NO_MATTER:
                raise NotTranslatable
            ignore_case = letter == "i" if letter in "ic" else ignore_case
        pattern = pattern[options.end() :]
    reader = _RegexParser(pattern, ignore_case=ignore_case)
    node = reader.choice()
    if not reader.is_done:
        raise NotTranslatable
    return node, ignore_case


class _RegexParser:
    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._ignore_case = ignore_case

    @property
    def is_done(self) -> bool:
        return self._at == len(self._pattern)

    def choice(self) -> Node:
        branches = [self._branch()]
        while self._took("|"):
            branches.append(self._branch())
        return branches[0] if len(branches) == 1 else RegexChoice(tuple(branches))

    def _branch(self) -> Node:
        items: list[Node] = []
        while not self.is_done and self._peek() not in "|)":
            items.append(self._quantified(self._atom()))
        return items[0] if len(items) == 1 else RegexSequence(tuple(items))

    def _quantified(self, item: Node) -> Node:
        limits = self._limits()
        if limits is None:
            return item
        if isinstance(item, RegexAnchor | WordBoundary) or item is PostgresOnly.LOOK:
            raise NotTranslatable
        self._took("?")
        if self._limits() is not None:
            raise NotTranslatable
        return RegexRepeat(item, *limits)

    def _limits(self) -> tuple[int, int | None] | None:
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._took(sign):
                return limits
        if self._peek() != "{" or not self._peek(1).isdigit():
            return None
        bound = _BOUND.match(self._pattern, self._at)
        if bound is None:
            raise NotTranslatable
        self._at = bound.end()
        low = int(bound[1])
        high = low if bound[2] is None else None if bound[3] is None else int(bound[3])
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and high < low):
            raise NotTranslatable
        return low, high

    def _atom(self) -> Node:
        if self._limits() is not None:
            raise NotTranslatable
        if self._pattern.startswith(_LOOKAROUND, self._at):
            self._at += 4 if self._pattern.startswith("(?<", self._at) else 3
            self._group()
            return PostgresOnly.LOOK
        match char := self._next():
            case "(":
                if self._pattern.startswith("?", self._at) and not self._took("?:"):
                    raise NotTranslatable
                return self._group()
            case "[":
                return self._bracket()
            case "\\":
                return self._escape()
            case ".":
                return ANY
            case "^":
                return RegexAnchor.START
            case "$":
                return RegexAnchor.END
            case _:
                return self._one(char)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > 100:
            raise NotTranslatable
        node = self.choice()
        if not self._took(")"):
            raise NotTranslatable
        self._depth -= 1
        return node

    def _escape(self) -> Node:
        char = self._next()
        if char in _SHORTHANDS:
            return CharClass(_SHORTHANDS[char], None)
        if char.lower() in _SHORTHANDS:
            return CharClass(ASCII - _SHORTHANDS[char.lower()], None)
        if char in "yYmM":
            return WordBoundary(char)
        match char:
            case "b":
                return WordBoundary.EITHER
            case "A":
                return RegexAnchor.START
            case "Z":
                return RegexAnchor.END
            case "B":
                return self._one("\\")
            case _ if char in "123456789":
                return self._reference()
            case _:
                return self._one(self._escaped(char))

    def _reference(self) -> Node:
        if self._peek().isdigit():
            raise NotTranslatable
        return PostgresOnly.REFERENCE

    def _escaped(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char.isascii() and not char.isalnum():
            return char
        raise NotTranslatable

    def _bracket(self) -> Node:
        negated = self._took("^")
        ranges: list[tuple[int, int]] = []
        sets: list[CharClass] = []
        first = True
        while first or not self._took("]"):
            char = self._next()
            if char == "[" and self._peek() in _NAMES:
                sets.append(self._named())
            elif char == "\\" and self._peek().lower() in _SHORTHANDS:
                sets.append(self._shorthand())
            elif char == "-" and not first and self._peek() != "]":
                raise NotTranslatable
            else:
                ranges.append(self._range(char))
            first = False
        return several(ranges, sets, negated=negated, ignore_case=self._ignore_case)

    def _named(self) -> CharClass:
        name = _NAME.match(self._pattern, self._at)
        if name is None or name[1] not in NAMED:
            raise NotTranslatable
        self._at = name.end()
        self._reject_range()
        return CharClass(NAMED[name[1]], None)

    def _shorthand(self) -> CharClass:
        node = self._escape()
        assert isinstance(node, CharClass)
        self._reject_range()
        return node

    def _reject_range(self) -> None:
        if self._peek() == "-" and self._peek(1) != "]":
            raise NotTranslatable

    def _range(self, char: str) -> tuple[int, int]:
        low = high = self._member(char)
        if self._peek() == "-" and self._peek(1) not in ("]", ""):
            self._at += 1
            char = self._next()
            if char == "[" and self._peek() in _NAMES:
                raise NotTranslatable
            high = self._member(char)
        if high < low:
            raise NotTranslatable
        return low, high

    def _member(self, char: str) -> int:
        return ord(self._escaped(self._next()) if char == "\\" else char)

    def _one(self, char: str) -> CharClass:
        # No line contains a newline, and no text a NUL.
        if char in "\n\0":
            raise NotTranslatable
        return one(char, ignore_case=self._ignore_case)

    def _peek(self, ahead: int = 0) -> str:
        return self._pattern[self._at + ahead : self._at + ahead + 1]

    def _next(self) -> str:
        if self.is_done:
            raise NotTranslatable
        self._at += 1
        return self._pattern[self._at - 1]

    def _took(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True
