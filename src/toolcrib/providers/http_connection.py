"""One HTTP/1.1 connection to a model. What came of an answer since the last look is read as one piece, however many
chunks it was: a server that is hard pressed has less to do for each word, not more."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, cast

import httptools
import httpx2

from toolcrib.runtime.reusable_timeout import ReusableTimeout

# What may wait to be read, before the other side has to wait.
_MOST_WAITING: Final = 256 * 1024
# What is handed on as one piece: whoever unpacks it has no more than this to unpack at once.
_MOST_AT_ONCE: Final = 64 * 1024
# What may come in a row that is no content: heads, the frames of chunks, trailers.
_MOST_FRAME: Final = 256 * 1024
_FOR_EVER: Final = 365 * 86_400.0


class HttpConnection(asyncio.Protocol):
    """Asks one question at a time. An answer that was not read to its end makes it useless for the next."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm = ReusableTimeout()
        self._transport: asyncio.Transport
        self._answer: _HttpResponse | None = None
        self._news: asyncio.Future[None] | None = None
        self._is_writable = True
        self._is_spent = False
        # Why nothing more comes.
        self._ended: httpx2.TransportError | None = None

    @property
    def is_free(self) -> bool:
        """Whether another question can be asked."""
        return (
            self._ended is None
            and not self._is_spent
            and not self._transport.is_closing()
            and (self._answer is None or self._answer.is_reusable)
        )

    def close(self) -> None:
        self._transport.abort()

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """Sends the question and waits for the head of its answer. The body is read from here afterwards."""
        answer = self._answer = _HttpResponse()
        await self._send(request)
        seconds = _seconds(request, "read")
        while answer.status is None:
            await self._more(seconds)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_ResponseBody(self._body(answer, seconds)),
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
            elif answer.is_whole:
                return
            else:
                await self._more(seconds)

    async def _send(self, request: httpx2.Request) -> None:
        assert self._answer is not None and isinstance(request.stream, httpx2.AsyncByteStream)
        # Until all of it was sent, and if the server answers before it has heard all: who knows what it reads next.
        self._is_spent = True
        self._transport.write(_head(request))
        try:
            with self._alarm.after(_seconds(request, "write")):
                async for piece in request.stream:
                    self._transport.write(piece)
                    while not self._is_writable and self._ended is None and self._answer.status is None:
                        await self._something()
        except TimeoutError:
            raise httpx2.WriteTimeout("The server does not take the question") from None
        self._is_spent = not self._is_writable

    async def _more(self, seconds: float) -> None:
        if self._ended is not None:
            raise self._ended
        try:
            with self._alarm.after(seconds):
                await self._something()
        except TimeoutError:
            raise httpx2.ReadTimeout("The server went silent") from None

    async def _something(self) -> None:
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no subclass.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_whole:
            self._ended = self._ended or httpx2.RemoteProtocolError("The server speaks unasked")
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
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and error is None:
            self._answer.end()
        if self._ended is None:
            why = f"The connection broke: {error}" if error else "The server hung up before its answer was whole"
            self._ended = httpx2.ReadError(why) if error else httpx2.RemoteProtocolError(why)
        self._tell()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._tell()


class _HttpResponse:
    """What has come of an answer. Its methods that begin with ``on_`` are called by the parser."""

    __slots__ = (
        "_frame",
        "_is_followed",
        "_is_framed",
        "_keeps_alive",
        "_parser",
        "headers",
        "is_whole",
        "pieces",
        "reason",
        "status",
        "waiting",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.waiting = 0
        self.is_whole = False
        self._is_framed = False
        self._is_followed = False
        self._keeps_alive = False
        self._frame = 0
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_reusable(self) -> bool:
        """Whether its connection can serve again. Not if it was left unread: perhaps it is not even listened to."""
        return self.is_whole and self._keeps_alive and not self._is_followed and not self.pieces

    def feed(self, data: bytes) -> None:
        self._frame += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise httptools.HttpParserError("it wants to speak something else") from None
        if self._frame > _MOST_FRAME:
            raise httptools.HttpParserError("too much that is no content")

    def taken(self) -> bytes:
        piece = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self.waiting = 0
        return piece

    def end(self) -> None:
        """The other side has hung up. That is how an answer ends which says nothing of its length."""
        if self.status is not None and not self._is_framed:
            self.is_whole = True

    def on_message_begin(self) -> None:
        # Another answer, to a question that nobody asked.
        self._is_followed = self.is_whole

    def on_status(self, reason: bytes) -> None:
        if self.status is None:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_whole:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # A word on the way, not the answer.
            self.headers, self.reason = [], b""
            return
        self.status = status
        names = {name.lower() for name, _ in self.headers}
        self._is_framed = not names.isdisjoint((b"content-length", b"transfer-encoding")) or status in (204, 304)

    def on_body(self, piece: bytes) -> None:
        if self.status is None or self.is_whole:
            # What belongs to a word on the way, or to an answer that nobody asked for.
            return
        self.pieces.append(piece)
        self.waiting += len(piece)
        self._frame = 0

    def on_message_complete(self) -> None:
        if self.status is not None and not self.is_whole:
            self.is_whole, self._keeps_alive = True, self._parser.should_keep_alive()


class _ResponseBody(httpx2.AsyncByteStream):
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces


def _head(request: httpx2.Request) -> bytes:
    if "transfer-encoding" in request.headers:
        raise httpx2.LocalProtocolError("A question's length has to be known before it is sent")
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%b: %b" % header for header in request.headers.raw]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise httpx2.LocalProtocolError("A line of the question's head holds a line end")
    return b"\r\n".join([*lines, b"", b""])


def _seconds(request: httpx2.Request, what: str) -> float:
    limit = request.extensions.get("timeout", {}).get(what)
    return _FOR_EVER if limit is None else float(limit)
