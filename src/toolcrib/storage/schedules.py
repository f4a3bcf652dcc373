"""Schedules: messages that are sent by the clock. Each firing creates a session and a run on behalf of a user.

The next firing of a schedule is in the durable queue, entered by the transaction that sets ``next_at``. A firing is one
transaction too, and moves ``next_at``. So it happens once: repeated after a crash before its commit, and without effect
after it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg.errors import UniqueViolation

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound, ToolcribError, Unauthenticated, error_text
from toolcrib.core.idempotency import EffectKind, effect_id
from toolcrib.core.ids import AgentId, RunId, ScheduleId, SessionId, UserId, WorkspaceId
from toolcrib.core.runs import Run
from toolcrib.policy.cron import next_firing
from toolcrib.storage.agents import require_agent
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.quotas import SCHEDULES, has_all
from toolcrib.storage.runs import RunStore
from toolcrib.storage.sessions import SessionStore


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored. Without ``next_at`` it is paused."""

    id: ScheduleId
    name: str
    cron: str
    time_zone: str
    agent_id: AgentId
    # Who created it: its runs are theirs.
    user_id: UserId
    message: str
    enabled: bool
    next_at: datetime | None
    last_at: datetime | None
    last_session_id: SessionId | None
    last_run_id: RunId | None
    last_error: str | None
    created_at: datetime


