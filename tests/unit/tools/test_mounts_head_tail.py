"""What is kept of a streamed file, however it is split."""

import re
from hashlib import sha256
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.workspace.text.content import HeadTailReader

TEXTS = st.text(alphabet="ab\n\r€", max_size=60).map(str.encode)


def skimmed(pieces: list[bytes], *, limit: int = 1_000, first: int = 1, last: int | None = None) -> HeadTailReader:
    skim = HeadTailReader(limit=limit, first=first, last=last)
    for piece in pieces:
        skim.feed(piece)
    return skim


def lines_of(body: bytes) -> list[bytes]:
    """Lines with their ends. Only ``\\n`` ends a line."""
    return re.findall(rb"[^\n]*\n|[^\n]+", body)


def in_pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    return [body[start:end] for start, end in pairwise(ends)]


@given(TEXTS, st.lists(st.integers(0, 60), max_size=6), st.integers(1, 8), st.integers(0, 8))
def test_a_window_has_the_same_lines_however_the_file_is_split(
    body: bytes, cuts: list[int], first: int, more: int
) -> None:
    skim = skimmed(in_pieces(body, cuts), first=first, last=first + more)

    assert skim.text.encode() == b"".join(lines_of(body)[first - 1 : first + more])
    assert (skim.size, skim.sha256, skim.cut) == (len(body), sha256(body).hexdigest(), False)


@given(TEXTS, st.lists(st.integers(0, 60), max_size=6), st.integers(1, 40))
def test_no_more_is_kept_than_the_limit_and_no_character_is_split(body: bytes, cuts: list[int], limit: int) -> None:
    skim = skimmed(in_pieces(body, cuts), limit=limit)

    assert skim.cut is (len(body) > limit)
    assert skim.text == body[:limit].decode(errors="ignore")
    assert (skim.size, skim.sha256) == (len(body), sha256(body).hexdigest())


def test_invalid_bytes_are_replaced() -> None:
    assert skimmed([b"a\xffb", b"\0c"]).text == "a\ufffdb\0c"
