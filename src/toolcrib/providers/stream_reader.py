"""Reads one streamed answer: from bytes to events, with all failures. Independent of the providers' wire formats."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from pydantic_core import from_json

from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent, StreamFailed
from toolcrib.network.network_policy import OutboundError, OutboundFailure
from toolcrib.providers.provider import stream_error

# How long to wait for the end of a finished answer, so that its connection can be reused.
_DRAIN_SECONDS = 0.5
# No request has more.
_MOST_TOKENS = 10**9


class StreamSplitter(Protocol):
    """Splits bytes into pieces with one JSON value each."""

    def feed(self, chunk: bytes) -> Iterator[bytes]: ...
    def finish(self) -> Iterator[bytes]: ...


class StreamEventReader(Protocol):
    """Parses one provider's events, in order. ``done``: the provider has said that the message is complete."""

    done: bool

    def read(self, data: bytes) -> Iterator[StreamEvent]: ...
    def finish(self) -> Iterator[StreamEvent]:
        """Yield the events that end the message.

        Raises:
            ProviderError: The message is not complete.
        """
        ...


async def read_answer(
    opening: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]],
    splitter: StreamSplitter,
    reader: StreamEventReader,
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of one answer. Every failure is its last event; only cancellation raises."""
    try:
        async with opening() as chunks:
            async for chunk in chunks:
                for event in _understood(splitter.feed(chunk), reader):
                    yield event
                if reader.done:
                    break
            for event in _understood(splitter.finish(), reader):
                yield event
            for event in reader.finish():
                yield event
            await _drain(chunks)
    except ProviderError as error:
        yield StreamFailed(error)
    except OutboundError as error:
        yield StreamFailed(interrupted(error))


def parsed(data: bytes) -> dict[str, Any]:
    """Parse the JSON object of one event.

    Raises:
        ProviderError: It is not a JSON object.
    """
    try:
        value = from_json(data)
    except ValueError:
        # The fast parser rejects unpaired surrogates.
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise stream_error(f"The response contains invalid JSON: {data[:80]!r}.") from None
    if not isinstance(value, dict):
        raise stream_error(f"The response contains JSON that is not an object: {data[:80]!r}.")
    return value


def text_of(value: object) -> str:
    """Return a text that can be stored: unpaired surrogates, which cannot be encoded, are replaced."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


class TextJoiner:
    """Joins a text that arrives in pieces.

    Servers written in JavaScript split surrogate pairs; here they are rejoined.
    """

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: object) -> str:
        """Return the text of the next piece."""
        if not isinstance(piece, str) or not piece:
            return ""
        if not self._half and piece.isascii():
            return piece
        whole = self._half + piece
        self._half = whole[-1] if "\ud800" <= whole[-1] <= "\udbff" else ""
        return text_of(whole[:-1] if self._half else whole)


def count_of(value: object) -> int:
    """Return a token count, so small that sums stay in range; 0 if the value is something else."""
    return min(value, _MOST_TOKENS) if isinstance(value, int) and value > 0 else 0


def interrupted(error: OutboundError) -> ProviderError:
    """Return the error for a connection that could not be made, timed out or broke."""
    match error.failure:
        case OutboundFailure.UNREACHABLE | OutboundFailure.CERTIFICATE:
            return stream_error(f"Cannot connect to the provider: {error}.", kind=ProviderErrorKind.UNAVAILABLE)
        case OutboundFailure.TIMEOUT:
            return stream_error("The provider stopped sending data.", kind=ProviderErrorKind.TIMEOUT)
        case OutboundFailure.DENIED | OutboundFailure.INVALID:
            return stream_error(f"The provider's URL is invalid: {error}.", kind=ProviderErrorKind.REQUEST)
    return stream_error(f"The connection to the provider failed: {error}.")


def _understood(pieces: Iterator[bytes], reader: StreamEventReader) -> Iterator[StreamEvent]:
    try:
        for data in pieces:
            yield from reader.read(data)
            if reader.done:
                return
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        # The value's type is not what the wire format says: the answer is wrong, not this program.
        raise stream_error(f"The response has an unexpected format: {error}.") from error


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in chunks:
                return
    except (TimeoutError, OutboundError):
        return


