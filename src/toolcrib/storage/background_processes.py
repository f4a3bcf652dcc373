"""Background processes as rows: what runs where and for whom, and how it ended."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Final

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.core.files import AuthorKind
from toolcrib.core.ids import BackgroundId, ProcessId
from toolcrib.storage.database import Connection, Store, Tenant, parse_row

# The columns in these statements are constants:
# ruff: noqa: S608

# How many ended processes a list shows, and how long they are kept.
_ENDED_SHOWN: Final = 20
_REMEMBERED_NS: Final = 30 * 24 * 3600 * 10**9


class BackgroundProcessStore(Store):
    """Queries on background processes."""

    async def begin(self, tenant: Tenant, new: BackgroundProcess, *, most: int) -> None:
        """Insert the row before the process starts.

        Raises:
            Conflict: The agent or person already has ``most`` running processes.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            # Serialize, so that two calls do not both take the last free slot.
            await connection.execute(
                "select from toolcrib.workspaces where id = %s for no key update", (new.workspace_id,)
            )
            await connection.execute(
                "delete from toolcrib.background_processes where workspace_id = %s and ended_ns < %s",
                (new.workspace_id, new.started_ns - _REMEMBERED_NS),
            )
            cursor = await connection.execute(
                """
                insert into toolcrib.background_processes
                    (workspace_id, id, call_id, user_id, agent_id, session_id, run_id, command, isolation, node,
                     process_id, started_ns)
                select %(workspace_id)s, %(id)s, %(call_id)s, %(user_id)s, %(agent_id)s, %(session_id)s, %(run_id)s,
                       %(command)s, %(isolation)s, %(node)s, %(process_id)s, %(started_ns)s
                where (select count(*) from toolcrib.background_processes b
                       where b.workspace_id = %(workspace_id)s and b.ended_ns is null and b.user_id = %(user_id)s
                         and b.agent_id is not distinct from %(agent_id)s::uuid) < %(most)s
                """,
                {**asdict(new), **asdict(new.author), "most": most},
            )
            if cursor.rowcount == 0:
                raise Conflict(f"{most} background processes are running, the limit. Stop one first.")

    async def end(self, tenant: Tenant, id_: BackgroundId, *, at_ns: int, code: int | None, why: str | None) -> None:
        """Record how it ended."""
        async with self._database.transaction(tenant) as connection:
            await connection.execute(
                """
                update toolcrib.background_processes set ended_ns = %s, exit_code = %s, stop_reason = %s
                where workspace_id = %s and id = %s and ended_ns is null
                """,
                (at_ns, code, why, tenant.workspace_id, id_),
            )

    async def of(self, caller: Caller) -> list[BackgroundProcess]:
        """Return the processes of the caller's session or, outside one, of the caller: running and recently ended."""
        async with self._database.transaction(Tenant.of(caller)) as connection:
            rows = await connection.fetch_all(
                dict,
                f"""
                select {_COLUMNS} from toolcrib.background_processes b
                where {_OWN}
                order by (b.ended_ns is null) desc, b.started_ns desc limit %(most)s
                """,
                {**_owner(caller), "most": _ENDED_SHOWN},
            )
        return [_process(row) for row in rows]

    async def get(
        self, caller: Caller, id_: BackgroundId, *, needs: WorkspaceRole = WorkspaceRole.VIEWER
    ) -> BackgroundProcess:
        """Return one process of the caller."""
        async with self._database.transaction(Tenant.of(caller), needs) as connection:
            row = await connection.fetch_one(
                dict,
                f"select {_COLUMNS} from toolcrib.background_processes b where {_OWN} and b.id = %(id)s",
                {**_owner(caller), "id": id_},
            )
        if row is None:
            # A process of someone else gets the same answer as an unknown one.
            raise NotFound(f"There is no background process {id_}. List them with `bash_list`.")
        return _process(row)

    async def ask_to_end(self, caller: Caller, id_: BackgroundId) -> None:
        """Request the end of a process of another server, which polls for such requests."""
        async with self._database.transaction(Tenant.of(caller), WorkspaceRole.MEMBER) as connection:
            await connection.execute(
                f"update toolcrib.background_processes b set stop_requested = true where {_OWN} and b.id = %(id)s",
                {**_owner(caller), "id": id_},
            )

    # With the system role, for the server that runs them

    async def wanted(self, process: ProcessId) -> set[BackgroundId]:
        """Return the processes of a server that may continue.

        Their session exists, their users are members, and their node has the workspace's tree.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select b.id from toolcrib.background_processes b
                join toolcrib.members m on m.workspace_id = b.workspace_id and m.user_id = b.user_id
                     and m.role <> 'viewer'
                join toolcrib.workspaces w on w.id = b.workspace_id and coalesce(w.home_node, b.node) = b.node
                where b.process_id = %s and b.ended_ns is null and not b.stop_requested
                  and (b.session_id is null
                       or exists (select from toolcrib.sessions s where s.workspace_id = b.workspace_id
                                  and s.id = b.session_id))
                  and (b.agent_id is null
                       or exists (select from toolcrib.agents a where a.workspace_id = b.workspace_id
                                  and a.id = b.agent_id and a.deleted_at is null))
                """,
                (process,),
            )
            return {BackgroundId(id_) for (id_,) in await cursor.fetchall()}

    async def served(self, processes: Collection[ProcessId], *, seconds: float) -> set[ProcessId]:
        """Return which of these servers are alive: they had a heartbeat within this time."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select p.id from toolcrib.live_processes(%s) p where p.id = any (%s)
                """,
                (seconds, list(processes)),
            )
            return {ProcessId(id_) for (id_,) in await cursor.fetchall()}

    async def orphans(self, node: str, *, seconds: float) -> list[BackgroundProcess]:
        """Return a node's processes whose server had no heartbeat for this time. They ended with it.

        Each gets an end time: the last moment at which its server may have been alive.
        """
        async with self._database.as_system() as connection:
            rows = await connection.fetch_all(
                dict,
                f"""
                select {_BEFORE_THE_END}, {_END_OF_ORPHAN} from toolcrib.background_processes b
                left join toolcrib.server_processes p on p.id = b.process_id
                where b.node = %(node)s and b.ended_ns is null
                  and not toolcrib.process_is_alive(b.process_id, %(seconds)s)
                """,
                {"node": node, "seconds": seconds},
            )
        return [_process(row) for row in rows]


