"""One HTTP/1.1 connection to a model server.

Everything received since the last read is returned as one piece, however many chunks it was: a busy server then has
less work per token, not more.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Final, cast

import httptools
import httpx2

from toolcrib.runtime.reusable_timeout import ReusableTimeout

# Above this limit the connection pauses reading, so that the server has to wait.
_MOST_WAITING: Final = 256 * 1024
# The largest piece to return, which also bounds what its reader decompresses at once.
_MOST_AT_ONCE: Final = 64 * 1024
# The most data in a row without content: headers, chunk frames, trailers.
_MOST_FRAME: Final = 256 * 1024
_FOR_EVER: Final = 365 * 86_400.0


class HttpConnection(asyncio.Protocol):
    """Sends one request at a time. A response that was not read to its end makes the connection unusable."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm = ReusableTimeout()
        self._transport: asyncio.Transport
        self._answer: _HttpResponse | None = None
        self._news: asyncio.Future[None] | None = None
        self._is_writable = True
        self._is_spent = False
        # Why nothing more arrives.
        self._ended: httpx2.TransportError | None = None

    @property
    def is_free(self) -> bool:
        """Whether another request can be sent."""
        return (
            self._ended is None
            and not self._is_spent
            and not self._transport.is_closing()
            and (self._answer is None or self._answer.is_reusable)
        )

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request and wait for the head of its response. The body is read from here afterwards."""
        answer = self._answer = _HttpResponse()
        await self._send(request)
        seconds = _seconds(request, "read")
        while answer.status is None:
            await self._more(seconds)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=ResponseBody(self._body(answer, seconds)),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": answer.reason},
        )

    async def _body(self, answer: "_HttpResponse", seconds: float) -> AsyncIterator[bytes]:
        while True:
            if answer.pieces:
                if answer.waiting > _MOST_WAITING and self._ended is None:
                    self._transport.resume_reading()
                taken = answer.taken()
                for start in range(0, len(taken), _MOST_AT_ONCE):
                    yield taken[start : start + _MOST_AT_ONCE]
            elif answer.is_complete:
                return
            else:
                await self._more(seconds)

    async def _send(self, request: httpx2.Request) -> None:
        assert self._answer is not None and isinstance(request.stream, httpx2.AsyncByteStream)
        # Unusable until everything is sent. If the server answers earlier, it is unknown what it reads next.
        self._is_spent = True
        self._transport.write(_head(request))
        try:
            with self._alarm.after(_seconds(request, "write")):
                async for piece in request.stream:
                    self._transport.write(piece)
                    while not self._is_writable and self._ended is None and self._answer.status is None:
                        await self._something()
        except TimeoutError:
            raise httpx2.WriteTimeout("The server does not accept the request") from None
        self._is_spent = not self._is_writable

    async def _more(self, seconds: float) -> None:
        if self._ended is not None:
            raise self._ended
        try:
            with self._alarm.after(seconds):
                await self._something()
        except TimeoutError:
            raise httpx2.ReadTimeout("The server stopped sending data") from None

    async def _something(self) -> None:
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _notify(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_complete:
            self._ended = self._ended or httpx2.RemoteProtocolError("The server sent data without a request")
            self._transport.abort()
            return
        try:
            answer.feed(data)
        except httptools.HttpParserError as error:
            self._ended = httpx2.RemoteProtocolError(f"The server does not speak HTTP: {error}")
            self._transport.abort()
        else:
            if answer.waiting > _MOST_WAITING:
                self._transport.pause_reading()
        self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and error is None:
            self._answer.end()
        if self._ended is None:
            why = (
                f"The connection failed: {error}"
                if error
                else "The server closed the connection before the response was complete"
            )
            self._ended = httpx2.ReadError(why) if error else httpx2.RemoteProtocolError(why)
        self._notify()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._notify()


class _HttpResponse:
    """A response while it arrives. The parser calls the methods that start with ``on_``."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.waiting = 0
        self.is_complete = False
        self._is_framed = False
        self._is_followed = False
        self._keeps_alive = False
        self._frame = 0
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can be used again. Not if content is unread: its reader may be gone."""
        return self.is_complete and self._keeps_alive and not self._is_followed and not self.pieces

    def feed(self, data: bytes) -> None:
        """Parse received data."""
        self._frame += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise httptools.HttpParserError("it asks to switch protocols") from None
        if self._frame > _MOST_FRAME:
            raise httptools.HttpParserError("too many header bytes")

    def taken(self) -> bytes:
        """Return and clear the received content."""
        piece = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self.waiting = 0
        return piece

    def end(self) -> None:
        """Handle the end of the connection. It also ends a response without a declared length."""
        if self.status is not None and not self._is_framed:
            self.is_complete = True

    def on_message_begin(self) -> None:
        # A second response that was not requested.
        self._is_followed = self.is_complete

    def on_status(self, reason: bytes) -> None:
        if self.status is None:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # An informational response (1xx), not the final one.
            self.headers, self.reason = [], b""
            return
        self.status = status
        names = {name.lower() for name, _ in self.headers}
        self._is_framed = not names.isdisjoint((b"content-length", b"transfer-encoding")) or status in (204, 304)

    def on_body(self, piece: bytes) -> None:
        if self.status is None or self.is_complete:
            # Content of an informational or unrequested response.
            return
        self.pieces.append(piece)
        self.waiting += len(piece)
        self._frame = 0

    def on_message_complete(self) -> None:
        if self.status is not None and not self.is_complete:
            self.is_complete, self._keeps_alive = True, self._parser.should_keep_alive()


class ResponseBody(httpx2.AsyncByteStream):
    """The body of a response. Closing it closes ``in_use``, what its connection is held by."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.in_use = ExitStack()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        self.in_use.close()


def _head(request: httpx2.Request) -> bytes:
    if "transfer-encoding" in request.headers:
        raise httpx2.LocalProtocolError("A request needs a Content-Length")
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%b: %b" % header for header in request.headers.raw]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise httpx2.LocalProtocolError("A request header contains a line end")
    return b"\r\n".join([*lines, b"", b""])


def _seconds(request: httpx2.Request, what: str) -> float:
    limit = request.extensions.get("timeout", {}).get(what)
    return _FOR_EVER if limit is None else float(limit)
