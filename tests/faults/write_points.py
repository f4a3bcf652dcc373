"""Points at which a server is killed: before a row that it writes is committed. Every row is one."""

import asyncio
from typing import Any, LiteralString, Self

import psycopg
from psycopg import sql

from tests.faults.server import Server

_LOCK = 20_170
_SETUP = """
create schema killing;
create sequence killing.writes;
create table killing.point (number bigint not null);
insert into killing.point values (0);
create function killing.pass() returns trigger language plpgsql security definer as $$
begin
    -- The owner's own statements do not count.
    if session_user <> current_user and nextval('killing.writes') = (select number from killing.point) then
        perform pg_advisory_xact_lock(20170);
    end if;
    return null;
end
$$;
"""
_BLOCKED = """
select l.pid from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
where l.locktype = 'advisory' and not l.granted and (l.classid, l.objid) = (0, 20170)
"""


class WritePoints:
    """Counts the rows that a server writes, and stops it at one of them until it is killed."""

    def __init__(self, owner: psycopg.AsyncConnection) -> None:
        self._owner = owner

    @classmethod
    async def made(cls, owner: psycopg.AsyncConnection, *tables: str) -> Self:
        """Count the rows that are written to these tables. ``owner`` commits every statement."""
        await owner.execute(_SETUP)
        for table in tables:
            statement = sql.SQL(
                """
                create trigger zz_kill after insert or update or delete on {}
                    for each row execute function killing.pass()
                """
            )
            await owner.execute(statement.format(sql.Identifier(*table.split("."))))
        await owner.execute("select pg_advisory_lock(%s)", (_LOCK,))
        return cls(owner)

    async def count_to(self, number: int) -> None:
        """Count from now on, and stop the server at the row with this number. 0 stops it at none."""
        await self._owner.execute("update killing.point set number = %s", (number,))
        await self._owner.execute("alter sequence killing.writes restart")

    async def counted(self) -> int:
        [(count,)] = await self._rows("select case when is_called then last_value else 0 end from killing.writes")
        return int(count)

    async def reached(self) -> int | None:
        """Return the database session that has stopped at the point, if one has."""
        found = await self._rows(_BLOCKED)
        return int(found[0][0]) if found else None

    async def kill(self, server: Server, *, commits: bool) -> None:
        """Kill the server that has stopped at the point.

        Args:
            commits: Its statement goes on in the database without it, and is committed if it is a transaction of its
                own. Otherwise the database ends it.
        """
        session = await self.reached()
        assert session is not None
        await asyncio.to_thread(server.kill)
        if not commits:
            await self._owner.execute("select pg_terminate_backend(%s, 60000)", (session,))
        await self._owner.execute("select pg_advisory_unlock(%s)", (_LOCK,))
        # Waits for the statement, if it goes on.
        await self._owner.execute("select pg_advisory_lock(%s)", (_LOCK,))

    async def _rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        return await (await self._owner.execute(query)).fetchall()