async def present_within(
    connection: Connection, tenant: Tenant, *, node: str, since_ns: int
) -> list[BackgroundProcess]:
    """Return the processes that ran on a node's tree since a time, latest first. Within a change's transaction."""
    rows = await connection.fetch_all(
        dict,
        f"""
        select {_COLUMNS} from toolcrib.background_processes b
        where b.workspace_id = %s and b.node = %s and (b.ended_ns is null or b.ended_ns >= %s)
        order by b.started_ns desc
        """,
        (tenant.workspace_id, node, since_ns),
    )
    return [_process(row) for row in rows]


_BEFORE_THE_END = """b.workspace_id, b.id, b.call_id, b.user_id, b.agent_id, b.session_id, b.run_id, b.command,
    b.isolation, b.node, b.process_id, b.started_ns"""
_COLUMNS = f"{_BEFORE_THE_END}, b.ended_ns, b.exit_code, b.stop_reason"
_END_OF_ORPHAN = """greatest(b.started_ns,
    (extract(epoch from coalesce(p.heartbeat_at + make_interval(secs => %(seconds)s), now())) * 1e9)::bigint)
    as ended_ns"""

# The processes of a session or, outside one, of the caller. An agent sees its own only.
_OWN = """b.workspace_id = %(workspace)s
    and case when %(session)s::uuid is null then b.session_id is null and b.user_id = %(user)s
             else b.session_id = %(session)s end
    and (b.agent_id is not distinct from %(agent)s::uuid
         or (%(agent)s::uuid is null and %(session)s::uuid is not null))"""


def _owner(caller: Caller) -> dict[str, Any]:
    return {
        "workspace": caller.workspace_id,
        "session": caller.session_id,
        "user": caller.user_id,
        "agent": caller.agent_id,
    }


def _process(row: Mapping[str, Any]) -> BackgroundProcess:
    kind = AuthorKind.AGENT if row["agent_id"] else AuthorKind.USER
    return parse_row(BackgroundProcess, {**row, "author": {**row, "kind": kind}})
