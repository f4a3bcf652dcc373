"""Reads one streamed answer: from the connection to events, with every way it can fail. Knows no provider's wire."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import httpx2
import jiter

from toolcrib.domain.errors import ProviderError, ProviderFault
from toolcrib.domain.streams import Failed, StreamEvent
from toolcrib.providers.faults import broken

# How long the end of a finished answer is awaited, so that its connection can serve again.
_DRAIN_SECONDS = 0.5


class Splitter(Protocol):
    """Cuts bytes into the pieces that hold one JSON value each."""

    def feed(self, chunk: bytes) -> Iterator[bytes]: ...
    def finish(self) -> Iterator[bytes]: ...


class Reader(Protocol):
    """Understands one provider's events, in order. ``done``: the provider said that the message is whole."""

    done: bool

    def read(self, data: bytes) -> Iterator[StreamEvent]: ...
    def finish(self) -> Iterator[StreamEvent]:
        """The events that close the message; raises ProviderError if it is not whole."""
        ...


async def read_answer(
    opening: Callable[[], AbstractAsyncContextManager[httpx2.Response]], splitter: Splitter, reader: Reader
) -> AsyncGenerator[StreamEvent, None]:
    """The events of one answer. Whatever goes wrong is told as its last event; only cancelling raises."""
    try:
        async with opening() as response:
            chunks = _bytes_of(response)
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
        yield Failed(error)
    except httpx2.TransportError as error:
        yield Failed(interrupted(error))
    except httpx2.HTTPError as error:
        yield Failed(broken(f"The answer cannot be read: {error}."))


def _bytes_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body as it comes; if nothing is to be unpacked, past httpx2's own iterators, of which each has its price."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return response.aiter_bytes()
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    return aiter(response.stream)


def parsed(data: bytes) -> dict[str, Any]:
    """One event's JSON object; ProviderError if it is none."""
    try:
        value = jiter.from_json(data)
    except ValueError:
        value = _parsed_slowly(data)
    if not isinstance(value, dict):
        raise broken(f"The answer holds JSON that is no object: {data[:80]!r}.")
    return value


def _parsed_slowly(data: bytes) -> Any:
    """Takes halves of surrogate pairs, which the fast parser refuses."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise broken(f"The answer holds what is not JSON: {data[:80]!r}.") from None


def text_of(value: object) -> str:
    """A text, fit to be stored: halves of surrogate pairs, which no encoding takes, are replaced."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


class Joined:
    """A text that comes in pieces. Servers written in JavaScript cut surrogate pairs in two; here they meet again."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: object) -> str:
        if not isinstance(piece, str) or not piece:
            return ""
        if not self._half and piece.isascii():
            return piece
        whole = self._half + piece
        self._half = whole[-1] if "\ud800" <= whole[-1] <= "\udbff" else ""
        return text_of(whole[:-1] if self._half else whole)


def count_of(value: object) -> int:
    """A number of tokens; 0 where something else stands."""
    return value if isinstance(value, int) and value > 0 else 0


def interrupted(error: httpx2.TransportError) -> ProviderError:
    """The error for a connection that could not be made, went silent or broke."""
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout() | httpx2.ProxyError():
            return broken(f"No connection to the provider: {_said(error)}.", fault=ProviderFault.UNAVAILABLE)
        case httpx2.TimeoutException():
            return broken("The provider went silent.", fault=ProviderFault.TIMEOUT)
        case httpx2.UnsupportedProtocol():
            return broken(f"The provider's address cannot be used: {_said(error)}.", fault=ProviderFault.REQUEST)
    return broken(f"The connection to the provider broke: {_said(error)}.")


def _understood(pieces: Iterator[bytes], reader: Reader) -> Iterator[StreamEvent]:
    try:
        for data in pieces:
            yield from reader.read(data)
            if reader.done:
                return
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        # A value of another kind than the wire's description says: the answer's fault, not ours.
        raise broken(f"The answer has another shape than it should: {error}.") from error


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in chunks:
                return
    except (TimeoutError, httpx2.HTTPError):
        return


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
