"""Slots for model requests with a limited credential, shared by all processes. With the system role."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from toolcrib.core.ids import ProcessId, RunId, UserId, WorkspaceId
from toolcrib.core.provider_credentials import RequestLimits
from toolcrib.storage.database import Store

ReadyRuns = list[tuple[WorkspaceId, RunId]]


@dataclass(frozen=True, slots=True)
class ModelSlot:
    """A run's place among the requests with one credential: that of a user for a provider."""

    workspace_id: WorkspaceId
    run_id: RunId
    user_id: UserId
    provider: str

    @property
    def parameters(self) -> tuple[UUID, UUID, UUID, str]:
        """The four values, in this order."""
        return self.workspace_id, self.run_id, self.user_id, self.provider


class ModelSlotStore(Store):
    """Queries on slots."""

    async def acquire(self, slot: ModelSlot, process_id: ProcessId, limits: RequestLimits) -> bool:
        """Return whether a request may start now. If not, its run has a place among those that wait."""
        async with self._database.as_system() as connection:
            row = await connection.returned_row(
                "select toolcrib.acquire_model_slot(%s, %s, %s, %s, %s, %s, %s)",
                (*slot.parameters, process_id, limits.at_once, limits.per_minute),
            )
        return bool(row[0])

    async def restart(self, slot: ModelSlot) -> float:
        """Start another attempt of a request that has a slot. Returns in how many seconds it may start. 0: now."""
        async with self._database.as_system() as connection:
            row = await connection.returned_row(
                "select toolcrib.restart_model_request(%s, %s, %s)", (slot.user_id, slot.provider, slot.run_id)
            )
        return float(row[0])

    async def release(self, slot: ModelSlot, process_id: ProcessId) -> ReadyRuns:
        """End a request. Returns the runs that go on instead."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select workspace_id, run_id from toolcrib.release_model_slot(%s, %s, %s, %s, %s)",
                (*slot.parameters, process_id),
            )
            return _ready(await cursor.fetchall())

    async def sweep(self, process_id: ProcessId, *, lease: float) -> tuple[ReadyRuns, bool]:
        """Free the slots of dead processes, and give room to those that wait.

        Returns:
            The runs that go on, and whether others still wait.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select workspace_id, run_id from toolcrib.sweep_model_slots(%s, %s)", (process_id, lease)
            )
            ready = _ready(await cursor.fetchall())
            row = await connection.returned_row(
                "select exists (select from toolcrib.model_slots where granted_at is null)"
            )
        return ready, bool(row[0])


def _ready(rows: Sequence[tuple[Any, ...]]) -> ReadyRuns:
    return [(WorkspaceId(workspace_id), RunId(run_id)) for workspace_id, run_id in rows]