# Deeper than any tool's arguments, and far from the limit of encoders.
_DEEPEST = 200


def encoded(body: Mapping[str, Any]) -> bytes:
    """Encode a request body as JSON.

    Values that JSON or UTF-8 cannot represent are replaced, so that it can be sent.
    """
    try:
        return _dumped(body)
    except (ValueError, RecursionError):
        return _dumped(_speakable(body, _DEEPEST))


def _dumped(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _speakable(value: Any, depth: int) -> Any:
    """Return the value without unpaired surrogates, NaN, infinity and endless nesting."""
    if depth == 0:
        return "…"
    match value:
        case str():
            return text_of(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {text_of(key): _speakable(item, depth - 1) for key, item in value.items()}
        case list() | tuple():
            return [_speakable(item, depth - 1) for item in value]
    return value


MAX_LINE = 8 * 1024 * 1024
MAX_STREAM = 64 * 1024 * 1024
_RETURN = ord("\r")


class LineSplitter:
    """Splits bytes into complete lines without their ends. What follows the last line end waits for more."""

    def __init__(self, *, max_line: int = MAX_LINE, max_stream: int = MAX_STREAM) -> None:
        self._max_line = max_line
        self._left = max_stream
        # Kept in pieces until a line ends: joining at every piece would make a slow long line quadratic.
        self._pieces: list[bytes] = []
        self._waiting = 0

    @property
    def is_between(self) -> bool:
        """Whether no incomplete line is waiting."""
        return not self._pieces

    def count(self, chunk: bytes) -> None:
        """Count received bytes against the limit."""
        self._left -= len(chunk)
        if self._left < 0:
            raise stream_error("The response exceeds the size limit.")

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the complete lines."""
        self.count(chunk)
        *whole, rest = chunk.split(b"\n")
        if not whole:
            self._keep(rest)
            return
        first = b"".join([*self._pieces, whole[0]])
        self._pieces.clear()
        self._waiting = 0
        for line in (first, *whole[1:]):
            if len(line) > self._max_line:
                raise stream_error("The response contains a line that exceeds the size limit.")
            yield line.removesuffix(b"\r")
        self._keep(rest)

    def rest(self) -> bytes:
        """Return what follows the last line end, once nothing more arrives."""
        return b"".join(self._pieces)

    def _keep(self, rest: bytes) -> None:
        self._waiting += len(rest)
        if self._waiting > self._max_line:
            raise stream_error("The response contains a line that exceeds the size limit.")
        if rest:
            self._pieces.append(rest)


class SseSplitter:
    """Yields the data of server-sent events. An event is complete after its empty line; other fields are ignored."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if not self._data and self._lines.is_between and _is_one_event(chunk):
            # The common case: a chunk with exactly one event.
            self._lines.count(chunk)
            return iter((chunk[6:-2],))
        return self._fed(chunk)

    def _fed(self, chunk: bytes) -> Iterator[bytes]:
        for line in self._lines.feed(chunk):
            if not line:
                if self._data:
                    yield self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._size += len(line)
                if self._size > MAX_LINE:
                    raise stream_error("The response contains an event that exceeds the size limit.")

    def finish(self) -> Iterator[bytes]:
        """Yield nothing: an event without its empty line was cut."""
        return iter(())


def _is_one_event(chunk: bytes) -> bool:
    """Return whether the chunk is one data line and its empty line, in the usual form."""
    return (
        chunk.startswith(b"data: ")
        and chunk.endswith(b"\n\n")
        and chunk.find(b"\n") == len(chunk) - 2
        and chunk[-3] != _RETURN
        and len(chunk) <= MAX_LINE
    )


class JsonLineSplitter:
    """Yields the lines that are not empty; the last one may lack its end."""

    def __init__(self) -> None:
        self._lines = LineSplitter()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        return (line for line in self._lines.feed(chunk) if line.strip())

    def finish(self) -> Iterator[bytes]:
        rest = self._lines.rest()
        return iter([rest] if rest.strip() else ())
