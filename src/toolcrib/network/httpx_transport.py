"""The outgoing client as a transport of httpx2, for libraries that need a client of httpx2."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import httpx2

from toolcrib.network.network_policy import OutboundError, OutboundFailure
from toolcrib.network.outbound import Outbound, Reply

# Set by the client for its own connection.
_CONNECTION_HEADERS: Final = frozenset({"host", "connection", "content-length", "transfer-encoding"})
_ERRORS: Final[dict[OutboundFailure, type[httpx2.TransportError]]] = {
    OutboundFailure.DENIED: httpx2.UnsupportedProtocol,
    OutboundFailure.INVALID: httpx2.UnsupportedProtocol,
    OutboundFailure.UNREACHABLE: httpx2.ConnectError,
    OutboundFailure.CERTIFICATE: httpx2.ConnectError,
    OutboundFailure.TIMEOUT: httpx2.ReadTimeout,
}


class OutboundTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of an httpx2 client. Limits and timeouts are the outgoing client's."""

    def __init__(self, http: Outbound) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        headers = [(name, value) for name, value in request.headers.multi_items() if name not in _CONNECTION_HEADERS]
        async with AsyncExitStack() as opened:
            sent = self._http.request(request.method, str(request.url), headers=headers, body=body or None)
            try:
                reply = await opened.enter_async_context(sent)
            except OutboundError as error:
                raise _translated(error) from error
            return httpx2.Response(
                reply.status,
                # The body is already decompressed.
                headers=[item for item in reply.headers.items() if item[0].lower() != "content-encoding"],
                stream=_ReplyStream(reply, opened.pop_all()),
            )


class _ReplyStream(httpx2.AsyncByteStream):
    def __init__(self, reply: Reply, opened: AsyncExitStack) -> None:
        self._reply = reply
        self._opened = opened

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._reply:
                yield piece
        except OutboundError as error:
            raise _translated(error) from error

    async def aclose(self) -> None:
        await self._opened.aclose()


def _translated(error: OutboundError) -> httpx2.TransportError:
    return _ERRORS.get(error.failure, httpx2.RemoteProtocolError)(str(error))
