"""Fires schedules when the durable queue says that they are due, or when a person asks for it."""

import asyncio

import structlog

from toolcrib.core.ids import ScheduleId, WorkspaceId
from toolcrib.core.runs import Run
from toolcrib.events.event_bus import EventPublisher, WakeSignal
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.schedules import ScheduleStore

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 0.5


class ScheduleService:
    """Fires schedules and starts their runs. ``rows`` creates, changes and lists them."""

    def __init__(self, rows: ScheduleStore, wake_signal: WakeSignal, live: EventPublisher) -> None:
        self.rows = rows
        self._wake_signal = wake_signal
        self._live = live

    async def run_now(self, tenant: Tenant, schedule_id: ScheduleId) -> Run:
        """Send a schedule's message now. Its next firing stays as it is."""
        run = await self.rows.fire_now(tenant, schedule_id)
        self._notify(run)
        return run

    async def fire(self, workspace_id: WorkspaceId, schedule_id: ScheduleId, due: int) -> None:
        """Fire a schedule that is due at this time. Returns once it has fired, or has nothing to do."""
        is_broken = False
        while True:
            try:
                if is_broken:
                    await self.rows.fail(workspace_id, schedule_id, due, "An error of the server; its log has it.")
                elif run := await self.rows.fire_due(workspace_id, schedule_id, due):
                    self._notify(run)
            except OperationalError as error:
                # The queue starts this once: who returns from here without a next firing ends the schedule.
                log.warning("schedules.database_error", schedule_id=str(schedule_id), error=str(error))
            except Exception:
                log.exception("schedules.firing_failed", schedule_id=str(schedule_id))
                is_broken = True
            else:
                return
            await asyncio.sleep(_RETRY_SECONDS)

    def _notify(self, run: Run) -> None:
        self._live.notify(run.workspace_id, run.session_id)
        self._wake_signal.notify(run.workspace_id, [run.id])
