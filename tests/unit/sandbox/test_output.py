"""Output kept by head and tail, compared with a simple implementation."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.sandbox.command import OutputCollector


@given(pieces=st.lists(st.binary(max_size=40)), kept=st.integers(2, 30))
def test_head_tail_and_count_match_the_complete_output(pieces: list[bytes], kept: int) -> None:
    gathering = OutputCollector(lambda _: None, kept=kept)
    for piece in pieces:
        gathering.take(piece)
    output = gathering.finish()
    whole = b"".join(pieces)
    assert len(output.head) + output.dropped + len(output.tail) == len(whole)
    assert whole.startswith(output.head)
    assert whole.endswith(output.tail)
    assert output.dropped == max(0, len(whole) - kept)


@given(text=st.text(), cut=st.integers(0, 20))
def test_characters_split_in_two_are_shown_intact(text: str, cut: int) -> None:
    shown: list[str] = []
    gathering = OutputCollector(shown.append)
    whole = text.encode(errors="replace")
    gathering.take(whole[:cut])
    gathering.take(whole[cut:])
    gathering.finish()
    assert "".join(shown) == whole.decode()


def test_the_gap_in_the_output_is_marked() -> None:
    gathering = OutputCollector(lambda _: None, kept=4)
    gathering.take(b"abXXXyz")
    assert gathering.finish().text == "ab\n[… 3 bytes omitted …]\nyz"


def test_a_truncated_stream_ends_with_a_notice() -> None:
    shown: list[str] = []
    gathering = OutputCollector(shown.append, streamed=3)
    gathering.take(b"abcdef")
    gathering.take(b"more")
    gathering.finish()
    assert shown[0] == "abc"
    assert "more output follows" in shown[1]
    assert len(shown) == 2
