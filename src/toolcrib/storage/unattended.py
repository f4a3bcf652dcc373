"""What no process attends to although it should, put where a process finds it. With the system role."""

from dataclasses import dataclass

from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Store


@dataclass(frozen=True, slots=True)
class Requeued:
    """How much was put into the queue again."""

    approved_calls: int
    schedules: int


class UnattendedStore(Store):
    """Queries of the periodic job. ``unattended.sql`` says what counts."""

    async def requeue(self, *, seconds: float) -> Requeued:
        """Put approved calls and schedules into the queue that have been in no process and no queue for so long."""
        async with self._database.as_system() as connection:
            requeued = await connection.fetch_one(
                Requeued, "select approved_calls, schedules from toolcrib.requeue_unattended(%s)", (seconds,)
            )
        assert requeued is not None
        return requeued

    async def workspaces_with_queued_runs(self, *, seconds: float, most: int) -> list[WorkspaceId]:
        """Return workspaces with a run that is queued for so long and could start, with less than ``most`` at work."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select toolcrib.workspaces_with_unattended_queue(%s, %s)", (seconds, most)
            )
            return [WorkspaceId(id_) for (id_,) in await cursor.fetchall()]
