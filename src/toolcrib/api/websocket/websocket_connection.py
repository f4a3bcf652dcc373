"""One open WebSocket: sends in order with a timeout, and closes with a reason. Independent of the protocol."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from pydantic_core import to_json

from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.connection_auth import ConnectionAuth
from toolcrib.api.auth.principal import tenant_for
from toolcrib.api.http_errors import explained
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound, ToolcribError, Unauthenticated
from toolcrib.core.events import Delta, Event
from toolcrib.core.ids import SessionId
from toolcrib.runtime.reusable_timeout import ReusableTimeout
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.sessions import Session

# The space beside the code in a close frame.
_MAX_REASON_BYTES: Final = 123


class CloseCode(IntEnum):
    """Close codes. Ours start at 4400 and follow the HTTP status where there is a similar one."""

    NORMAL = 1000
    UNAUTHENTICATED = 4401
    FORBIDDEN = 4403
    SILENT = 4408
    TOO_SLOW = 4409
    TOO_MANY = 4429
    INTERNAL_ERROR = 4500


class CloseConnection(Exception):
    """Closes the connection."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def short_reason(self) -> str:
        """The reason, cut to the size of a close frame."""
        return self.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")


def silent() -> CloseConnection:
    """Return the close reason for a client that does not authenticate in time."""
    return CloseConnection(CloseCode.SILENT, 'Not authenticated. Send {"type": "auth", "payload": {"token": …}} first.')


def ending_of(error: ToolcribError) -> CloseConnection | None:
    """Return the close reason if the error concerns the whole connection; None if it concerns one message only."""
    match error:
        case Unauthenticated():
            return CloseConnection(CloseCode.UNAUTHENTICATED, error.message)
        case Forbidden():
            return CloseConnection(CloseCode.FORBIDDEN, error.message)
    return None


_CLOSE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class ClientDisconnected(Exception):
    """The client has disconnected."""


class WebSocketConnection:
    """An authenticated client, and the tasks that work for it while it stays connected."""

    def __init__(
        self, websocket: WebSocket, services: ApiServices, authority: ConnectionAuth, workspace_id: UUID
    ) -> None:
        self.services = services
        self.workspace_id = workspace_id
        self.authority = authority
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._patience = ReusableTimeout()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[CloseConnection] = asyncio.get_running_loop().create_future()

    @property
    def tenant(self) -> Tenant:
        """The tenant of the client."""
        return tenant_for(self.authority.principal, self.workspace_id)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. A client that does not read it in time is disconnected, and may reconnect."""
        text = to_json(message).decode()
        async with self._sending:
            try:
                with self._patience.after(self.services.connection_limits.pace.stall):
                    await self._websocket.send_text(text)
            except TimeoutError:
                reason = "The client reads too slowly. Reconnect and resume: no events are lost."
                raise CloseConnection(CloseCode.TOO_SLOW, reason) from None
            except (WebSocketDisconnect, RuntimeError, OSError):
                # Closed while this task waited for its turn.
                raise ClientDisconnected from None

    async def receive(self) -> dict[str, Any]:
        """Receive a frame."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise ClientDisconnected
        return dict(message)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task for this connection; an error in it closes the connection."""
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def check_membership(self) -> None:
        """Check the membership, for every message.

        Raises:
            Forbidden: The user is not a member any more.
            Unauthenticated: The token or key has ended.
        """
        await self.authority.check()
        await self.services.workspaces.get(self.tenant)

    async def serve(self, reading: Coroutine[Any, Any, None]) -> None:
        """Read until there is a reason to close, then close with it."""
        self.start(reading)
        self.start(self._watch_authority())
        try:
            ending = await self._ended
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await close(self._websocket, ending)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except CloseConnection as ending:
            self._end(ending)
        except ClientDisconnected:
            self._end(CloseConnection(CloseCode.NORMAL, ""))
        except ToolcribError as error:
            self._end(ending_of(error) or CloseConnection(CloseCode.INTERNAL_ERROR, error.message))
        except OperationalError as error:
            log.warning("database.unavailable", error=str(error))
            self._end(
                CloseConnection(
                    CloseCode.INTERNAL_ERROR, "The database is temporarily unavailable. Reconnect and resume."
                )
            )
        except Exception as error:
            if (failure := explained(error, where="websocket")) is not None:
                return self._end(CloseConnection(CloseCode.INTERNAL_ERROR, failure.message))
            log.error("internal_error", where="websocket", exc_info=error)
            self._end(CloseConnection(CloseCode.INTERNAL_ERROR, "Internal server error. Reconnect and resume."))

    def _end(self, ending: CloseConnection) -> None:
        if not self._ended.done():
            self._ended.set_result(ending)

    async def _watch_authority(self) -> None:
        while True:
            await self.authority.wait(self.services.connection_limits.pace.check)
            await self.check_membership()


async def close(websocket: WebSocket, ending: CloseConnection) -> None:
    """Close with a reason, if the client is still connected."""
    with suppress(WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await websocket.close(ending.code, ending.short_reason)


MAX_WATCHED: Final = 32

Opening = Callable[[Session], Awaitable[None]]


class SessionSubscriptions:
    """The sessions that one connection subscribes to, with one task each."""

    def __init__(
        self,
        connection: WebSocketConnection,
        encode: Callable[[SessionId, Event | Delta], dict[str, Any] | None],
        send_error: Callable[[ToolcribError, SessionId], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._encode = encode
        self._send_error = send_error
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}

    def __contains__(self, session_id: SessionId) -> bool:
        task = self._tasks.get(session_id)
        return task is not None and not task.done()

    async def watch(self, session_id: SessionId, *, after: int, opening: Opening | None = None) -> None:
        """Subscribe to a session; an existing subscription starts again. ``opening`` is sent first.

        Returns once the subscription is active, so that no event of a following request is missed.
        """
        await self.unsubscribe(session_id)
        if len(self._tasks) >= MAX_WATCHED:
            raise Conflict(
                f"This connection is subscribed to {MAX_WATCHED} sessions, the limit. Unsubscribe from one first."
            )
        begun = asyncio.get_running_loop().create_future()
        self._tasks[session_id] = self._connection.start(self._follow(session_id, after, opening, begun))
        await begun

    async def unsubscribe(self, session_id: SessionId) -> None:
        """Unsubscribe from a session."""
        if (task := self._tasks.pop(session_id, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(
        self, session_id: SessionId, after: int, opening: Opening | None, begun: asyncio.Future[None]
    ) -> None:
        connection = self._connection
        try:
            live = connection.services.live
            async with live.subscribe(connection.tenant, session_id, after=after) as subscription:
                if opening is not None:
                    await opening(subscription.session)
                begun.set_result(None)
                async for item in subscription:
                    if (message := self._encode(session_id, item)) is not None:
                        await connection.send(message)
        except (NotFound, BadArguments) as error:
            self._tasks.pop(session_id, None)
            if begun.done():
                await self._send_error(error, session_id)
            else:
                begun.set_exception(error)
        finally:
            # Any other error closes the connection: the caller that waits for the subscription is cancelled.
            begun.cancel()
