"""The book: one record per call, insert-only, and the seals that close it batch by batch."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.multirange import Int8Multirange

from toolcrib.domain.book import AuditRecord
from toolcrib.domain.callers import Role
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.json_text import json_text


@dataclass(frozen=True, slots=True)
class BookedRecord:
    """A record as it is read back. The order of its fields is what a seal is computed over."""

    position: int
    id: UUID
    workspace_id: UUID
    at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str
    tool: str
    decision: str
    rule: str
    approver_id: UUID | None
    input: Any
    outcome: str
    error_code: str | None
    files: Any
    isolation: str | None
    duration_us: int


@dataclass(frozen=True, slots=True)
class Seal:
    """A closed batch of records: which positions it covers, which below ``top`` a late commit may still fill."""

    number: int
    covered: tuple[range, ...]
    open: tuple[range, ...]
    top: int
    records: int
    mac: bytes


class Audit:
    """Writing records and reading one's own workspace's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, records: Sequence[AuditRecord]) -> None:
        """Writes records of any workspaces in one statement, and so in one commit."""
        async with self._database.connection() as connection:
            rows = json_text([audit_row(record) for record in records])
            await connection.execute("select toolcrib.record_audit(%s)", (rows,), prepare=True)

    async def page(self, tenant: Tenant, *, before: int | None, limit: int) -> list[BookedRecord]:
        """A workspace's records, the newest first; for its owners."""
        async with self._database.transaction(tenant, Role.OWNER) as connection:
            cursor = await connection.execute(
                _SELECT
                + """
                where workspace_id = %(workspace)s and (%(before)s::bigint is null or position < %(before)s)
                order by position desc limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "before": before, "limit": limit},
            )
            return [BookedRecord(*row) for row in await cursor.fetchall()]


class Sealing:
    """What the sealer and the verifier need, as the system role: every workspace's records, and the chain."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[Connection]:
        """One sealer at a time, on any node: the chain has one end."""
        async with self._database.system() as connection, connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(%s)", (_SEALER_LOCK,))
            yield connection

    async def last(self, connection: Connection) -> Seal | None:
        cursor = await connection.execute(_SEALS + "order by number desc limit 1")
        row = await cursor.fetchone()
        return _seal(row) if row else None

    async def open_for_long(self, connection: Connection) -> tuple[range, ...]:
        """Positions that were open an hour ago: no transaction lives that long, so they stay empty."""
        cursor = await connection.execute(
            """
            select open from toolcrib.seals where sealed_at < now() - interval '1 hour'
            order by number desc limit 1
            """
        )
        row = await cursor.fetchone()
        return _ranges(row[0]) if row else ()

    async def unsealed(
        self, connection: Connection, *, top: int, open: tuple[range, ...], limit: int
    ) -> list[BookedRecord]:
        """Records beyond the last seal, and those that have since filled a gap below it."""
        cursor = await connection.execute(
            _SELECT
            + """
            where position > %(top)s
               or (position >= lower(%(open)s::int8multirange) and position <= %(top)s
                   and %(open)s::int8multirange @> position)
            order by position limit %(limit)s
            """,
            {"top": top, "open": _multirange(open), "limit": limit},
        )
        return [BookedRecord(*row) for row in await cursor.fetchall()]

    async def add(self, connection: Connection, seal: Seal) -> None:
        await connection.execute(
            """
            insert into toolcrib.seals (number, covered, open, top, records, mac) values (%s, %s, %s, %s, %s, %s)
            """,
            (
                seal.number,
                _multirange(seal.covered),
                _multirange(seal.open),
                seal.top,
                seal.records,
                seal.mac,
            ),
        )

    async def seals_after(self, number: int, *, limit: int) -> list[Seal]:
        async with self._database.system() as connection:
            cursor = await connection.execute(_SEALS + "where number > %s order by number limit %s", (number, limit))
            return [_seal(row) for row in await cursor.fetchall()]

    async def records_in(self, covered: tuple[range, ...]) -> list[BookedRecord]:
        async with self._database.system() as connection:
            cursor = await connection.execute(
                _SELECT
                + """
                where position >= lower(%(covered)s::int8multirange) and position < upper(%(covered)s::int8multirange)
                  and %(covered)s::int8multirange @> position
                order by position
                """,
                {"covered": _multirange(covered)},
            )
            return [BookedRecord(*row) for row in await cursor.fetchall()]

    async def outside_seals(self) -> list[int]:
        """Positions that no seal covers: not sealed yet, or slipped in behind the chain's back."""
        async with self._database.system() as connection:
            cursor = await connection.execute(
                """
                select a.position from toolcrib.audit a
                where not exists (select from toolcrib.seals s
                                  where a.position <= s.top and s.covered @> a.position)
                order by a.position
                """
            )
            return [position for (position,) in await cursor.fetchall()]


_SEALER_LOCK = 0x746F6F6C7365616C

_SEALS = "select number, covered, open, top, records, mac from toolcrib.seals "

_SELECT = """
    select position, id, workspace_id, at, user_id, agent_id, session_id, run_id, call_id, via, tool, decision, rule,
           approver_id, input, outcome, error_code, files, isolation, duration_us
    from toolcrib.audit
"""


def audit_row(record: AuditRecord) -> dict[str, Any]:
    """A record as ``toolcrib.record_audit`` takes it."""
    caller = record.caller
    return {
        "id": record.id,
        "workspace_id": caller.workspace_id,
        "at": record.at,
        "user_id": caller.user_id,
        "agent_id": caller.agent_id,
        "session_id": caller.session_id,
        "run_id": caller.run_id,
        "call_id": caller.call_id,
        "via": caller.via,
        "tool": record.tool,
        "decision": record.decision,
        "rule": record.rule,
        "approver_id": record.approver_id,
        "input": record.input,
        "outcome": record.outcome,
        "error_code": record.error_code,
        "files": record.files,
        "isolation": record.isolation,
        "duration_us": record.duration_us,
    }


def _seal(row: tuple[Any, ...]) -> Seal:
    number, covered, open_, top, records, mac = row
    return Seal(number, _ranges(covered), _ranges(open_), top, records, bytes(mac))


def _ranges(multirange: Int8Multirange) -> tuple[range, ...]:
    return tuple(range(part.lower or 0, part.upper or 0) for part in multirange)


def _multirange(ranges: tuple[range, ...]) -> str:
    """As PostgreSQL writes it: the driver's own type sends numbers in a width that int8multirange refuses."""
    return "{" + ",".join(f"[{part.start},{part.stop})" for part in ranges) + "}"
