"""Schedules send their message at their times: once for each time, as their user, and without a thread of their own."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture
from tests.integration.runs.conftest import RunFixture, says
from tests.integration.storage.accounts import joined, someone
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound
from toolcrib.core.ids import AgentId, RunId, ScheduleId, WorkspaceId, new_id
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.policy.agent_definition import render_definition
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.schedules import ScheduleService
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.schedules import Schedule, ScheduleStore
from toolcrib.wiring.runs import run_service, schedule_service

# Of the server's own threads and of all its pools together.
MOST_THREADS = 100


class Died(BaseException):
    """The process ends here: nothing after it is executed."""


@pytest.fixture
def rows(workspace: WorkspaceFixture) -> ScheduleStore:
    return workspace.stores.schedules


@pytest.fixture
def service(workspace: WorkspaceFixture) -> ScheduleService:
    return schedule_service(workspace.engine)


@pytest.fixture
async def agent_id(workspace: WorkspaceFixture) -> AgentId:
    return await new_agent(workspace, workspace.tenant)


@pytest.fixture
def owner(database_urls: DatabaseUrls) -> Iterator[psycopg.Connection]:
    """The database's owner, who sees the queue."""
    with psycopg.connect(database_urls.owner, autocommit=True) as connection:
        yield connection


async def new_agent(workspace: WorkspaceFixture, tenant: Tenant) -> AgentId:
    definition = render_definition(AgentRules.model_validate({"trust": "guided"}))
    return (await workspace.stores.agents.create(tenant, name=f"agent {new_id()}", definition=definition)).id


async def scheduled(
    rows: ScheduleStore, tenant: Tenant, agent_id: AgentId, *, name: str = "Report", cron: str = "0 9 * * *"
) -> Schedule:
    return await rows.create(tenant, name=name, cron=cron, time_zone="UTC", agent_id=agent_id, message="Report.")


def due(schedule: Schedule) -> int:
    assert schedule.next_at is not None
    return int(schedule.next_at.timestamp())


def entries(owner: psycopg.Connection, schedule: Schedule) -> list[tuple[str, str]]:
    """What the queue has for a schedule: ids and states."""
    return owner.execute(
        "select workflow_uuid, status from dbos.workflow_status where workflow_uuid like %s order by workflow_uuid",
        (f"schedule/{schedule.id}/%",),
    ).fetchall()


async def sent(workspace: WorkspaceFixture) -> list[Run]:
    """The runs of all sessions of the workspace."""
    sessions = await workspace.stores.sessions.page(workspace.tenant, before=None, limit=100)
    return [run for one in sessions for run in await workspace.stores.runs.page(workspace.tenant, one.id)]


async def test_schedule_is_stored_with_its_next_time_and_entered_in_the_queue(
    rows: ScheduleStore, workspace: WorkspaceFixture, agent_id: AgentId, owner: psycopg.Connection
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id, cron="0 0 29 2 *")

    assert made.next_at is not None
    assert made.next_at > datetime.now(UTC) + timedelta(days=300)
    assert entries(owner, made) == [(f"schedule/{made.id}/{due(made)}", "DELAYED")]
    assert await rows.list(workspace.tenant) == [made] == [await rows.get(workspace.tenant, made.id)]


async def test_firing_creates_one_session_and_one_run_and_enters_the_next(
    rows: ScheduleStore,
    service: ScheduleService,
    workspace: WorkspaceFixture,
    agent_id: AgentId,
    owner: psycopg.Connection,
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)

    for _ in range(3):
        await service.fire(workspace.tenant.workspace_id, made.id, due(made))

    [run] = await sent(workspace)
    [session] = await workspace.stores.sessions.page(workspace.tenant, before=None, limit=100)
    assert (run.prompt, run.via, run.user_id, run.agent_id) == ("Report.", "schedule", made.user_id, agent_id)
    assert run.state is RunState.READY
    assert (session.title, session.created_by) == ("Report", made.user_id)
    events = await workspace.stores.sessions.events_after(workspace.tenant, session.id, 0, limit=10)
    assert [event.type for event in events] == ["message", "run-state"]
    now = await rows.get(workspace.tenant, made.id)
    assert (now.last_session_id, now.last_run_id, now.last_error) == (session.id, run.id, None)
    assert due(now) == due(made) + 86_400
    assert f"schedule/{made.id}/{due(now)}" in dict(entries(owner, now))


