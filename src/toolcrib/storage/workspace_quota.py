"""Limits the files and bytes of a workspace. Usage is measured at intervals, not counted for each change.

Between two measurements this process adds its own changes; those of other processes show at the next measurement. So a
workspace may exceed its quota a little, but no write waits for a count of a million rows.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import TooLarge
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Database, Tenant

FILES: Final = 2_000_000
BYTES: Final = 100_000_000_000
_MEASURED_SECONDS: Final = 60.0
_KEPT: Final = 10_000


@dataclass(slots=True)
class _MeasuredUse:
    """The usage of a workspace when it was measured, and what was added since."""

    files: int
    bytes: int
    at: float = field(default_factory=time.monotonic)

    @property
    def is_fresh(self) -> bool:
        """Whether the measurement is recent enough."""
        return time.monotonic() - self.at < _MEASURED_SECONDS


class WorkspaceQuota:
    """The quotas of all workspaces, and their known usage."""

    def __init__(self, database: Database, *, files: int = FILES, bytes: int = BYTES) -> None:
        self._database = database
        self._most_files = files
        self._most_bytes = bytes
        self._held: OrderedDict[WorkspaceId, _MeasuredUse] = OrderedDict()

    async def require(self, tenant: Tenant, change_set: ChangeSet) -> None:
        """Check that a change fits. A change that adds nothing always fits.

        Raises:
            TooLarge: It would exceed the quota.
        """
        files, added = _added_by(change_set)
        if files == 0 and added == 0:
            return
        held = await self._of(tenant)
        if files and held.files + files > self._most_files:
            raise _full(f"{self._most_files:,} files", "TOOLCRIB_MAX_WORKSPACE_FILES")
        if added and held.bytes + added > self._most_bytes:
            raise _full(f"{self._most_bytes:,} bytes, earlier versions included", "TOOLCRIB_MAX_WORKSPACE_BYTES")

    def took(self, tenant: Tenant, change_set: ChangeSet) -> None:
        """Add a committed change to the usage."""
        if held := self._held.get(tenant.workspace_id):
            files, added = _added_by(change_set)
            held.files += files
            held.bytes += added

    async def _of(self, tenant: Tenant) -> _MeasuredUse:
        held = self._held.get(tenant.workspace_id)
        if held is None or not held.is_fresh:
            held = self._held[tenant.workspace_id] = await self._measured(tenant)
            if len(self._held) > _KEPT:
                self._held.popitem(last=False)
        self._held.move_to_end(tenant.workspace_id)
        return held

    async def _measured(self, tenant: Tenant) -> _MeasuredUse:
        async with self._database.transaction(tenant, WorkspaceRole.VIEWER) as connection:
            cursor = await connection.execute(
                """
                select (select count(*) from toolcrib.files where workspace_id = %(workspace)s and not deleted),
                       (select coalesce(sum(size), 0)::bigint from toolcrib.blobs where workspace_id = %(workspace)s)
                """,
                {"workspace": tenant.workspace_id},
            )
            row = await cursor.fetchone()
        assert row is not None
        return _MeasuredUse(*row)


def _added_by(change_set: ChangeSet) -> tuple[int, int]:
    """Return the number of new files and the bytes of contents. Contents that are stored already are counted again."""
    files = sum(change.before is None and change.after is not None for change in change_set.changes)
    return files, sum(len(change.body) for change in change_set.changes if change.body is not None)


def _full(most: str, setting: str) -> TooLarge:
    return TooLarge(
        f"This workspace is full: the limit is {most}. Nothing was changed. Delete files, or ask the "
        f"operator to raise {setting}."
    )
