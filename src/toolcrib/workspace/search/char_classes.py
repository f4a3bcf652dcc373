"""Which characters one step of a pattern matches: exact within ASCII, approximate beyond it.

Within ASCII every engine and locale agree. Beyond, letters and cases depend on the engine, its version and the
database's locale, so that only PostgreSQL decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, hexdigits, whitespace

ASCII = frozenset(range(128))
# Represents a character of a file that is not valid text.
REPLACEMENT = "\ufffd"


def codes(text: str) -> frozenset[int]:
    return frozenset(map(ord, text))


WORD = codes(ascii_letters + digits + "_")
DIGIT = codes(digits)
# Some locales add U+001C to U+001F. Lines with those characters are never treated as plain, so it does not matter.
SPACE = codes(whitespace)

# ``punct`` is missing because locales do not agree on it.
NAMED = {
    "alnum": codes(ascii_letters + digits),
    "alpha": codes(ascii_letters),
    "blank": codes(" \t"),
    "cntrl": frozenset(range(32)) | {127},
    "digit": DIGIT,
    "graph": frozenset(range(33, 127)),
    "lower": codes(ascii_lowercase),
    "print": frozenset(range(32, 127)),
    "space": SPACE,
    "upper": codes(ascii_uppercase),
    "xdigit": codes(hexdigits),
}

# Non-ASCII characters whose other case is in ASCII, in some locales.
_CROSSING = {0x130: "iI", 0x131: "iI", 0x17F: "sS", 0x212A: "kK"}
# Alphabets whose case mappings are stable in Unicode: Latin-1, Latin Extended-A, Greek, Cyrillic.
_SETTLED = (range(0xC0, 0x180), range(0x391, 0x3CA), range(0x400, 0x460))


@dataclass(frozen=True, slots=True)
class CharClass:
    """One character out of a set.

    Attributes:
        ascii: The matching ASCII characters.
        beyond: The matching characters outside ASCII: none, these, or possibly any (``None``).
        certain: Whether the ASCII part is exact.
    """

    ascii: frozenset[int] = frozenset()
    beyond: str | None = ""
    certain: bool = True

    @property
    def is_ascii(self) -> bool:
        return self.beyond == ""

    @property
    def is_sure_everywhere(self) -> bool:
        """Whether every engine matches the same characters, on any line."""
        one = self.beyond is not None and len(self.beyond) <= 1 and REPLACEMENT not in self.beyond
        return self.certain and one and ord("\r") not in self.ascii


ANY = CharClass(ASCII, None)


def one(char: str, *, ignore_case: bool) -> CharClass:
    """Match this character or, with ``ignore_case``, its other case too."""
    code = ord(char)
    if code < 128:
        return CharClass(_both_cases({code}) if ignore_case else frozenset({code}))
    if not ignore_case:
        return CharClass(beyond=None if char == REPLACEMENT else char)
    if code in _CROSSING:
        return CharClass(codes(_CROSSING[code]), None, certain=False)
    cases = {char, char.lower(), char.upper()}
    known = any(code in alphabet for alphabet in _SETTLED) and all(len(case) == 1 for case in cases)
    return CharClass(beyond="".join(sorted(cases)) if known else None)


def several(
    ranges: Iterable[tuple[int, int]], sets: Iterable[CharClass], *, negated: bool, ignore_case: bool
) -> CharClass:
    """Build a bracket expression from inclusive ``ranges`` and from ``sets``, possibly negated."""
    inside: set[int] = set()
    beyond = negated
    certain = True
    for low, high in ranges:
        inside.update(range(low, min(high, 127) + 1))
        beyond |= high > 127
        if ignore_case and (crossing := [code for code in _CROSSING if low <= code <= high]):
            # Only PostgreSQL knows whether the ASCII partners match. For a prefilter, assume that they do.
            certain = False
            inside.update(*(codes(_CROSSING[code]) for code in crossing))
    for each in sets:
        inside |= each.ascii
        beyond |= not each.is_ascii
    found = _both_cases(inside) if ignore_case else frozenset(inside)
    if negated and not certain:
        return CharClass(ASCII, None, certain=False)
    return CharClass(ASCII - found if negated else found, None if beyond else "", certain=certain)


def _both_cases(found: Iterable[int]) -> frozenset[int]:
    text = "".join(map(chr, found))
    return codes(text) | codes(text.lower()) | codes(text.upper())
