"""Plans a search: which expression ripgrep gets, and which of its hits are final.

On a plain line (``is_plain``) ripgrep's result is exact wherever both languages agree on the pattern. On other lines it
may find too much, and PostgreSQL confirms the hits. So the matches are PostgreSQL's, and ripgrep makes them fast.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import assert_never

from toolcrib.workspace.search.char_classes import WORD, CharClass, codes
from toolcrib.workspace.search.pg_regex import (
    Node,
    NotTranslatable,
    PostgresOnly,
    RegexAnchor,
    RegexChoice,
    RegexRepeat,
    RegexSequence,
    WordBoundary,
    parsed,
)

_NEWLINE = ord("\n")
# With ignored case, ripgrep also matches the long s and the Kelvin sign with these. PostgreSQL does not.
_FOLDED_FROM_AFAR = codes("sSkK")
# A byte of a character beyond ASCII.
_BEYOND = r"\x80-\xFF"
_NOT_PLAIN = re.compile(rb"[\0\x1c-\x1f\x80-\xff]|\r\Z")
_LITERAL_DIRECTOR = "***="
_OTHER_LANGUAGES = re.compile(r"\(\?[a-z]*[beq]")


class MatchCertainty(IntEnum):
    """The lines on which ripgrep's result is final."""

    NO_LINE = 0
    PLAIN_LINES = 1
    EVERY_LINE = 2


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How to search: ``expression`` finds every matching line and, on lines outside ``reach``, possibly others."""

    expression: str
    reach: MatchCertainty

    def is_certain(self, line: bytes) -> bool:
        """Whether ripgrep's hit on this line is final."""
        return self.reach is MatchCertainty.EVERY_LINE or (self.reach is MatchCertainty.PLAIN_LINES and is_plain(line))


# Finds every line and leaves all matching to PostgreSQL.
EVERYTHING = SearchPlan("", MatchCertainty.NO_LINE)


def plan_search(pattern: str, *, ignore_case: bool) -> SearchPlan:
    """Plan the search for a PostgreSQL pattern. Falls back to ``EVERYTHING`` if it cannot be translated."""
    try:
        node, ignore_case = parsed(pattern, ignore_case=ignore_case)
        _require_anchors_at_the_ends(node)
        writer = _RipgrepRegexWriter(ignore_case=ignore_case)
        expression = writer.written(node)
    except (NotTranslatable, RecursionError):
        return EVERYTHING
    # As one option for the whole: ripgrep cannot extract a literal to search for from letters folded one by one.
    return SearchPlan(f"(?i){expression}" if ignore_case else expression, writer.reach)


def is_plain(line: bytes) -> bool:
    """Whether every engine and locale treat a line alike: ASCII, without a carriage return at its end."""
    return _NOT_PLAIN.search(line) is None


def to_postgres_regex(pattern: str) -> str:
    r"""Spell ``\b`` as PostgreSQL's word boundary. In brackets it stays a backspace."""
    if pattern.startswith(_LITERAL_DIRECTOR) or _OTHER_LANGUAGES.match(pattern):
        return pattern
    return _WORDS_AND_BRACKETS.sub(lambda found: r"\y" if found[0] == r"\b" else found[0], pattern)


_WORDS_AND_BRACKETS = re.compile(
    r"\\.|\[\^?\]?(?:\[:[a-z]+:\]|\[\.[^]]*\.\]|\[=[^]]*=\]|\\.|[^]\\])*\]",
    re.DOTALL,
)


def _require_anchors_at_the_ends(node: Node, *, first: bool = True, last: bool = True) -> None:
    """Raise for an anchor elsewhere.

    There it is pointless, and ripgrep differs: ``$^`` on an empty line, for example.
    """
    match node:
        case RegexAnchor.START if not first:
            raise NotTranslatable
        case RegexAnchor.END if not last:
            raise NotTranslatable
        case RegexRepeat():
            _require_anchors_at_the_ends(node.item, first=False, last=False)
        case RegexChoice():
            for branch in node.branches:
                _require_anchors_at_the_ends(branch, first=first, last=last)
        case RegexSequence():
            end = len(node.items) - 1
            for at, item in enumerate(node.items):
                _require_anchors_at_the_ends(item, first=first and at == 0, last=last and at == end)