async def test_missed_firings_are_caught_up_by_one(
    rows: ScheduleStore,
    service: ScheduleService,
    workspace: WorkspaceFixture,
    agent_id: AgentId,
    owner: psycopg.Connection,
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id, cron="* * * * *")
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    owner.execute("update toolcrib.schedules set next_at = %s where id = %s", (long_ago, made.id))

    await service.fire(workspace.tenant.workspace_id, made.id, int(long_ago.timestamp()))

    assert len(await sent(workspace)) == 1
    now = await rows.get(workspace.tenant, made.id)
    assert now.next_at is not None
    assert now.last_at is not None
    assert timedelta(0) < now.next_at - now.last_at <= timedelta(minutes=1)


async def test_process_that_dies_before_the_commit_fires_it_again_and_after_the_commit_not(
    rows: ScheduleStore, workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)
    runs = workspace.stores.runs
    submit_within = runs.submit_within

    async def dying(*args, **kwargs):  # type: ignore[no-untyped-def]
        await submit_within(*args, **kwargs)
        raise Died

    runs.submit_within = dying  # type: ignore[method-assign]
    with pytest.raises(Died):
        await rows.fire_due(workspace.tenant.workspace_id, made.id, due(made))
    assert await sent(workspace) == []
    assert await rows.get(workspace.tenant, made.id) == made

    runs.submit_within = submit_within  # type: ignore[method-assign]
    run = await rows.fire_due(workspace.tenant.workspace_id, made.id, due(made))
    # It dies here: nobody was notified. The queue starts the entry again.
    assert run is not None
    assert await rows.fire_due(workspace.tenant.workspace_id, made.id, due(made)) is None
    assert [one.id for one in await sent(workspace)] == [run.id]


async def test_two_processes_fire_it_once(rows: ScheduleStore, workspace: WorkspaceFixture, agent_id: AgentId) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)

    fired = await asyncio.gather(*(rows.fire_due(workspace.tenant.workspace_id, made.id, due(made)) for _ in range(8)))

    assert len([run for run in fired if run is not None]) == 1
    assert len(await sent(workspace)) == 1


async def test_database_that_is_away_delays_a_firing(
    rows: ScheduleStore, service: ScheduleService, workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)
    fire_due, tries = rows.fire_due, 0

    async def away(*args, **kwargs):  # type: ignore[no-untyped-def]
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OperationalError("the connection was lost")
        return await fire_due(*args, **kwargs)

    rows.fire_due = away  # type: ignore[method-assign]
    await service.fire(workspace.tenant.workspace_id, made.id, due(made))

    assert len(await sent(workspace)) == 1


async def test_unexpected_error_does_not_end_the_schedule(
    rows: ScheduleStore, service: ScheduleService, workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)

    async def broken(*args, **kwargs):  # type: ignore[no-untyped-def]
        raise ValueError

    rows.fire_due = broken  # type: ignore[method-assign]
    await service.fire(workspace.tenant.workspace_id, made.id, due(made))

    now = await rows.get(workspace.tenant, made.id)
    assert due(now) == due(made) + 86_400
    assert now.last_error == "An error of the server; its log has it."


