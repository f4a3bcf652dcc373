"""Keeps model requests of all processes within the limits of their credentials."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from toolcrib.core.ids import ProcessId
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import Run
from toolcrib.events.event_bus import WakeSignal
from toolcrib.storage.database import OperationalError
from toolcrib.storage.model_slots import ModelSlot, ModelSlotStore, ReadyRuns

log = structlog.get_logger(__name__)

# How soon room that a minute's end leaves is used. One statement of the process, however many runs wait.
_SWEEP_SECONDS = 0.5

# Waits so many seconds before another attempt of a request.
Pause = Callable[[float], Awaitable[None]]


class NoModelSlot(Exception):
    """The credential has no room for another request. The run has a place among those that wait."""


class ModelSlots:
    """One per process. A credential without limits costs nothing."""

    def __init__(self, rows: ModelSlotStore, wake_signal: WakeSignal, process_id: ProcessId, *, lease: float) -> None:
        self._rows = rows
        self._wake_signal = wake_signal
        self._process_id = process_id
        self._lease = lease
        self._has_waiting = asyncio.Event()
        # Slots that could not be released, or that may have been acquired: `run` releases them.
        self._lost: set[ModelSlot] = set()
        self._lost_lock = asyncio.Lock()

    @asynccontextmanager
    async def hold(self, run: Run, provider: str, credentials: ProviderCredentials) -> AsyncIterator[Pause]:
        """Hold a slot for one request. Provides the pause before another attempt of it.

        Raises:
            NoModelSlot: There is no room.
        """
        if not credentials.limits:
            yield asyncio.sleep
            return
        slot = ModelSlot(run.workspace_id, run.id, run.user_id, provider)
        if slot in self._lost:
            await self._release_lost()
        try:
            has_room = await self._rows.acquire(slot, self._process_id, credentials.limits)
        except BaseException:
            # It is unknown whether the slot was given.
            self._lost.add(slot)
            raise
        if not has_room:
            self._has_waiting.set()
            raise NoModelSlot
        try:
            yield self._pause(slot)
        finally:
            await asyncio.shield(self._release(slot))

    async def run(self) -> None:
        """Until cancelled, free what dead processes hold, and give room to those that wait."""
        while True:
            wait = self._lease / 4
            try:
                await self._release_lost()
                ready, others_wait = await self._rows.sweep(self._process_id, lease=self._lease)
                self._start(ready)
                wait = _SWEEP_SECONDS if others_wait else wait
            except OperationalError as error:
                log.warning("model_slots.sweep_failed", error=str(error))
            except Exception:
                # No other task of this process gives room to those that wait, so no error may end this loop.
                log.exception("model_slots.sweep_failed")
            if wait == _SWEEP_SECONDS:
                await asyncio.sleep(wait)
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._has_waiting.wait()
            except TimeoutError:
                pass
            self._has_waiting.clear()

    def _pause(self, slot: ModelSlot) -> Pause:
        async def pause(seconds: float) -> None:
            await asyncio.sleep(seconds)
            if wait := await self._rows.restart(slot):
                await pause(wait)

        return pause

    async def _release(self, slot: ModelSlot) -> None:
        try:
            self._start(await self._rows.release(slot, self._process_id))
        except OperationalError as error:
            log.warning("model_slots.release_failed", run_id=str(slot.run_id), error=str(error))
            self._lost.add(slot)
            self._has_waiting.set()

    async def _release_lost(self) -> None:
        async with self._lost_lock:
            for slot in list(self._lost):
                self._start(await self._rows.release(slot, self._process_id))
                self._lost.discard(slot)

    def _start(self, ready: ReadyRuns) -> None:
        for workspace_id, run_id in ready:
            self._wake_signal.notify(workspace_id, [run_id])
