"""One open WebSocket: sends in order and with a limit on patience, ends for one reason. Knows no protocol."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from pydantic_core import to_json

from toolcrib.domain.alarm import Alarm
from toolcrib.domain.errors import ToolcribError
from toolcrib.server.auth import tenant_for
from toolcrib.server.authority import Authority
from toolcrib.server.services import Services
from toolcrib.server.websocket.endings import Code, Ending, ending_of, too_slow
from toolcrib.storage.database import Tenant
from toolcrib.storage.health import OperationalError

_CLOSE_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class Gone(Exception):
    """The client has left."""


class Connection:
    """A client that was let in, and the tasks that work for it while it stays."""

    def __init__(self, websocket: WebSocket, services: Services, authority: Authority, workspace_id: UUID) -> None:
        self.services = services
        self.workspace_id = workspace_id
        self.authority = authority
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._patience = Alarm()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    @property
    def tenant(self) -> Tenant:
        return tenant_for(self.authority.principal, self.workspace_id)

    async def send(self, message: dict[str, Any]) -> None:
        """Waits until the client takes it, but not for ever: then it is let go, and may come back."""
        text = to_json(message).decode()
        async with self._sending:
            try:
                with self._patience.after(self.services.doors.pace.stall):
                    await self._websocket.send_text(text)
            except TimeoutError:
                raise too_slow() from None
            except (WebSocketDisconnect, RuntimeError, OSError):
                # It was closed while we waited for our turn.
                raise Gone from None

    async def receive(self) -> dict[str, Any]:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise Gone
        return dict(message)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Works for this connection beside it; what goes wrong ends it."""
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def check_membership(self) -> None:
        """Asked again for every message; Forbidden or Unauthenticated once it has ended."""
        await self.authority.check()
        await self.services.workspaces.get(self.tenant)

    async def serve(self, reading: Coroutine[Any, Any, None]) -> None:
        """Reads until there is a reason to end, and ends for it."""
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
        except Ending as ending:
            self._end(ending)
        except Gone:
            self._end(Ending(Code.NORMAL, ""))
        except ToolcribError as error:
            self._end(ending_of(error) or Ending(Code.OUR_FAULT, error.message))
        except OperationalError as error:
            log.warning("database_unavailable", error=str(error))
            self._end(Ending(Code.OUR_FAULT, "The database does not answer just now. Connect again and resume."))
        except Exception as error:
            log.error("unforeseen_error", where="websocket", exc_info=error)
            self._end(Ending(Code.OUR_FAULT, "Something went wrong on our side. Connect again and resume."))

    def _end(self, ending: Ending) -> None:
        if not self._ended.done():
            self._ended.set_result(ending)

    async def _watch_authority(self) -> None:
        while True:
            seconds = max(0.0, min(self.services.doors.pace.check, self.authority.seconds_left))
            await asyncio.sleep(seconds)
            await self.check_membership()


async def close(websocket: WebSocket, ending: Ending) -> None:
    """Says why, if the client still listens."""
    with suppress(WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await websocket.close(ending.code, ending.short_reason)