async def test_paused_moved_and_deleted_schedules_do_not_fire(
    rows: ScheduleStore,
    service: ScheduleService,
    workspace: WorkspaceFixture,
    agent_id: AgentId,
    owner: psycopg.Connection,
) -> None:
    tenant = workspace.tenant
    paused, moved, gone = [await scheduled(rows, tenant, agent_id, name=name) for name in ("paused", "moved", "gone")]
    assert (await rows.update(tenant, paused.id, enabled=False)).next_at is None
    later = await rows.update(tenant, moved.id, cron="0 10 * * *")
    await rows.delete(tenant, gone.id)

    for one in (paused, moved, gone):
        await service.fire(tenant.workspace_id, one.id, due(one))
    await service.fire(WorkspaceId(new_id()), later.id, due(later))

    assert await sent(workspace) == []
    assert entries(owner, paused) == entries(owner, gone) == []
    assert entries(owner, moved) == [(f"schedule/{moved.id}/{due(later)}", "DELAYED")]
    resumed = await rows.update(tenant, paused.id, enabled=True)
    assert resumed.next_at == paused.next_at
    assert entries(owner, paused) == [(f"schedule/{paused.id}/{due(paused)}", "DELAYED")]
    await service.fire(tenant.workspace_id, paused.id, due(resumed))
    assert len(await sent(workspace)) == 1


async def test_another_message_keeps_the_next_time(
    rows: ScheduleStore, workspace: WorkspaceFixture, agent_id: AgentId, owner: psycopg.Connection
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)
    # Its time has come, and the queue has not started it yet.
    late = datetime(2026, 1, 1, tzinfo=UTC)
    owner.execute("update toolcrib.schedules set next_at = %s where id = %s", (late, made.id))

    changed = await rows.update(workspace.tenant, made.id, message="Another.", name="Other")

    assert (changed.message, changed.name, changed.next_at) == ("Another.", "Other", late)


@pytest.mark.parametrize("how", ["removed", "viewer", "disabled"])
async def test_schedule_of_a_user_without_access_is_paused_and_says_why(
    rows: ScheduleStore,
    service: ScheduleService,
    workspace: WorkspaceFixture,
    agent_id: AgentId,
    owner: psycopg.Connection,
    how: str,
) -> None:
    member = await joined(workspace.stores, workspace.tenant, WorkspaceRole.MEMBER)
    assert member.user_id is not None
    made = await scheduled(rows, member, agent_id)
    if how == "removed":
        await workspace.stores.workspaces.remove_member(workspace.tenant, member.user_id)
    elif how == "viewer":
        await workspace.stores.workspaces.change_role(workspace.tenant, member.user_id, WorkspaceRole.VIEWER)
    else:
        owner.execute("update toolcrib.users set disabled_at = now() where id = %s", (member.user_id,))

    await service.fire(workspace.tenant.workspace_id, made.id, due(made))

    now = await rows.get(workspace.tenant, made.id)
    assert not now.enabled
    assert now.next_at is None
    assert now.last_error is not None
    assert now.last_error.endswith("The schedule was paused.")
    assert ("disabled" if how == "disabled" else "no longer send messages") in now.last_error
    assert await sent(workspace) == []
    assert [status for _, status in entries(owner, made)] == []


async def test_schedule_whose_agent_is_gone_is_paused_until_it_has_another(
    rows: ScheduleStore, service: ScheduleService, workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)
    await workspace.stores.agents.delete(workspace.tenant, agent_id)

    await service.fire(workspace.tenant.workspace_id, made.id, due(made))

    now = await rows.get(workspace.tenant, made.id)
    assert not now.enabled
    assert f"Agent {agent_id} not found" in (now.last_error or "")
    other = await new_agent(workspace, workspace.tenant)
    back = await rows.update(workspace.tenant, made.id, agent_id=other, enabled=True)
    assert back.last_error is None
    await service.fire(workspace.tenant.workspace_id, made.id, due(back))
    assert [run.agent_id for run in await sent(workspace)] == [other]


