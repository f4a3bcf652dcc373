"""Server-sent events: the stream of one session, with heartbeats, for as long as its reader takes it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib.server.attending import attended
from toolcrib.server.authority import Authority
from toolcrib.server.doors import Pace

_RETRY_MILLISECONDS: Final = 2_000
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Proxies would hold it back until it ends, which it does not.
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """An answer. A reader that takes nothing for too long is let go; it comes back with ``Last-Event-ID``."""

    opening = f"retry: {_RETRY_MILLISECONDS}\n\n".encode()

    def __init__(
        self, messages: AsyncIterator[dict[str, Any]], *, authority: Authority, pace: Pace, opened: AsyncExitStack
    ) -> None:
        """``opened`` is what the messages come from; it is closed when the stream ends."""
        super().__init__(media_type="text/event-stream")
        self._messages = messages
        self._authority = authority
        self._pace = pace
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            # A browser whose token has ended comes back with a newer one.
            with suppress(TimeoutError):
                await attended(self._tell(send), receive, authority=self._authority, check_seconds=self._pace.check)
                await self._send(send, b"", more=False)

    def encode(self, message: dict[str, Any]) -> bytes:
        return encoded(message)

    async def _tell(self, send: Send) -> None:
        await self._send(send, self.opening)
        messages = aiter(self._messages)
        following = asyncio.ensure_future(anext(messages))
        try:
            while True:
                await asyncio.wait({following}, timeout=self._pace.beat)
                if not following.done():
                    await self._send(send, b": still here\n\n")
                    continue
                try:
                    message = following.result()
                except StopAsyncIteration:
                    return
                await self._send(send, self.encode(message))
                following = asyncio.ensure_future(anext(messages))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._pace.stall):
            await send({"type": "http.response.body", "body": body, "more_body": more})


def encoded(message: dict[str, Any]) -> bytes:
    """One message. Only what has a number has an id: a browser resumes after the last one it saw."""
    number = b"" if message.get("seq") is None else b"id: %d\n" % message["seq"]
    return b"%sevent: %s\ndata: %s\n\n" % (number, str(message["type"]).encode(), to_json(message))
