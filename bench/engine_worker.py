"""A worker process of `bench engine`: its runs only note that they started, and end.

usage: python -m bench.engine_worker      (settings come from the environment)

Commands come as lines on stdin, each is answered by a line of JSON. `ready` answers once the queue is open. `notes`
returns when runs started, and when cancelled ones were stopped. `submit WORKSPACE USER SESSION COUNT` submits messages
one after the other, each when the one before has started, and returns when they were committed.
"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import UUID

import structlog

from toolcrib.core.ids import SessionId, UserId, WorkspaceId
from toolcrib.core.runs import Run, RunEnding
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_service import RunService
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.runs import run_service
from toolcrib.wiring.tool_runtime import ToolRuntime, assemble

# The message of a run that goes on until it is cancelled.
HOLD = "hold"
_START_SECONDS = 2.0


class Notes:
    """Executes runs and notes the time of each start, and of each cancellation."""

    def __init__(self, engine: ToolRuntime) -> None:
        self._engine = engine
        self.starts: dict[str, float] = {}
        self.cancels: dict[str, float] = {}
        self._is_started: dict[str, asyncio.Event] = {}

    async def execute(self, run: Run) -> None:
        run_id = str(run.id)
        self.starts.setdefault(run_id, time.time())
        self._is_started.setdefault(run_id, asyncio.Event()).set()
        if run.prompt == HOLD and run.cancelled_by is None:
            try:
                await asyncio.Future()
            except asyncio.CancelledError:
                self.cancels[run_id] = time.time()
                raise
        ending = RunEnding.DONE if run.cancelled_by is None else RunEnding.CANCELLED
        started = await self._engine.stores.runs.end(run, ending)
        self._engine.wake_signal.notify(run.workspace_id, started)

    async def started(self, run: Run) -> None:
        """Wait for the start of a run. On a busy machine, the other process may be the one that starts it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._is_started.setdefault(str(run.id), asyncio.Event()).wait()


async def main() -> None:
    # Standard output is for the answers.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    settings = Settings()
    async with AsyncExitStack() as opened:
        heartbeat = opened.enter_context(
            ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=settings.heartbeat_lease_seconds)
        )
        database = await opened.enter_async_context(Database.open(settings.database_url, settings.system_url))
        engine = assemble(settings, database, process_id=heartbeat.id)
        notes = Notes(engine)
        service = await opened.enter_async_context(run_service(engine, notes.execute, heartbeat))
        while command := (await asyncio.to_thread(sys.stdin.readline)).split():
            print(json.dumps(await _answer(command, notes, service)), flush=True)


async def _answer(command: list[str], notes: Notes, service: RunService) -> Any:
    match command:
        case ["notes"]:
            return [notes.starts, notes.cancels]
        case ["submit", workspace, user, session, count]:
            tenant = Tenant(WorkspaceId(UUID(workspace)), UserId(UUID(user)))
            committed = {}
            for _ in range(int(count)):
                run = await service.submit(tenant, SessionId(UUID(session)), "Go.", via="bench")
                committed[str(run.id)] = time.time()
                await notes.started(run)
            return committed
        case _:
            return "ready"


if __name__ == "__main__":
    asyncio.run(main())
