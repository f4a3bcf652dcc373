"""The audit log: one record per call, insert-only, and the seals that close it in batches."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.multirange import Int8Multirange

from toolcrib.core.audit import AuditRecord
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.json_text import json_text
from toolcrib.storage.database import Connection, Database, Tenant

# The workspace and user id in records about the server as a whole.
SERVER = UUID(int=0)

# The rule of records that database triggers write about changes of permissions. The gate has no rule of this name.
ADMIN_RULE = "admin"

# How many records one page scans: a filter without matches must not read a million records.
_SCAN_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class StoredAuditRecord:
    """A record as it is read back. A seal is computed over its fields in this order."""

    position: int
    id: UUID
    workspace_id: UUID
    created_at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str
    tool: str
    decision: str
    rule: str
    decided_by: UUID | None
    arguments: Any
    outcome: str
    error_code: str | None
    files: Any
    hosts: Any
    isolation: str | None
    duration_us: int

    @property
    def kind(self) -> str:
        """``admin`` for a change of permissions, written by triggers; ``call`` for a tool call."""
        return "admin" if self.rule == ADMIN_RULE else "call"


@dataclass(frozen=True, slots=True)
class AuditSeal:
    """A seal: the positions that it covers, and the gaps that a late commit may still fill."""

    number: int
    positions: tuple[range, ...]
    gaps: tuple[range, ...]
    last_position: int
    record_count: int
    mac: bytes


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filters for records; None means any. ``since`` is inclusive, ``until`` is exclusive."""

    user_id: UUID | None = None
    agent_id: UUID | None = None
    session_id: UUID | None = None
    tool: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Records, newest first, and the cursor of the next page; None at the beginning of the log."""

    records: list[StoredAuditRecord]
    next: int | None


class AuditStore:
    """Writes audit records and reads those of one workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Write records of any workspaces in one statement, and so in one commit."""
        async with self._database.connection() as connection:
            rows = json_text([record.row for record in records])
            await connection.execute("select toolcrib.append_audit_records(%s)", (rows,), prepare=True)

    @staticmethod
    async def append_within(connection: Connection, record: AuditRecord) -> None:
        """Write a record in the transaction of the change that it is about."""
        await connection.execute("select toolcrib.append_audit_records(%s)", (json_text([record.row]),))

    async def page(
        self,
        tenant: Tenant,
        *,
        before: int | None,
        limit: int,
        wanted: AuditFilter | None = None,
        scan_limit: int = _SCAN_LIMIT,
    ) -> AuditPage:
        """Return a page of a workspace's records, newest first. Owners only.

        It scans at most ``scan_limit`` records, however few match: a page may be short without being the last.
        """
        async with self._database.transaction(tenant, WorkspaceRole.OWNER) as connection:
            cursor = await connection.execute(
                f"""
                with looked_at as not materialized (
                    {_SELECT}
                    where workspace_id = %(workspace)s and (%(before)s::bigint is null or position < %(before)s)
                    order by position desc limit %(look)s
                )
                select * from looked_at
                where (%(user)s::uuid is null or user_id = %(user)s)
                  and (%(agent)s::uuid is null or agent_id = %(agent)s)
                  and (%(session)s::uuid is null or session_id = %(session)s)
                  and (%(tool)s::text is null or tool = %(tool)s)
                  and (%(outcome)s::text is null or outcome = %(outcome)s)
                  and (%(since)s::timestamptz is null or created_at >= %(since)s)
                  and (%(until)s::timestamptz is null or created_at < %(until)s)
                  and (%(kind)s::text is null or (rule = 'admin') = (%(kind)s = 'admin'))
                order by position desc limit %(limit)s
                """,  # noqa: S608 - a constant of this module
                {
                    "workspace": tenant.workspace_id,
                    "before": before,
                    "look": scan_limit,
                    "limit": limit,
                    **_parameters(wanted or AuditFilter()),
                },
            )
            records = [StoredAuditRecord(*row) for row in await cursor.fetchall()]
            if len(records) == limit:
                return AuditPage(records, records[-1].position)
            return AuditPage(records, await _scanned_to(connection, tenant, before=before, scan_limit=scan_limit))

    async def require_reader(self, tenant: Tenant) -> None:
        """Raise Forbidden if the user may not read the audit log."""
        async with self._database.transaction(tenant, WorkspaceRole.OWNER):
            return

    async def count_unsealed(self, tenant: Tenant, *, after: int) -> int:
        """Count a workspace's records after the newest seal, up to the limit of a page's scan."""
        async with self._database.transaction(tenant, WorkspaceRole.OWNER) as connection:
            row = await connection.fetch_row(
                """
                select count(*) from (
                    select from toolcrib.audit_records where workspace_id = %s and position > %s limit %s
                ) new
                """,
                (tenant.workspace_id, after, _SCAN_LIMIT),
            )
            return int(row[0]) if row else 0


class AuditSealStore:
    """Queries of the sealer and the verifier, with the system role: the records of all workspaces, and the chain."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[Connection]:
        """Lock the chain: one sealer at a time on all nodes, because the chain has one end."""
        async with self._database.as_system() as connection, connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(%s)", (_SEALER_LOCK,))
            yield connection

    async def last(self, connection: Connection) -> AuditSeal | None:
        """Return the last seal."""
        row = await connection.fetch_row(_SEALS + "order by number desc limit 1")
        return _seal(row) if row else None

    async def old_gaps(self, connection: Connection) -> tuple[range, ...]:
        """Return the gaps of an hour ago: no transaction lives that long, so they stay empty."""
        row = await connection.fetch_row(
            """
            select gaps from toolcrib.audit_seals where sealed_at < now() - interval '1 hour'
            order by number desc limit 1
            """,
        )
        return _ranges(row[0]) if row else ()

    async def unsealed(
        self, connection: Connection, *, after: int, gaps: tuple[range, ...], limit: int
    ) -> list[StoredAuditRecord]:
        """Return records after the last seal, and those that have since filled a gap below it."""
        cursor = await connection.execute(
            _SELECT
            + """
            where position > %(after)s
               or (position >= lower(%(gaps)s::int8multirange) and position <= %(after)s
                   and %(gaps)s::int8multirange @> position)
            order by position limit %(limit)s
            """,
            {"after": after, "gaps": _multirange(gaps), "limit": limit},
        )
        return [StoredAuditRecord(*row) for row in await cursor.fetchall()]

    async def add(self, connection: Connection, seal: AuditSeal) -> None:
        """Append a seal."""
        await connection.execute(
            """
            insert into toolcrib.audit_seals (number, positions, gaps, last_position, record_count, mac)
            values (%s, %s, %s, %s, %s, %s)
            """,
            (
                seal.number,
                _multirange(seal.positions),
                _multirange(seal.gaps),
                seal.last_position,
                seal.record_count,
                seal.mac,
            ),
        )

    async def seals_after(self, number: int, *, limit: int) -> list[AuditSeal]:
        """Return the seals after a number."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(_SEALS + "where number > %s order by number limit %s", (number, limit))
            return [_seal(row) for row in await cursor.fetchall()]

    async def records_in_range(self, positions: tuple[range, ...]) -> list[StoredAuditRecord]:
        """Return the records at these positions."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                _SELECT
                + """
                where position >= lower(%(positions)s::int8multirange)
                  and position < upper(%(positions)s::int8multirange)
                  and %(positions)s::int8multirange @> position
                order by position
                """,
                {"positions": _multirange(positions)},
            )
            return [StoredAuditRecord(*row) for row in await cursor.fetchall()]

    async def unsealed_below(self) -> list[int]:
        """Return positions that no seal covers: not sealed yet, or inserted behind the chain."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(_OUTSIDE + "order by a.position")
            return [position for (position,) in await cursor.fetchall()]

    async def outside_seals_between(self, above: int | None, up_to: int) -> list[int]:
        """Return positions that no seal covers within a range; without ``above``, from the beginning of the log."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                _OUTSIDE
                + "and a.position > coalesce(%s, -9223372036854775808) and a.position <= %s order by a.position",
                (above, up_to),
            )
            return [position for (position,) in await cursor.fetchall()]

    async def missing(self) -> int:
        """Count the sealed records that are missing, without reading any."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(_MISSING)
            return int(row[0]) if row else 0

    async def seal(self, number: int) -> AuditSeal | None:
        """Return one seal."""
        async with self._database.as_system() as connection:
            return await self.numbered(connection, number)

    async def numbered(self, connection: Connection, number: int) -> AuditSeal | None:
        """Return one seal, within a transaction."""
        row = await connection.fetch_row(_SEALS + "where number = %s", (number,))
        return _seal(row) if row else None

    async def server_records(self, tool: str) -> list[tuple[datetime, Any]]:
        """Return the time and the input of each operator action of this kind on the server as a whole."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select created_at, arguments from toolcrib.audit_records
                where workspace_id = %s and tool = %s order by position
                """,
                (SERVER, tool),
            )
            return [(at, given) for at, given in await cursor.fetchall()]

    async def newest(self) -> AuditSeal | None:
        """Return the last seal."""
        async with self._database.as_system() as connection:
            return await self.last(connection)


def _parameters(wanted: AuditFilter) -> dict[str, Any]:
    return {
        "user": wanted.user_id,
        "agent": wanted.agent_id,
        "session": wanted.session_id,
        "tool": wanted.tool,
        "outcome": wanted.outcome,
        "since": wanted.since,
        "until": wanted.until,
        "kind": wanted.kind,
    }


async def _scanned_to(connection: Connection, tenant: Tenant, *, before: int | None, scan_limit: int) -> int | None:
    """Return the last position that a page scanned; None if there is nothing before it."""
    cursor = await connection.execute(
        """
        select position from toolcrib.audit_records
        where workspace_id = %(workspace)s and (%(before)s::bigint is null or position < %(before)s)
        order by position desc offset %(most)s limit 2
        """,
        {"workspace": tenant.workspace_id, "before": before, "most": scan_limit - 1},
    )
    rows = await cursor.fetchall()
    return rows[0][0] if len(rows) == 2 else None


_SEALER_LOCK = 0x746F6F6C7365616C

# All covered positions as one multirange, computed once: a lookup per record took most of a verification's time.
_COVERED = "(select range_agg(part) from toolcrib.audit_seals s, unnest(s.positions) part)"

_OUTSIDE = f"""
    select a.position from toolcrib.audit_records a
    where not coalesce({_COVERED} @> a.position, false)
