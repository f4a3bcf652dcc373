"""Limits on how much a person or a workspace may create, checked when something is created; and usage.

The files and bytes of a workspace are measured at intervals, not counted for each change. Between two measurements this
process adds its own changes; those of other processes show at the next measurement. So a workspace may exceed its quota
a little, but no write waits for a count of a million rows.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import TooLarge
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.storage.database import Connection, Database, Tenant

API_KEYS: Final = 200
WORKSPACES: Final = 1_000
SESSIONS: Final = 100_000
OPEN_APPROVALS: Final = 1_000
INVITATIONS: Final = 100
SCHEDULES: Final = 100
FILES: Final = 2_000_000
BYTES: Final = 100_000_000_000
_MEASURED_SECONDS: Final = 60.0
_KEPT: Final = 10_000
# Counting a workspace of millions of files must not hold a connection for minutes.
_COUNT_SECONDS = 5


async def one_at_a_time(connection: Connection, user_id: UserId | None) -> None:
    """Serialize the transactions of one person that check a limit, so that each counts the one before."""
    await connection.execute("select from toolcrib.users where id = %s for no key update", (user_id,))


async def has_all(connection: Connection, rows: LiteralString, parameters: tuple[Any, ...], *, most: int) -> bool:
    """Return whether the query has ``most`` rows or more; counts no further."""
    row = await connection.fetch_row(
        f"select count(*) from ({rows} limit %s) counted",  # noqa: S608 - constants of the callers
        (*parameters, most),
    )
    return row is not None and row[0] >= most


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
        self._require_bytes(held, added)

    async def take(self, tenant: Tenant, size: int) -> None:
        """Check that an attachment of a message fits, and add it to the usage. Fails like ``require``."""
        held = await self._of(tenant)
        self._require_bytes(held, size)
        held.bytes += size

    def took(self, tenant: Tenant, change_set: ChangeSet) -> None:
        """Add a committed change to the usage."""
        if held := self._held.get(tenant.workspace_id):
            files, added = _added_by(change_set)
            held.files += files
            held.bytes += added

    def _require_bytes(self, held: _MeasuredUse, added: int) -> None:
        if added and held.bytes + added > self._most_bytes:
            most = f"{self._most_bytes:,} bytes, earlier versions and attachments included"
            raise _full(most, "TOOLCRIB_MAX_WORKSPACE_BYTES")

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
            row = await connection.returned_row(
                """
                select (select count(*) from toolcrib.files where workspace_id = %(workspace)s and not deleted),
                       (select coalesce(sum(size), 0)::bigint from toolcrib.blobs where workspace_id = %(workspace)s)
                       + (select coalesce(sum(pg_column_size(result)), 0)::bigint
                          from toolcrib.tool_calls where workspace_id = %(workspace)s and tool = 'attach')
                """,
                {"workspace": tenant.workspace_id},
            )
        return _MeasuredUse(*row)


def _added_by(change_set: ChangeSet) -> tuple[int, int]:
    """Return the number of new files and the bytes of contents. Contents that are stored already are counted again."""
    files = sum(change.before is None and change.after is not None for change in change_set.changes)
    return files, sum(len(change.body) for change in change_set.changes if change.body is not None)


def _full(most: str, setting: str) -> TooLarge:
    return TooLarge(
        f"This workspace is full: the limit is {most}. Nothing was changed. Delete files or sessions, or ask the "
        f"operator to raise {setting}."
    )


@dataclass(frozen=True, slots=True)
class WorkspaceUsage:
    """The storage of a workspace. ``stored_bytes`` is after compression; ``trash_bytes`` can be restored."""

    files: int
    deleted_files: int
    versions: int
    contents: int
    content_bytes: int
    stored_bytes: int
    trash_entries: int
    trash_bytes: int
    sessions: int
    calls: int
    pending: int


class UsageStore:
    """Counts a workspace's rows, on request of a person; too slow for calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, tenant: Tenant) -> WorkspaceUsage:
        """Return the usage of the workspace."""
        async with self._database.transaction(tenant) as connection:
            await connection.execute("select set_config('statement_timeout', %s, true)", (f"{_COUNT_SECONDS}s",))
            row = await connection.returned_row(
                """
                select f.live, f.gone, v.count, b.count, b.content, b.stored, t.count, t.bytes, s.count, c.count,
                       p.count
                from (select count(*) filter (where not deleted) as live, count(*) filter (where deleted) as gone
                      from toolcrib.files where workspace_id = %(workspace)s) f,
                     (select count(*) from toolcrib.versions where workspace_id = %(workspace)s) v,
                     (select count(*), coalesce(sum(size), 0)::bigint as content,
                             coalesce(sum(length(body)), 0)::bigint as stored
                      from toolcrib.blobs where workspace_id = %(workspace)s) b,
                     (select count(*), coalesce(sum(size), 0)::bigint as bytes
                      from toolcrib.trash
                      where workspace_id = %(workspace)s and expired_at is null and expires_at > now()) t,
                     (select count(*) from toolcrib.sessions where workspace_id = %(workspace)s) s,
                     (select count(*) from toolcrib.tool_calls where workspace_id = %(workspace)s) c,
                     (select count(*) from toolcrib.pending_applies where workspace_id = %(workspace)s) p
                """,
                {"workspace": tenant.workspace_id},
            )
        return WorkspaceUsage(*row)