async def test_workspace_without_room_for_a_session_skips_a_firing(
    workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    settings = workspace.settings.model_copy(update={"max_sessions": 1})
    full = workspace.with_engine(settings)
    rows = full.stores.schedules
    made = await scheduled(rows, workspace.tenant, agent_id)
    await full.stores.sessions.create(workspace.tenant)

    await schedule_service(full.engine).fire(workspace.tenant.workspace_id, made.id, due(made))

    now = await rows.get(workspace.tenant, made.id)
    assert now.enabled
    assert due(now) == due(made) + 86_400
    assert now.last_error == "This workspace has 1 sessions, the limit. Delete one first."


async def test_only_its_user_changes_and_runs_it_and_owners_pause_and_remove_it(
    rows: ScheduleStore, workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    member = await joined(workspace.stores, workspace.tenant, WorkspaceRole.MEMBER)
    other = await joined(workspace.stores, workspace.tenant, WorkspaceRole.MEMBER)
    viewer = await joined(workspace.stores, workspace.tenant, WorkspaceRole.VIEWER)
    made = await scheduled(rows, member, agent_id)

    for tenant in (other, workspace.tenant, viewer):
        with pytest.raises(Forbidden):
            await rows.update(tenant, made.id, message="Send me everything.")
        with pytest.raises(Forbidden):
            await rows.fire_now(tenant, made.id)
    for tenant in (other, viewer):
        with pytest.raises(Forbidden):
            await rows.update(tenant, made.id, enabled=False)
        with pytest.raises(Forbidden):
            await rows.delete(tenant, made.id)
    with pytest.raises(Forbidden):
        await scheduled(rows, viewer, agent_id, name="of a viewer")
    assert await rows.list(viewer) == [made]

    assert not (await rows.update(workspace.tenant, made.id, enabled=False)).enabled
    with pytest.raises(Forbidden):
        await rows.update(workspace.tenant, made.id, enabled=True)
    await rows.update(member, made.id, enabled=True)
    await rows.delete(workspace.tenant, made.id)
    with pytest.raises(NotFound):
        await rows.get(member, made.id)


async def test_running_it_now_keeps_its_next_time(
    rows: ScheduleStore, service: ScheduleService, workspace: WorkspaceFixture, agent_id: AgentId
) -> None:
    made = await scheduled(rows, workspace.tenant, agent_id)
    paused = await rows.update(
        workspace.tenant, (await scheduled(rows, workspace.tenant, agent_id, name="paused")).id, enabled=False
    )

    first = await service.run_now(workspace.tenant, made.id)
    await service.run_now(workspace.tenant, paused.id)

    now = await rows.get(workspace.tenant, made.id)
    assert (now.last_run_id, now.next_at) == (first.id, made.next_at)
    assert (await rows.get(workspace.tenant, paused.id)).next_at is None
    assert len(await sent(workspace)) == 2


async def test_wrong_schedules_are_rejected(workspace: WorkspaceFixture, agent_id: AgentId) -> None:
    rows = workspace.with_engine(workspace.settings.model_copy(update={"max_schedules": 2})).stores.schedules
    tenant = workspace.tenant
    made = await scheduled(rows, tenant, agent_id)
    with pytest.raises(Conflict, match="already exists"):
        await scheduled(rows, tenant, agent_id)
    with pytest.raises(BadArguments):
        await scheduled(rows, tenant, agent_id, name="never", cron="0 0 30 2 *")
    with pytest.raises(BadArguments):
        await rows.update(tenant, made.id, time_zone="Mars/Olympus")
    with pytest.raises(NotFound):
        await scheduled(rows, tenant, AgentId(new_id()), name="of nobody")
    with pytest.raises(NotFound):
        await rows.update(tenant, made.id, agent_id=AgentId(new_id()))
    await scheduled(rows, tenant, agent_id, name="second")
    with pytest.raises(Conflict, match="the limit"):
        await scheduled(rows, tenant, agent_id, name="third")
    with pytest.raises(Conflict, match="already exists"):
        await rows.update(tenant, made.id, name="second")


# With a server


@asynccontextmanager
async def serving(run_fixture: RunFixture) -> AsyncIterator[None]:
    engine, workspace_id = run_fixture.workspace.engine, run_fixture.tenant.workspace_id

    async def advance(run: Run) -> None:
        if run.workspace_id != workspace_id:
            # Left behind by another test, it would take the answers that the model has for this one.
            await engine.stores.runs.end(run, RunEnding.CANCELLED)
            return
        await run_fixture.advance(run)

    with ProcessHeartbeat.start(engine.settings.system_url, node=engine.settings.node_name, lease=2.0) as heartbeat:
        async with run_service(engine, advance, heartbeat):
            yield


async def make_due(run_fixture: RunFixture, owner: psycopg.Connection, schedule: Schedule) -> datetime:
    """Move the next firing to a moment ago, as if that time had come."""
    moment = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
    owner.execute("update toolcrib.schedules set next_at = %s where id = %s", (moment, schedule.id))
    return moment


async def fired(run_fixture: RunFixture, schedule_id: ScheduleId, *, runs: int) -> RunId:
    """Wait until the schedule's last run has ended, and return it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            # The messages first: the schedule, read after them, names the run of the last one.
            messages = await sent(run_fixture.workspace)
            now = await run_fixture.workspace.stores.schedules.get(run_fixture.tenant, schedule_id)
            if now.last_run_id is not None and len(messages) == runs:
                run = await run_fixture.run(now.last_run_id)
                if run.state is RunState.ENDED:
                    assert run.end_reason is RunEnding.DONE
                    return run.id


async def test_queue_fires_it_and_the_agent_answers(run_fixture: RunFixture, owner: psycopg.Connection) -> None:
    rows = run_fixture.workspace.stores.schedules
    made = await scheduled(rows, run_fixture.tenant, run_fixture.agent.id)
    run_fixture.model.say(says("First."), says("Second."))

    async with serving(run_fixture):
        await make_due(run_fixture, owner, made)
        await fired(run_fixture, made.id, runs=1)
    # While no process is there, its time comes.
    await make_due(run_fixture, owner, made)
    async with serving(run_fixture):
        await fired(run_fixture, made.id, runs=2)

    now = await rows.get(run_fixture.tenant, made.id)
    assert now.next_at == made.next_at
    messages = await run_fixture.runs.messages(run_fixture.tenant, now.last_session_id or run_fixture.session_id)
    assert [(one.role, one.content) for one in messages] == [("user", "Report."), ("assistant", "Second.")]


def own_threads() -> list[str]:
    """Name all threads, without those of pools, which grow to a fixed size by and by: their names end with a number."""
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if not name.rpartition("_")[2].isdigit())


@pytest.mark.long
async def test_ten_thousand_schedules_cost_no_thread(run_fixture: RunFixture, owner: psycopg.Connection) -> None:
    rows, tenant = run_fixture.workspace.stores.schedules, run_fixture.tenant
    async with serving(run_fixture):
        made = await scheduled(rows, tenant, run_fixture.agent.id)
        run_fixture.model.say(says("First."), says("Second."))
        await make_due(run_fixture, owner, made)
        await fired(run_fixture, made.id, runs=1)
        threads = own_threads()
        others = await someone(run_fixture.workspace.stores)
        other = await run_fixture.workspace.stores.workspaces.create(
            others, name="many", node=run_fixture.workspace.settings.node_name
        )
        owner.execute(
            """
            insert into toolcrib.schedules
                (workspace_id, id, name, cron, time_zone, agent_id, user_id, message, next_at)
            select %s, gen_random_uuid(), 'schedule ' || i, '0 0 1 1 *', 'UTC', gen_random_uuid(), %s, 'Report.',
                   date_trunc('minute', now()) + interval '30 days' + make_interval(mins => i)
            from generate_series(1, 10000) i
            """,
            (other.id, others.user_id),
        )

        took = []
        for number in range(TRIES):
            began = time.monotonic()
            await scheduled(rows, tenant, run_fixture.agent.id, name=f"one more {number}")
            took.append(time.monotonic() - began)
        await make_due(run_fixture, owner, made)
        await fired(run_fixture, made.id, runs=2)

        assert own_threads() == threads
        assert threading.active_count() < MOST_THREADS
        assert min(took) < 0.5
    owner.execute("delete from toolcrib.schedules where workspace_id = %s", (other.id,))
