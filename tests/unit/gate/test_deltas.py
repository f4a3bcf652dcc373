"""Coalesces deltas: sends the first at once, joins those that follow too soon, and loses nothing."""

import asyncio

from tests.wait_until import PATIENCE
from toolcrib.core.events import Delta, DeltaType
from toolcrib.core.ids import SessionId, WorkspaceId, new_id
from toolcrib.events.deltas import MAX_COALESCED_CHARACTERS, DeltaCoalescer

WORKSPACE, SESSION = WorkspaceId(new_id()), SessionId(new_id())


class Ears:
    """Records what was sent, and lets a test wait for more."""

    def __init__(self) -> None:
        self.heard: list[Delta] = []
        self._more = asyncio.Event()

    def hear(self, delta: Delta) -> None:
        self.heard.append(delta)
        self._more.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while "".join(delta.text for delta in self.heard) != text:
                self._more.clear()
                await self._more.wait()


def piece(text: str, offset: int, *, source: str = "m") -> Delta:
    return Delta(WORKSPACE, SESSION, DeltaType.TEXT, source, text, offset=offset)


async def test_a_delta_after_a_pause_is_sent_at_once_and_the_next_ones_are_joined() -> None:
    ears = Ears()
    coalescer = DeltaCoalescer(ears.hear)

    coalescer.add(piece("a", 0))
    assert [delta.text for delta in ears.heard] == ["a"]
    for offset, text in enumerate("bcd", start=1):
        coalescer.add(piece(text, offset))
    assert len(ears.heard) == 1
    await ears.until("abcd")

    assert [(delta.text, delta.offset) for delta in ears.heard] == [("a", 0), ("bcd", 1)]


async def test_a_buffered_delta_is_sent_before_later_ones() -> None:
    ears = Ears()
    coalescer = DeltaCoalescer(ears.hear, seconds=60)
    coalescer.add(piece("a", 0))
    coalescer.add(piece("b", 1))
    coalescer.add(piece("x", 0, source="other"))

    coalescer.flush((WORKSPACE, SESSION))

    assert [delta.text for delta in ears.heard] == ["a", "b", "x"]
    coalescer.close()


async def test_a_large_delta_is_sent_at_once_and_a_larger_one_is_split() -> None:
    ears = Ears()
    coalescer = DeltaCoalescer(ears.hear, seconds=60)
    long = "é" * (2 * MAX_COALESCED_CHARACTERS + 5)
    coalescer.add(piece("a", 0))
    coalescer.add(piece(long, 1))
    coalescer.close()

    assert "".join(delta.text for delta in ears.heard) == f"a{long}"
    assert max(len(delta.text) for delta in ears.heard) <= MAX_COALESCED_CHARACTERS
    assert [delta.offset for delta in ears.heard] == [
        0,
        1,
        1 + MAX_COALESCED_CHARACTERS,
        1 + 2 * MAX_COALESCED_CHARACTERS,
    ]


async def test_a_stream_of_many_deltas_arrives_complete_and_in_order() -> None:
    ears = Ears()
    coalescer = DeltaCoalescer(ears.hear)
    text = "".join(chr(97 + number % 26) for number in range(2_000))
    for offset, letter in enumerate(text):
        coalescer.add(piece(letter, offset))
    await ears.until(text)

    assert len(ears.heard) < 200
    assert all(
        later.offset == earlier.offset + len(earlier.text)
        for earlier, later in zip(ears.heard, ears.heard[1:], strict=False)
    )
