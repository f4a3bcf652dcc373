"""Escapes text for display, so that it cannot look other than it is.

The web UI has the same table. ``tests/shown_text_cases.json`` has the cases that both must agree on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

# First and last code points to escape: controls, bidirectional marks, invisible and blank characters, variation
# selectors, tags, private use and noncharacters. Newline and tab stay.
ESCAPED: Final[tuple[tuple[int, int], ...]] = (
    (0x0000, 0x0008),
    (0x000B, 0x001F),
    (0x007F, 0x00A0),
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFC),
    (0xFFFE, 0xFFFF),
    (0x13430, 0x1345F),
    (0x1BCA0, 0x1BCAF),
    (0x1D173, 0x1D17A),
    (0xE0000, 0x10FFFF),
)
# Marks that stand above, below or on the character before. Two are usual; more of them cover other lines.
COMBINING: Final[tuple[tuple[int, int], ...]] = (
    (0x0300, 0x034E),
    (0x0350, 0x036F),
    (0x0483, 0x0489),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
    (0xFE20, 0xFE2F),
)
# A longer run of one kind of space is shown as its length: it could push code out of sight.
LONGEST_RUN: Final = 40
TAB_WIDTH: Final = 4


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


# Characters that begin emoji: symbols and pictures.
EMOJI: Final[tuple[tuple[int, int], ...]] = (
    (0x00A9, 0x00A9),
    (0x00AE, 0x00AE),
    (0x203C, 0x203C),
    (0x2049, 0x2049),
    (0x2122, 0x2122),
    (0x2139, 0x2139),
    (0x2190, 0x21FF),
    (0x2300, 0x23FF),
    (0x24C2, 0x24C2),
    (0x25A0, 0x27BF),
    (0x2934, 0x2935),
    (0x2B00, 0x2BFF),
    (0x3030, 0x3030),
    (0x303D, 0x303D),
    (0x3297, 0x3297),
    (0x3299, 0x3299),
    (0x1F000, 0x1FAFF),
)
# Coloured presentation or a skin tone.
_EMOJI = f"{_class(EMOJI)}[\ufe0f\U0001f3fb-\U0001f3ff]?"
# Emoji that need a character which is escaped elsewhere: several that are joined, one that is made coloured, a keycap.
_EMOJI_SEQUENCE = f"{_EMOJI}(?:\u200d{_EMOJI})+|{_class(EMOJI)}\ufe0f|[0-9#*]\ufe0f\u20e3"
_LONGEST_EMOJI: Final = 32
# What may become one of them with the text that follows.
_EMOJI_START = re.compile(f"(?:(?:{_EMOJI}\u200d)*{_EMOJI}\u200d?|[0-9#*]\ufe0f?)\\Z")

_ESCAPED = re.compile(f"{_class(ESCAPED)}|(?<={_class(COMBINING)}{{2}}){_class(COMBINING)}")
_ESCAPED_IN_PROSE = re.compile(f"(?P<emoji>{_EMOJI_SEQUENCE})|{_ESCAPED.pattern}")
# What a line of code shows by a mark: a long run of spaces, a tab, spaces at the end, and what is escaped.
_MARKED = re.compile(
    rf"(?P<run>(?P<kind>[ \t\u3000])(?P=kind){{{LONGEST_RUN},}})|(?P<tab>\t)|(?P<end> +(?=\r?\Z))|{_ESCAPED.pattern}"
)
_RUNS: Final = {" ": "spaces", "\t": "tabs", "\u3000": "wide spaces"}
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_ENDS = str.maketrans({"\n": "\\n", "\t": "\\t"})

Part = tuple[str, bool]


def escape(text: str) -> str:
    r"""Escape every deceptive character as ``\u202e`` or ``\U000e0041``. Line breaks stay."""
    return _ESCAPED.sub(_escape, text)


def escape_prose(text: str) -> str:
    """Escape text that a person or a model writes in words: as ``escape`` does, but emoji stay whole."""
    return _ESCAPED_IN_PROSE.sub(lambda found: found[0] if found["emoji"] else _escape(found), text)


def open_end(text: str) -> int:
    """Return where the end of a text begins that the next characters may make one emoji; its length if there is none.

    Text that is escaped in pieces is cut there.
    """
    found = _EMOJI_START.search(text, max(0, len(text) - _LONGEST_EMOJI))
    return len(text) if found is None else found.start()


def escape_line(text: str) -> str:
    """Escape text that is one line, such as a path or a host: newlines and tabs too."""
    return escape(text).translate(_ENDS)


def shown_line(text: str) -> str:
    """Return a line of code as every client shows it. See ``shown_parts``."""
    return "".join(part for part, _ in shown_parts(text))


def shown_parts(text: str) -> list[Part]:
    """Split a line of code into what is shown as it is, and marks that stand for what would not be seen.

    Marks are escapes, tabs as arrows up to the next tab stop, spaces at the end as dots, and long runs of spaces as
    their length. Clients give them a style of their own, because the same characters can be in the text.
    """
    parts: list[Part] = []
    at = column = 0
    for found in _MARKED.finditer(text):
        if found.start() > at:
            parts.append((text[at : found.start()], False))
            column += found.start() - at
        mark = _mark(found, column)
        parts.append((mark, True))
        column += len(mark)
        at = found.end()
    if at < len(text):
        parts.append((text[at:], False))
    return parts


def _mark(found: re.Match[str], column: int) -> str:
    if found["run"]:
        return f"⟦{len(found[0]):,} {_RUNS[found['kind']]}⟧"
    if found["tab"]:
        return "→" + " " * (TAB_WIDTH - 1 - column % TAB_WIDTH)
    return "·" * len(found[0]) if found["end"] else _escape(found)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in _SHORT:
        return _SHORT[found[0]]
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


LineKind = Literal["hunk", "same", "gone", "new"]
SIGNS: Final[dict[LineKind, str]] = {"hunk": "", "same": " ", "gone": "-", "new": "+"}
NO_NEWLINE: Final = "⟦no newline at the end⟧"


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff as clients show it."""

    kind: LineKind
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The line, without its sign."""
        return "".join(part for part, _ in self.parts)


def diff_lines(diff: str) -> Iterator[DiffLine]:
    """Yield the lines of a unified diff of one file, without the names of the file.

    Only a newline ends a line: ``splitlines`` would also break at a carriage return, and then a part of an added line
    could look like a removed one.
    """
    is_in_hunk = False
    lines = diff.removesuffix("\n").split("\n")
    for number, line in enumerate(lines):
        if line.startswith("@@ "):
            is_in_hunk = True
            yield DiffLine("hunk", ((escape_line(line), False),))
        if not is_in_hunk or line.startswith(("@@ ", "\\")):
            continue
        kind: LineKind = "new" if line.startswith("+") else "gone" if line.startswith("-") else "same"
        ends_here = number + 1 < len(lines) and lines[number + 1].startswith("\\")
        yield DiffLine(kind, (*shown_parts(line[1:]), *([(NO_NEWLINE, True)] if ends_here else [])))
