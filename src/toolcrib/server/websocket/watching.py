"""The sessions that one connection watches: a task for each, which tells what its subscription gives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from toolcrib.domain.errors import BadArguments, Conflict, NotFound, ToolcribError
from toolcrib.domain.events import Delta, Event
from toolcrib.domain.ids import SessionId
from toolcrib.server.websocket.connection import Connection
from toolcrib.storage.sessions import Session

MAX_WATCHED: Final = 32

Opening = Callable[[Session], Awaitable[None]]


class Watched:
    """What a connection watches."""

    def __init__(
        self,
        connection: Connection,
        tell: Callable[[SessionId, Event | Delta], dict[str, Any] | None],
        tell_error: Callable[[ToolcribError, SessionId], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._tell = tell
        self._tell_error = tell_error
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}

    def __contains__(self, session_id: SessionId) -> bool:
        task = self._tasks.get(session_id)
        return task is not None and not task.done()

    async def watch(self, session_id: SessionId, *, after: int, opening: Opening | None = None) -> None:
        """Watches from there on; whoever watches it already starts anew. ``opening`` is told first.

        Returns when it is watched, so that nothing of what is asked for next is missed or has to wait.
        """
        await self.leave(session_id)
        if len(self._tasks) >= MAX_WATCHED:
            raise Conflict(f"This connection watches {MAX_WATCHED} sessions already. Leave one first (chat:leave).")
        begun = asyncio.get_running_loop().create_future()
        self._tasks[session_id] = self._connection.start(self._follow(session_id, after, opening, begun))
        await begun

    async def leave(self, session_id: SessionId) -> None:
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
                    if (message := self._tell(session_id, item)) is not None:
                        await connection.send(message)
        except (NotFound, BadArguments) as error:
            self._tasks.pop(session_id, None)
            if begun.done():
                await self._tell_error(error, session_id)
            else:
                begun.set_exception(error)
        finally:
            # Whatever else it was ends the connection: who waits for this goes no further.
            begun.cancel()
