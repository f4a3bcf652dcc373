"""Explains why a passage was not found, and where a similar one is. Fast in large files too."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from heapq import nlargest

# Beyond these limits nothing is compared, so that the answer takes a fraction of a second for any file.
COPY_EXACTLY = "Read it again and copy the passage exactly."
_MOST_CHARACTERS = 4_000_000
_MOST_PIECES = 60
_MOST_HITS = 200
_MOST_CANDIDATES = 8
_MOST_LINES = 40
_MOST_OF_A_LINE = 200

# A less similar passage does not help.
_ALIKE = 0.6
# A shorter new_string occurs in many files by chance.
_TELLING = 3
_SHOWN = 120


def explain_no_match(text: str, old: str, new: str) -> str:
    """Explain to the caller why ``old`` is not in ``text``, to be replaced by ``new``."""
    if len(text) > _MOST_CHARACTERS:
        return COPY_EXACTLY
    found = [*_applied_already(text, new), *_differs_in_a_way(text, old)]
    if found:
        return " ".join(found)
    return _nearest(text, old) or f"Nothing similar was found. {COPY_EXACTLY}"


def _applied_already(text: str, new: str) -> Iterator[str]:
    wanted, there = _unix(new).strip("\n"), _unix(text)
    at = there.find(wanted)
    if at != -1 and len(wanted.strip()) >= _TELLING:
        line = there.count("\n", 0, at) + 1
        yield f"new_string is already there (line {line}): the edit may already be done."


# Normalizations of a text. Each keeps the line feeds, so that a position in it gives the line of the file.


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _without_line_tails(text: str) -> str:
    return "\n".join(map(str.rstrip, text.split("\n")))


def _without_indentation(text: str) -> str:
    return "\n".join(map(str.strip, text.split("\n")))


def _without_whitespace(text: str) -> str:
    return text.translate(_BLANKS)


def _without_look_alikes(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(_LOOK_ALIKES)


def _without_all_of_these(text: str) -> str:
    return _without_whitespace(_without_look_alikes(text)).lower()


_BLANKS = dict.fromkeys(map(ord, " \t\r\f\v\u00a0\u2007\u202f\u200b\ufeff"))
_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    }
)

# From the smallest difference to the largest: the first view with a match explains the failure.
_VIEWS: Sequence[tuple[str, Callable[[str], str]]] = (
    ("a line end before or after it", str),
    ("line ends (CRLF there, LF here, or the reverse)", _unix),
    ("whitespace at the ends of lines", _without_line_tails),
    ("indentation", _without_indentation),
    ("whitespace", _without_whitespace),
    ("upper and lower case", str.lower),
    ("characters that look alike (quotes, dashes, accents)", _without_look_alikes),
    ("whitespace, case or characters that look alike", _without_all_of_these),
)


def _differs_in_a_way(text: str, old: str) -> Iterator[str]:
    for difference, view in _VIEWS:
        wanted, there = view(old).strip("\n"), view(text)
        at = there.find(wanted)
        if at == -1 or not wanted.strip():
            continue
        first = there.count("\n", 0, at)
        count = wanted.count("\n") + 1
        where = f"{_numbered(first, count)} {'differs' if count == 1 else 'differ'}"
        yield f"{where} from it only in {difference}: the file has {_quoted(_telling_line(text, old, first))}."
        return


def _telling_line(text: str, old: str, first: int) -> str:
    """Return the first line near the match that differs from the passage."""
    wanted = old.strip("\n").split("\n")
    there = text.split("\n")[first : first + len(wanted)]
    if len(wanted) == 1:
        return there[0]
    # A passage may begin within its first line and end within its last.
    same = [there[0].endswith(wanted[0]), *map(str.__eq__, there[1:-1], wanted[1:-1]), there[-1].startswith(wanted[-1])]
    return next((line for line, is_same in zip(there, same, strict=False) if not is_same), there[0])


def _nearest(text: str, old: str) -> str | None:
    """Describe the most similar lines, where no normalization gives a match."""
    wanted = old.strip("\n").split("\n")[:_MOST_LINES]
    lines = text.split("\n")
    best = max(_candidates(text, wanted), key=lambda start: _roughly_alike(lines, start, wanted), default=None)
    if best is None or _alike(lines, best, wanted) < _ALIKE:
        return None
    there = lines[best : best + len(wanted)]
    pairs = enumerate(zip(there, wanted, strict=False))
    number, (line, expected) = next((pair for pair in pairs if pair[1][0] != pair[1][1]), (0, (there[0], wanted[0])))
    if len(wanted) == 1:
        return f"The closest match is line {best + 1}: {_quoted(line)}. {COPY_EXACTLY}"
    return (
        f"The closest match is {_numbered(best, len(there)).lower()}; first different line is {best + number + 1}: "
        f"the file has {_quoted(line)}, old_string has {_quoted(expected)}."
    )


def _candidates(text: str, wanted: Sequence[str]) -> list[int]:
    """Return the few lines where the passage could begin, by shared words. Rare words weigh more."""
    for pieces in (_words, _fragments):
        votes: defaultdict[int, float] = defaultdict(float)
        for offset, piece in nlargest(_MOST_PIECES, _numbered_pieces(wanted, pieces), key=lambda pair: len(pair[1])):
            hits = _lines_with(text, piece)
            for line in hits:
                votes[max(0, line - offset)] += 1 / len(hits)
        if votes:
            return nlargest(_MOST_CANDIDATES, votes, key=votes.__getitem__)
    return []


def _numbered_pieces(wanted: Sequence[str], pieces: Callable[[str], set[str]]) -> Iterator[tuple[int, str]]:
    for offset, line in enumerate(wanted):
        for piece in sorted(pieces(line[:_MOST_OF_A_LINE])):
            yield offset, piece


def _words(line: str) -> set[str]:
    return set(re.findall(r"\w{2,}", line))


def _fragments(line: str) -> set[str]:
    return {line[at : at + 3] for at in range(len(line) - 2) if not line[at : at + 3].isspace()}


def _lines_with(text: str, piece: str) -> list[int]:
    """Return the numbers, from 0, of the first lines that contain a piece."""
    found: list[int] = []
    line = at = 0
    while (hit := text.find(piece, at)) != -1 and len(found) < _MOST_HITS:
        line += text.count("\n", at, hit)
        found.append(line)
        at = hit + len(piece)
        line += piece.count("\n")
    return found


def _roughly_alike(lines: Sequence[str], start: int, wanted: Sequence[str]) -> float:
    return _mean(matcher.quick_ratio() for matcher in _compared(lines, start, wanted))


def _alike(lines: Sequence[str], start: int, wanted: Sequence[str]) -> float:
    return _mean(matcher.ratio() for matcher in _compared(lines, start, wanted))


def _compared(lines: Sequence[str], start: int, wanted: Sequence[str]) -> Iterator[SequenceMatcher[str]]:
    for line, expected in zip(lines[start : start + len(wanted)], wanted, strict=False):
        expected = expected.strip()[:_MOST_OF_A_LINE]
        yield SequenceMatcher(None, _part_like(line.strip()[:_MOST_OF_A_LINE], expected), expected)


def _part_like(line: str, expected: str) -> str:
    """Return the part of a longer line that could be meant."""
    if len(line) <= len(expected):
        return line
    common = SequenceMatcher(None, line, expected, autojunk=False).find_longest_match()
    start = max(0, common.a - common.b)
    return line[start : start + len(expected)]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _numbered(first: int, count: int) -> str:
    return f"Line {first + 1}" if count == 1 else f"Lines {first + 1}–{first + count}"


def _quoted(line: str) -> str:
    """Quote a line with visible whitespace, shortened."""
    return repr(line) if len(line) <= _SHOWN else f"{line[:_SHOWN]!r}…"
