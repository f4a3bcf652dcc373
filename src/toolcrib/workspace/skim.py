"""What is kept of a file that streams by: some of its lines, its size and its hash. Pure."""

import codecs
from hashlib import sha256


class Skim:
    """Fed piece by piece. Keeps the lines from ``first`` to ``last``, from 1 and inclusive, up to ``limit`` bytes."""

    def __init__(self, *, limit: int, first: int = 1, last: int | None = None) -> None:
        self.size = 0
        self._limit = limit
        self._kept = bytearray()
        self._digest = sha256()
        # Line ends still to pass before what is kept, and within it.
        self._before = first - 1
        self._within = None if last is None else last - first + 1

    def feed(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.size += len(piece)
        start, passed = _past(piece, self._before)
        self._before -= passed
        if self._before or len(self._kept) > self._limit:
            return
        end = len(piece)
        if self._within is not None:
            end, passed = _past(piece, self._within, start)
            self._within -= passed
        # One byte more than fits, to know that there was more.
        self._kept += piece[start : min(end, start + self._limit + 1 - len(self._kept))]

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def cut(self) -> bool:
        """Whether more was wanted than fits."""
        return len(self._kept) > self._limit

    @property
    def text(self) -> str:
        """What was kept. A character that the limit cuts in two is left out; what is not UTF-8 is replaced."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(bytes(self._kept[: self._limit]), final=not self.cut)


def _past(piece: bytes, ends: int, start: int = 0) -> tuple[int, int]:
    """Where so many line ends are passed, or the end of the piece; and how many were."""
    passed = 0
    while passed < ends:
        found = piece.find(b"\n", start)
        if found == -1:
            return len(piece), passed
        start = found + 1
        passed += 1
    return start, passed