class ScheduleStore:
    """Queries on schedules, and their firing."""

    def __init__(self, database: Database, sessions: SessionStore, runs: RunStore, *, most: int = SCHEDULES) -> None:
        """Create the store. A workspace has at most ``most`` schedules."""
        self._database = database
        self._sessions = sessions
        self._runs = runs
        self._most = most

    async def create(
        self, tenant: Tenant, *, name: str, cron: str, time_zone: str, agent_id: AgentId, message: str
    ) -> Schedule:
        """Create a schedule of this user. Members only.

        Raises:
            BadArguments: The cron expression or the time zone is not valid, or it never fires.
            Conflict: The name is taken, or the workspace has too many schedules.
        """
        async with self._database.transaction(tenant, needs=WorkspaceRole.MEMBER) as connection:
            await require_agent(connection, tenant, agent_id)
            # One at a time, so that each counts the one before.
            await connection.execute(
                "select pg_advisory_xact_lock(hashtextextended('schedules ' || %s::text, 0))", (tenant.workspace_id,)
            )
            rows = "select from toolcrib.schedules where workspace_id = %s"
            if await has_all(connection, rows, (tenant.workspace_id,), most=self._most):
                raise Conflict(f"This workspace has {self._most} schedules, the limit. Remove one first.")
            next_at = next_firing(cron, time_zone, await _now(connection))
            try:
                [made] = await connection.fetch_all(
                    Schedule,
                    f"""
                    insert into toolcrib.schedules
                        (workspace_id, id, name, cron, time_zone, agent_id, user_id, message, next_at)
                    values (%s, %s, %s, %s, %s, %s, %s, %s, %s) returning {_COLUMNS}
                    """,  # noqa: S608 - the columns are a constant of this module
                    (
                        tenant.workspace_id,
                        effect_id(EffectKind.SCHEDULE),
                        name,
                        cron,
                        time_zone,
                        agent_id,
                        tenant.user_id,
                        message,
                        next_at,
                    ),
                )
            except UniqueViolation:
                raise _name_taken(name) from None
        return made

    async def list(self, tenant: Tenant) -> list[Schedule]:
        """Return the workspace's schedules by name."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                Schedule,
                f"select {_COLUMNS} from toolcrib.schedules where workspace_id = %s order by name",  # noqa: S608 - as above
                (tenant.workspace_id,),
            )

    async def get(self, tenant: Tenant, schedule_id: ScheduleId) -> Schedule:
        """Return one schedule."""
        async with self._database.transaction(tenant) as connection:
            return await _found(connection, tenant, schedule_id)

    async def update(
        self,
        tenant: Tenant,
        schedule_id: ScheduleId,
        *,
        name: str | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        agent_id: AgentId | None = None,
        message: str | None = None,
        enabled: bool | None = None,
    ) -> Schedule:
        """Change what is given. Only its user may: its runs are theirs. Owners of the workspace may pause it.

        With another time, or resumed, it fires at the first time after now.
        """
        async with self._database.transaction(tenant, needs=WorkspaceRole.MEMBER) as connection:
            found = await _found(connection, tenant, schedule_id, lock=True)
            only_pauses = enabled is False and (name, cron, time_zone, agent_id, message) == (None,) * 5
            if found.user_id != tenant.user_id and not (only_pauses and await _is_owner(connection, tenant)):
                raise Forbidden(
                    "Only the user of a schedule can change it, because it sends messages as them. An owner of the "
                    "workspace can pause or remove it."
                )
            if agent_id is not None:
                await require_agent(connection, tenant, agent_id)
            is_moved = cron is not None or time_zone is not None
            cron, time_zone = cron or found.cron, time_zone or found.time_zone
            enabled = found.enabled if enabled is None else enabled
            next_at = found.next_at
            if is_moved or next_at is None:
                next_at = next_firing(cron, time_zone, await _now(connection))
            try:
                [changed] = await connection.fetch_all(
                    Schedule,
                    f"""
                    update toolcrib.schedules set
                        name = coalesce(%(name)s, name), cron = %(cron)s, time_zone = %(time_zone)s,
                        agent_id = coalesce(%(agent)s, agent_id), message = coalesce(%(message)s, message),
                        enabled = %(enabled)s, next_at = %(next_at)s,
                        last_error = case when %(enabled)s and not enabled then null else last_error end
                    where workspace_id = %(workspace)s and id = %(id)s returning {_COLUMNS}
                    """,  # noqa: S608 - as above
                    {
                        "name": name,
                        "cron": cron,
                        "time_zone": time_zone,
                        "agent": agent_id,
                        "message": message,
                        "enabled": enabled,
                        "next_at": next_at if enabled else None,
                        "workspace": tenant.workspace_id,
                        "id": schedule_id,
                    },
                )
            except UniqueViolation:
                raise _name_taken(name) from None
        return changed

    async def delete(self, tenant: Tenant, schedule_id: ScheduleId) -> None:
        """Delete a schedule. Only for its user and for owners. Its sessions stay."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.MEMBER) as connection:
            found = await _found(connection, tenant, schedule_id, lock=True)
            if found.user_id != tenant.user_id and not await _is_owner(connection, tenant):
                raise Forbidden("Only the user of a schedule or an owner of the workspace can remove it.")
            await connection.execute(
                "delete from toolcrib.schedules where workspace_id = %s and id = %s",
                (tenant.workspace_id, schedule_id),
            )

    # Firing

    async def fire_now(self, tenant: Tenant, schedule_id: ScheduleId) -> Run:
        """Send the message now, as well as at its times. Only its user may."""
        async with self._database.transaction(tenant, needs=WorkspaceRole.MEMBER) as connection:
            found = await _found(connection, tenant, schedule_id, lock=True)
            if found.user_id != tenant.user_id:
                raise Forbidden("Only the user of a schedule can run it, because it sends its message as them.")
            return await self._fire(connection, tenant, found, next_at=found.next_at)

    async def fire_due(self, workspace_id: WorkspaceId, schedule_id: ScheduleId, due: int) -> Run | None:
        """Send the message that is due at this time, in seconds since 1970, and enter the next firing.

        Firings that were missed are not repeated: the next one is after now. Returns None if the schedule was moved,
        paused or deleted, if it has already fired, or if it cannot fire: then its row says why.
        """
        async with self._database.transaction(Tenant(workspace_id)) as connection:
            found = await _due(connection, workspace_id, schedule_id, due)
        if found is None:
            return None
        tenant = Tenant(workspace_id, found.user_id)
        try:
            # As the user, so that all that their access depends on is checked as for a message that they send.
            async with self._database.transaction(tenant, needs=WorkspaceRole.MEMBER) as connection:
                if (found := await _due(connection, workspace_id, schedule_id, due)) is None:
                    return None
                return await self._fire(connection, tenant, found, next_at=await _after(connection, found))
        except Unauthenticated:
            why = "The account of its user is disabled."
        except Forbidden as error:
            why = f"Its user may no longer send messages here. {error.message}"
        except (NotFound, BadArguments) as error:
            why = error_text(error)
        except ToolcribError as error:
            await self.fail(workspace_id, schedule_id, due, error.message)
            return None
        await self.fail(workspace_id, schedule_id, due, f"{why} The schedule was paused.", pause=True)
        return None

    async def fail(
        self, workspace_id: WorkspaceId, schedule_id: ScheduleId, due: int, why: str, *, pause: bool = False
    ) -> None:
        """Record why a firing failed, and enter the next one or pause the schedule."""
        async with self._database.transaction(Tenant(workspace_id)) as connection:
            found = await _due(connection, workspace_id, schedule_id, due)
            if found is None:
                return
            await connection.execute(
                """
                update toolcrib.schedules set enabled = %s, next_at = %s, last_at = now(), last_error = %s
                where workspace_id = %s and id = %s
                """,
                (not pause, None if pause else await _after(connection, found), why, workspace_id, schedule_id),
            )

    async def _fire(
        self, connection: Connection, tenant: Tenant, schedule: Schedule, *, next_at: datetime | None
    ) -> Run:
        session = await self._sessions.create(
            tenant, title=schedule.name, agent_id=schedule.agent_id, within=connection
        )
        run = await self._runs.submit_within(connection, tenant, session.id, schedule.message, via="schedule")
        await connection.execute(
            """
            update toolcrib.schedules
            set next_at = %s, last_at = now(), last_session_id = %s, last_run_id = %s, last_error = null
            where workspace_id = %s and id = %s
            """,
            (next_at, session.id, run.id, tenant.workspace_id, schedule.id),
        )
        return run


