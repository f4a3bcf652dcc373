"""What is in no process and in no queue, after a failure that nobody foresaw, is found and put back."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, decide, guided
from tests.integration.runs.conftest import RunFixture
from tests.integration.runs.test_durable import at_work, ended
from tests.integration.runs.test_schedules import due, new_agent, scheduled
from toolcrib.core.ids import ProcessId, WorkspaceId, new_id
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.storage.database import OperationalError
from toolcrib.wiring.runs import periodic_jobs

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def owner(database_urls: DatabaseUrls) -> Iterator[psycopg.Connection]:
    """The database's owner, who sees the queue."""
    with psycopg.connect(database_urls.owner, autocommit=True) as connection:
        yield connection


async def look(workspace: WorkspaceFixture) -> None:
    """Do what the periodic job does."""
    await periodic_jobs(workspace.engine).do("requeue_unattended", 0)


def forget(owner: psycopg.Connection, entry: str) -> None:
    """Remove entries from the queue, as one that ended with an error."""
    owner.execute("delete from dbos.workflow_status where workflow_uuid like %s", (entry,))


def queued(owner: psycopg.Connection, entry: str) -> list[str]:
    found = owner.execute(
        "select workflow_uuid from dbos.workflow_status where workflow_uuid like %s"
        " and status in ('ENQUEUED', 'DELAYED')",
        (entry,),
    )
    return [row[0] for row in found.fetchall()]


async def test_schedule_without_an_entry_gets_one(workspace: WorkspaceFixture, owner: psycopg.Connection) -> None:
    agent_id = await new_agent(workspace, workspace.tenant)
    made = await scheduled(workspace.stores.schedules, workspace.tenant, agent_id)
    owner.execute("update toolcrib.schedules set next_at = %s where id = %s", (LONG_AGO, made.id))
    late = await workspace.stores.schedules.get(workspace.tenant, made.id)
    forget(owner, f"schedule/{made.id}/%")

    await look(workspace)

    assert queued(owner, f"schedule/{made.id}/%") == [f"schedule/{made.id}/{due(late)}"]


@pytest.mark.parametrize("claimed_by", [None, ProcessId(new_id())], ids=["free", "of a dead process"])
async def test_approved_call_without_an_entry_gets_one(
    workspace: WorkspaceFixture, owner: psycopg.Connection, claimed_by: ProcessId | None
) -> None:
    approval = await asked(workspace, await guided(workspace))
    await decide(workspace, approval)
    owner.execute("update toolcrib.paused_calls set claimed_by = %s where id = %s", (claimed_by, approval.id))
    forget(owner, f"call/{approval.id}/%")

    await look(workspace)
    await look(workspace)

    assert len(queued(owner, f"call/{approval.id}/%")) == 1


async def test_run_that_could_have_started_a_while_ago_starts(
    run_fixture: RunFixture, owner: psycopg.Connection
) -> None:
    run = await left_queued(run_fixture, owner)
    await look(run_fixture.workspace)
    assert (await run_fixture.run(run.id)).state is RunState.QUEUED

    owner.execute("update toolcrib.runs set created_at = %s where id = %s", (LONG_AGO, run.id))
    await look(run_fixture.workspace)

    assert (await run_fixture.run(run.id)).state is RunState.READY


async def test_queued_run_starts_although_the_database_is_lost_as_it_is_to_start(
    run_fixture: RunFixture, owner: psycopg.Connection
) -> None:
    """The queue asks for it once."""
    starts = run_fixture.runs.start_queued
    failed: list[WorkspaceId] = []

    async def start_queued(workspace_id: WorkspaceId) -> Any:
        if workspace_id == run_fixture.tenant.workspace_id and len(failed) < 2:
            failed.append(workspace_id)
            raise OperationalError("server closed the connection unexpectedly")
        return await starts(workspace_id)

    async def end(run: Run) -> None:
        await run_fixture.runs.end(run, RunEnding.DONE)

    run_fixture.runs.start_queued = start_queued  # type: ignore[method-assign]
    run = await left_queued(run_fixture, owner)
    async with at_work(run_fixture, execute=end):
        owner.execute("select toolcrib.start_queued_runs_later(%s)", (run.workspace_id,))
        done = await ended(run_fixture, run.id)

    assert len(failed) == 2
    assert done.end_reason is RunEnding.DONE


async def left_queued(run_fixture: RunFixture, owner: psycopg.Connection) -> Run:
    """Return a run that was skipped when it could have started."""
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    owner.execute("update toolcrib.runs set state = 'queued' where id = %s", (run.id,))
    owner.execute("delete from toolcrib.messages where run_id = %s", (run.id,))
    forget(owner, f"{run.id}/%")
    return await run_fixture.run(run.id)