class _RipgrepRegexWriter:
    """Writes a parsed pattern in ripgrep's syntax. Lowers ``reach`` for what it cannot write exactly."""

    def __init__(self, *, ignore_case: bool) -> None:
        self.reach = MatchCertainty.EVERY_LINE
        self._ignore_case = ignore_case

    def written(self, node: Node) -> str:
        match node:
            case CharClass():
                return self._chars(node)
            case RegexRepeat():
                return self._repeat(node)
            case RegexSequence():
                return "".join(self._items(node.items))
            case RegexChoice():
                return f"(?:{'|'.join(map(self.written, node.branches))})"
            case RegexAnchor.START:
                # A byte order mark comes before the first line and is not part of it.
                self._reaches(MatchCertainty.PLAIN_LINES)
                return r"(?:^\x{FEFF}?)"
            case RegexAnchor.END:
                return r"(?:\r?$)"
            case WordBoundary():
                # There is no character beside it that is certainly part of a word.
                self._reaches(MatchCertainty.NO_LINE)
                return ""
            case PostgresOnly.LOOK:
                self._reaches(MatchCertainty.NO_LINE)
                return ""
            case PostgresOnly.REFERENCE:
                self._reaches(MatchCertainty.NO_LINE)
                return r"(?-u:[^\n]*)"
            case _:
                assert_never(node)

    def _items(self, items: tuple[Node, ...]) -> Iterable[str]:
        for at, item in enumerate(items):
            if isinstance(item, WordBoundary) and _is_at_a_word(item, items[:at], items[at + 1 :]):
                self._reaches(MatchCertainty.PLAIN_LINES)
                yield r"(?-u:\b)"
            else:
                yield self.written(item)

    def _chars(self, chars: CharClass) -> str:
        self._judge(chars)
        inside, beyond = _bytes(chars), chars.beyond
        if beyond == "":
            if not inside:
                raise NotTranslatable
            return self._letter(chars.ascii) or f"[{inside}]"
        # One character has up to four bytes.
        others = f"(?-u:[{_BEYOND}]{{1,4}})" if beyond is None else f"[{re.escape(beyond)}]"
        return f"(?:(?-u:[{inside}])|{others})" if inside else others

    def _repeat(self, repeat: RegexRepeat) -> str:
        item = repeat.item
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((repeat.low, repeat.high))
        if isinstance(item, CharClass) and item.beyond is None and sign in ("*", "+"):
            self._judge(item)
            return f"(?-u:[{_bytes(item)}{_BEYOND}]{sign})"
        if sign is None:
            high = "" if repeat.high is None else repeat.high
            sign = f"{{{repeat.low},{high}}}"
        return f"(?:{self.written(item)}){sign}"

    def _letter(self, found: frozenset[int]) -> str | None:
        """Write a single character as a literal. For a letter in both cases, write one of them."""
        spellings = {chr(code).lower() if self._ignore_case else chr(code) for code in found}
        return _spelt(ord(spellings.pop())) if len(spellings) == 1 else None

    def _judge(self, chars: CharClass) -> None:
        if not chars.certain:
            self._reaches(MatchCertainty.NO_LINE)
        elif not chars.is_sure_everywhere or (self._ignore_case and chars.ascii & _FOLDED_FROM_AFAR):
            self._reaches(MatchCertainty.PLAIN_LINES)

    def _reaches(self, reach: MatchCertainty) -> None:
        self.reach = min(self.reach, reach)


def _is_at_a_word(boundary: WordBoundary, before: tuple[Node, ...], after: tuple[Node, ...]) -> bool:
    r"""Whether an ASCII word character is beside the boundary: then ripgrep's ``\b`` is not stricter."""
    starts = bool(after) and _is_word(_edge(after[0], at=0))
    ends = bool(before) and _is_word(_edge(before[-1], at=-1))
    match boundary:
        case WordBoundary.EITHER:
            return starts or ends
        case WordBoundary.WORD_START:
            return starts
        case WordBoundary.WORD_END:
            return ends
        case WordBoundary.NEITHER:
            return False
        case _:
            assert_never(boundary)


def _is_word(found: frozenset[int] | None) -> bool:
    return found is not None and found <= WORD


def _edge(node: Node, *, at: int) -> frozenset[int] | None:
    """Return the characters that a pattern must begin (``at`` 0) or end (-1) with, if all are certain and ASCII."""
    match node:
        case CharClass():
            return node.ascii if node.is_ascii else None
        case RegexRepeat():
            return _edge(node.item, at=at) if node.low else None
        case RegexSequence():
            return _edge(node.items[at], at=at) if node.items else None
        case RegexChoice():
            edges = [_edge(branch, at=at) for branch in node.branches]
            known = [edge for edge in edges if edge is not None]
            return frozenset().union(*known) if len(known) == len(edges) else None
        case _:
            return None


def _bytes(chars: CharClass) -> str:
    """Write the ASCII part of a set as ranges, without the newline. A NUL represents unknown characters."""
    found = chars.ascii - {_NEWLINE} | ({0} if chars.beyond is None else frozenset())
    ranges: list[tuple[int, int]] = []
    for code in sorted(found):
        low = ranges.pop()[0] if ranges and ranges[-1][1] == code - 1 else code
        ranges.append((low, code))
    return "".join(_spelt(low) if low == high else f"{_spelt(low)}-{_spelt(high)}" for low, high in ranges)


def _spelt(code: int) -> str:
    return chr(code) if chr(code).isalnum() else f"\\x{code:02X}"