_COLUMNS = """
    id, name, cron, time_zone, agent_id, user_id, message, enabled, next_at, last_at, last_session_id, last_run_id,
    last_error, created_at
"""


async def _found(connection: Connection, tenant: Tenant, schedule_id: ScheduleId, *, lock: bool = False) -> Schedule:
    found = await connection.fetch_one(
        Schedule,
        f"select {_COLUMNS} from toolcrib.schedules where workspace_id = %s and id = %s"  # noqa: S608 - as above
        + (" for update" if lock else ""),
        (tenant.workspace_id, schedule_id),
    )
    if found is None:
        raise NotFound(f"Schedule {schedule_id} not found in this workspace.")
    return found


async def _due(connection: Connection, workspace_id: WorkspaceId, schedule_id: ScheduleId, due: int) -> Schedule | None:
    """Lock and return the schedule, if its next firing is still the one at this time."""
    return await connection.fetch_one(
        Schedule,
        f"""
        select {_COLUMNS} from toolcrib.schedules
        where workspace_id = %s and id = %s and enabled and next_at = %s for update
        """,  # noqa: S608 - as above
        (workspace_id, schedule_id, datetime.fromtimestamp(due, UTC)),
    )


async def _after(connection: Connection, schedule: Schedule) -> datetime:
    """Return the next firing after this one and after now. The clock that started this one may run ahead."""
    assert schedule.next_at is not None
    return next_firing(schedule.cron, schedule.time_zone, max(await _now(connection), schedule.next_at))


async def _now(connection: Connection) -> datetime:
    [now] = await connection.returned_row("select clock_timestamp()")
    assert isinstance(now, datetime)
    return now


async def _is_owner(connection: Connection, tenant: Tenant) -> bool:
    row = await connection.fetch_row(
        "select from toolcrib.members where workspace_id = %s and user_id = %s and role = 'owner'",
        (tenant.workspace_id, tenant.user_id),
    )
    return row is not None


def _name_taken(name: str | None) -> Conflict:
    return Conflict(f"A schedule named {name!r} already exists. Choose another name.")