"""  # noqa: S608 - a constant of this module

_MISSING = f"""
    select coalesce(sum(upper(part) - lower(part)), 0) - (
        select count(*) from toolcrib.audit_records a where {_COVERED} @> a.position
    )
    from toolcrib.audit_seals s, unnest(s.positions) part
"""  # noqa: S608 - a constant of this module

_SEALS = "select number, positions, gaps, last_position, record_count, mac from toolcrib.audit_seals "

_SELECT = """
    select position, id, workspace_id, created_at, user_id, agent_id, session_id, run_id, call_id, via, tool, decision,
           rule, decided_by, arguments, outcome, error_code, files, hosts, isolation, duration_us
    from toolcrib.audit_records
"""


def _seal(row: tuple[Any, ...]) -> AuditSeal:
    number, positions, gaps, last_position, record_count, mac = row
    return AuditSeal(number, _ranges(positions), _ranges(gaps), last_position, record_count, bytes(mac))


def _ranges(multirange: Int8Multirange) -> tuple[range, ...]:
    return tuple(range(part.lower or 0, part.upper or 0) for part in multirange)


def _multirange(ranges: tuple[range, ...]) -> str:
    """Format ranges as PostgreSQL does: the driver's own type sends integers in a width that int8multirange rejects."""
    return "{" + ",".join(f"[{part.start},{part.stop})" for part in ranges) + "}"
