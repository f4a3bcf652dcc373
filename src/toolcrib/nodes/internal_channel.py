"""The channel between nodes: sends an operation to another node and receives its answer, both authenticated.

An answer is a sequence of sealed frames in the body of an HTTP response: output while the operation runs, signs of
life, and one result or error at the end. Closing the connection cancels the operation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import Enum
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import Final, Self, TypeVar

import aiohttp
import structlog
from aiohttp import web

from toolcrib.core.errors import TooLarge, ToolcribError, Unauthenticated
from toolcrib.nodes.node_tokens import SEAL_BYTES, FrameSealer, NodeTokens

_PATH: Final = "/internal/"
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = 1 + _LENGTH_BYTES + SEAL_BYTES
_LARGEST_FRAME: Final = 256 * 1024 * 1024
# Longer contents are hashed and sealed in a thread.
_LONG: Final = 512 * 1024
_CONNECT_SECONDS: Final = 5.0
_BODY_SECONDS: Final = 30.0
_MOST_CONNECTIONS: Final = 1_000
# The client closes an idle connection before the server does, so that it never sends into a closed one.
_CLIENT_KEEPS_SECONDS: Final = 30.0
_SERVER_KEEPS_SECONDS: Final = 75.0
_MOST_ALIVE_SECONDS: Final = 2.0
# How long calls may go on when the server ends. The drain has waited for them before.
_CLOSE_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


class FrameKind(Enum):
    """What a frame contains. Each answer ends with one ``RESULT`` or ``ERROR``."""

    OUTPUT = b"o"
    ALIVE = b"a"
    RESULT = b"r"
    ERROR = b"e"


class NotSent(ToolcribError):
    """There is no connection to the other node, so it has not begun the operation."""


class AnswerLost(ToolcribError):
    """The operation was sent, and there is no authentic answer. The other node may have begun it."""


Answer = tuple[FrameKind, bytes]
Emit = Callable[[str], None]
Handler = Callable[[str, bytes, Emit], Awaitable[Answer]]


def alive_seconds(lease: float) -> float:
    """Return how often an operation at work sends a sign of life. One that is silent for a lease is given up."""
    return min(_MOST_ALIVE_SECONDS, lease / 4)


class NodeClient:
    """Sends operations to other nodes while its context lasts. Keeps connections open."""

    def __init__(self, tokens: NodeTokens, *, lease: float) -> None:
        self._tokens = tokens
        self._lease = lease
        self._silent: frozenset[str] = frozenset()
        # Of what is sent to each node and not answered yet.
        self._limits: dict[str, set[asyncio.Timeout]] = {}
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._session = await self._opened.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, keepalive_timeout=_CLIENT_KEEPS_SECONDS),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS, sock_read=self._lease
                ),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def send(self, node: str, address: str, operation: str, body: bytes, *, emit: Emit | None = None) -> Answer:
        """Send an operation to a node and return how it ended. Cancelling this cancels the operation.

        Raises:
            NotSent: It has not begun.
            AnswerLost: It may have begun.
        """
        if node in self._silent:
            raise NotSent(f"Node {node!r} has no heartbeat.")
        limits, limit = self._limits.setdefault(node, set()), asyncio.timeout(None)
        limits.add(limit)
        try:
            async with limit:
                return await self._exchange(node, address, operation, body, emit)
        except TimeoutError as error:
            raise AnswerLost(f"Node {node!r} has no heartbeat any more.") from error
        finally:
            limits.discard(limit)

    def give_up(self, silent: frozenset[str]) -> None:
        """Send nothing to these nodes until the next call of this, and wait for none of their answers."""
        self._silent = silent
        now = asyncio.get_running_loop().time()
        for node in silent:
            for limit in self._limits.pop(node, ()):
                if not limit.expired():
                    limit.reschedule(now)

    async def _exchange(self, node: str, address: str, operation: str, body: bytes, emit: Emit | None) -> Answer:
        digest = await off_loop(len(body), lambda: sha256(body).hexdigest())
        token, sealer = self._tokens.issue(node, address, operation, digest)
        try:
            response = await self._session.post(
                f"{address}{_PATH}{operation}",
                headers={"Authorization": f"Bearer {token}"},
                data=BytesIO(body) if len(body) > _LONG else body,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NotSent(f"Node {node!r} cannot be reached at {address}: {error}") from error
        except _FAILURES as error:
            raise AnswerLost(f"Node {node!r} does not answer: {error!r}") from error
        try:
            if response.status != 200:
                raise AnswerLost(f"Node {node!r} answered with HTTP {response.status}.")
            answer = await _read_frames(response.content, sealer, emit)
            response.release()
        except _FAILURES as error:
            raise AnswerLost(f"The connection to node {node!r} was lost: {error!r}") from error
        finally:
            # Without a complete answer this disconnects, and the other node cancels the operation.
            response.close()
        return answer


_FAILURES: Final = (aiohttp.ClientError, TimeoutError, ValueError, asyncio.IncompleteReadError, OSError)


async def _read_frames(content: aiohttp.StreamReader, sealer: FrameSealer, emit: Emit | None) -> Answer:
    while True:
        head = await content.readexactly(_HEAD_BYTES)
        kind, length = FrameKind(head[:1]), int.from_bytes(head[1 : 1 + _LENGTH_BYTES])
        if length > _LARGEST_FRAME:
            raise AnswerLost(f"A frame of {length:,} bytes is larger than the limit.")
        payload, seal = await content.readexactly(length), head[1 + _LENGTH_BYTES :]
        if not await off_loop(length, partial(sealer.accepts, seal, kind.value, payload)):
            log.error("internal.wrong_seal")
            raise AnswerLost("A frame of the answer has a wrong seal.")
        match kind:
            case FrameKind.OUTPUT:
                if emit is not None:
                    emit(payload.decode("utf-8", "surrogatepass"))
            case FrameKind.RESULT | FrameKind.ERROR:
                # Reads the end, so that the connection can be used again.
                await content.read()
                return kind, payload
            case FrameKind.ALIVE:
                pass


class _LostLease(Exception):
    """This process had no heartbeat for a lease."""


class InternalListener:
    """Accepts operations from other nodes, and from nobody else, while its context lasts."""

    def __init__(
        self,
        tokens: NodeTokens,
        handler: Handler,
        *,
        host: str,
        port: int,
        most_bytes: int,
        lease: float,
        is_alive: Callable[[], bool],
    ) -> None:
        """Create it.

        Args:
            is_alive: Whether this process had a heartbeat during the last lease. Without one, nobody waits for it.
        """
        self._tokens = tokens
        self._handler = handler
        self._host = host
        self._port = port
        self._most_bytes = most_bytes
        self._alive_seconds = alive_seconds(lease)
        self._is_alive = is_alive
        self._at_work: set[asyncio.Task[Answer]] = set()

    async def __aenter__(self) -> Self:
        server = web.Server(
            self._respond, handler_cancellation=True, keepalive_timeout=_SERVER_KEEPS_SECONDS, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_CLOSE_SECONDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def finish(self) -> None:
        """Wait until no operation is at work."""
        while self._at_work:
            await asyncio.wait(self._at_work)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        operation = request.path.removeprefix(_PATH)
        try:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            if scheme != "Bearer" or request.method != "POST":
                return _refusal()
            accepted = self._tokens.accept(token, operation)
            body = await self._read(request)
            digest = await off_loop(len(body), lambda: sha256(body).hexdigest())
            if digest != accepted.body_sha256:
                return _refusal()
        except (Unauthenticated, TimeoutError):
            return _refusal()
        except TooLarge:
            return _refusal(413)
        return await self._run(request, operation, body, accepted.sealer)

    async def _read(self, request: web.BaseRequest) -> bytes:
        if (request.content_length or 0) > self._most_bytes:
            raise TooLarge("The request is too large.")
        pieces, size = [], 0
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > self._most_bytes:
                    raise TooLarge("The request is too large.")
                pieces.append(piece)
        return b"".join(pieces)

    async def _run(
        self, request: web.BaseRequest, operation: str, body: bytes, sealer: FrameSealer
    ) -> web.StreamResponse:
        """Run the operation. One that ends soon and shows nothing is answered by a single frame."""
        texts: list[str] = []
        changed = asyncio.Event()

        def emit(text: str) -> None:
            texts.append(text)
            changed.set()

        running = asyncio.ensure_future(self._handler(operation, body, emit))
        self._at_work.add(running)
        running.add_done_callback(self._at_work.discard)
        running.add_done_callback(lambda _: changed.set())
        response: web.StreamResponse | None = None
        try:
            while not running.done() or texts:
                alarm = asyncio.get_running_loop().call_later(self._alive_seconds, changed.set)
                await changed.wait()
                alarm.cancel()
                changed.clear()
                if running.done() and not texts:
                    break
                if not self._is_alive():
                    raise _LostLease
                if response is None:
                    response = web.StreamResponse()
                    await response.prepare(request)
                kind, text = (FrameKind.OUTPUT, "".join(texts)) if texts else (FrameKind.ALIVE, "")
                texts.clear()
                await response.write(await _frame(sealer, kind, text.encode("utf-8", "surrogatepass")))
            last = await _frame(sealer, *running.result())
        except _LostLease:
            # Another node may have the workspace by now. Who waits here asks there, and does not wait any longer.
            log.warning("internal.lease_lost", operation=operation)
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        if response is None:
            return web.Response(body=last)
        await response.write(last)
        await response.write_eof()
        return response


def _refusal(status: int = 401) -> web.Response:
    response = web.Response(status=status)
    response.force_close()
    return response


async def _frame(sealer: FrameSealer, kind: FrameKind, payload: bytes) -> bytes:
    def sealed() -> bytes:
        seal = sealer.next_seal(kind.value, payload)
        return b"".join((kind.value, len(payload).to_bytes(_LENGTH_BYTES), seal, payload))

    return await off_loop(len(payload), sealed)


T = TypeVar("T")


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Do work whose time depends on a size: in a thread if it would delay others."""
    return await asyncio.to_thread(work) if size > _LONG else work()
