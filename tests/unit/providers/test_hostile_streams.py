"""Whatever a server sends, the stream follows its grammar and ends without an exception."""

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.grammar import failure, received
from tests.fakes.memory import WIRES, read_bytes
from tests.fakes.scripted_turns import HELLO, THINK, TWO_CALLS
from tests.fakes.wires import sse
from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.model_stream import StreamFailed, StreamFinish
from toolcrib.providers.stream_reader import MAX_LINE, MAX_STREAM, LineSplitter

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("wire", WIRES)
@given(pieces=st.lists(st.binary(max_size=40), max_size=10))
@settings(max_examples=60, deadline=None)
async def test_garbage_ends_with_an_error(wire: str, pieces: list[bytes]) -> None:
    assert isinstance((await read_bytes(wire, pieces))[-1], StreamFailed)


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
@settings(max_examples=120, deadline=None)
async def test_a_value_of_another_type_anywhere_raises_nothing(wire: str, data: st.DataObject) -> None:
    stream = WIRES[wire](data.draw(st.sampled_from([HELLO, THINK, TWO_CALLS])))
    number = data.draw(st.integers(0, len(stream) - 1))
    start = stream[number].find(b"{")
    if start < 0:
        return
    event = json.loads(stream[number][start:])
    _replace_somewhere(event, data)
    stream[number] = sse(event) if wire != "ollama" else json.dumps(event).encode() + b"\n"

    assert isinstance((await read_bytes(wire, stream))[-1], StreamFailed | StreamFinish)


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
async def test_changed_lost_or_repeated_bytes_raise_nothing(wire: str, data: st.DataObject) -> None:
    whole = bytearray(b"".join(WIRES[wire](TWO_CALLS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        until = min(len(whole), at + data.draw(st.integers(0, 30)))
        whole[at:until] = data.draw(
            st.sampled_from([b"", b"\xff", b"\n", b"\n\n", b"}", b'"', bytes(whole[at:until]) * 2])
        )

    events = await read_bytes(wire, [bytes(whole)])
    if isinstance(events[-1], StreamFailed):
        assert received(events).message().tool_calls == ()


HOSTILE = {
    "not JSON": b"data: hello\n\n",
    "not an object": b"data: [1]\n\n",
    "invalid UTF-8": b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n',
    "nested without end": b"data: " + b"[" * 200_000 + b"\n\n",
    "a number of a million digits": b'data: {"choices": ' + b"9" * 1_000_000 + b"}\n\n",
    "a page of HTML": b"<html><body>Sign in to the hotel's network</body></html>",
    "nothing": b"",
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_response_is_a_broken_stream(wire: str, data: bytes) -> None:
    sent = data.removeprefix(b"data: ").strip() + b"\n" if wire == "ollama" else data
    error = failure(await read_bytes(wire, [sent])).error

    assert error.kind is ProviderErrorKind.BROKEN_STREAM
    assert len(error.message) < 500


@pytest.mark.parametrize("wire", WIRES)
async def test_an_endless_line_is_aborted_in_time(wire: str) -> None:
    sent = 0

    def drip() -> Any:
        nonlocal sent
        while True:
            sent += 65_536
            yield b"data: " + b"x" * 65_530

    assert failure(await read_bytes(wire, drip())).error.kind is ProviderErrorKind.BROKEN_STREAM
    assert sent <= MAX_LINE + 2 * 65_536


async def test_an_endless_response_is_aborted_in_time() -> None:
    sent = 0

    def drip() -> Any:
        nonlocal sent
        while True:
            sent += 1_000_001
            yield b":" + b" " * 999_999 + b"\n"

    assert failure(await read_bytes("openai", drip())).error.kind is ProviderErrorKind.BROKEN_STREAM
    assert sent <= MAX_STREAM + 2_000_002


async def test_too_many_calls_are_rejected() -> None:
    chunk = {
        "id": "x",
        "choices": [{"delta": {"tool_calls": [{"id": str(n), "function": {"name": "f"}} for n in range(999)]}}],
    }
    assert failure(await read_bytes("openai", [sse(chunk)])).error.kind is ProviderErrorKind.BROKEN_STREAM


async def test_surrogate_halves_are_joined_or_replaced() -> None:
    def text(content: str) -> bytes:
        return sse({"id": "x", "choices": [{"delta": {"content": content}}]})

    stop = sse({"id": "x", "choices": [{"delta": {}, "finish_reason": "stop"}]})
    stream = [text("a\ud83d"), text("\ude80b"), text("\ude80c"), text("d\ud83d"), text("e"), stop]

    assert received(await read_bytes("openai", stream)).message().text == "a🚀b\ufffdcd\ufffde"


def test_a_long_line_in_many_pieces_takes_linear_time() -> None:
    lines = LineSplitter()
    for _ in range(200_000):
        assert list(lines.feed(b"x")) == []
    assert list(lines.feed(b"\n")) == [b"x" * 200_000]


def _replace_somewhere(event: Any, data: st.DataObject) -> None:
    """Puts any JSON value somewhere in the event."""
    paths: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            paths.append((node, key))
            walk(node[key])

    walk(event)
    node, key = data.draw(st.sampled_from(paths))
    node[key] = data.draw(json_values)


@pytest.mark.parametrize(
    "chunks",
    [[b"x" * 11 + b"\n"], [b"x" * 6, b"x" * 5 + b"\n"], [b"ok\n" + b"x" * 11]],
    ids=["whole", "in two", "unended"],
)
def test_a_line_beyond_the_limit_is_rejected_however_it_is_split(chunks: list[bytes]) -> None:
    lines = LineSplitter(max_line=10)
    with pytest.raises(ProviderError):
        list(chain.from_iterable(map(lines.feed, chunks)))
