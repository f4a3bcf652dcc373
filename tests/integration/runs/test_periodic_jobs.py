"""Jobs of the whole installation: one process does each when it is due, and the next due time always comes."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls, migrated_database, urls_of
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, guided, serving, stored
from tests.wait_until import PATIENCE
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.periodic_jobs import PeriodicJob, PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.server_processes import ServerProcessStore

LEASE = 2.0


class Entries:
    """A job of this test only, and its entries in the queue."""

    def __init__(self, urls: DatabaseUrls, database: Database) -> None:
        self.job = f"job-{new_id()}"
        self.store = PeriodicJobStore(database)
        self._url = urls.owner

    def of(self, *, status: str = "%") -> list[str]:
        return self._rows(
            "select workflow_uuid from dbos.workflow_status where workflow_uuid like %s and status like %s "
            "order by delay_until_epoch_ms",
            f"periodic/{self.job}/%",
            status,
        )

    def begin(self, process_id: ProcessId) -> None:
        """Let a process begin them: it dies at once."""
        self._rows(
            "update dbos.workflow_status set status = 'PENDING', executor_id = %s, application_name = 'toolcrib' "
            "where workflow_uuid like %s returning workflow_uuid",
            str(process_id),
            f"periodic/{self.job}/%",
        )

    def delete(self) -> None:
        self._delete(self.job)

    def delete_all(self) -> None:
        self._delete("%")

    def _delete(self, job: str) -> None:
        self._rows(
            "delete from dbos.workflow_status where workflow_uuid like %s returning workflow_uuid", f"periodic/{job}/%"
        )

    def _rows(self, statement: str, *parameters: Any) -> list[str]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return [row[0] for row in connection.execute(statement.encode(), parameters).fetchall()]


@pytest.fixture
def entries(database_urls: DatabaseUrls, database: Database) -> Entries:
    found = Entries(database_urls, database)
    # Servers that earlier tests killed have begun jobs, which a process without these jobs would keep for others.
    found.delete_all()
    return found


@asynccontextmanager
async def at_work(
    settings: Settings, database: Database, entries: Entries, work: Callable[[], Awaitable[object]], *, seconds: float
) -> AsyncIterator[ProcessId]:
    """Work the queue with one job, as a process of a node of its own."""
    periodic = PeriodicJobs(entries.store, [PeriodicJob(entries.job, seconds, work)])
    node = f"node-{new_id()}"

    async def nothing(*_: object) -> None: ...

    with ProcessHeartbeat.start(settings.system_url, node=node, lease=LEASE) as heartbeat:
        queue = DurableQueue(
            settings.system_url,
            node=node,
            process_id=heartbeat.id,
            slots=1,
            advance=nothing,
            start_queued=nothing,
            resume=nothing,
            fire=nothing,
            periodic=periodic,
        )
        working = asyncio.create_task(queue.run(ServerProcessStore(database), heartbeat))
        try:
            await queue.opened()
            yield heartbeat.id
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await periodic.stop()
            # No other test's process knows the job.
            entries.delete()


async def test_due_time_has_one_entry_however_many_processes_enter_it(entries: Entries) -> None:
    await asyncio.gather(*(entries.store.enter(entries.job, 3_600) for _ in range(8)))

    [entry] = entries.of(status="DELAYED")
    due = int(entry.rpartition("/")[2])
    assert due % 3_600_000 == 0
    # A process whose clock is ahead does the job too early. Its next due time is another one.
    await entries.store.enter(entries.job, 3_600, after_ms=due)
    assert entries.of() == [entry, f"periodic/{entries.job}/{due + 3_600_000}"]
    entries.delete()


@pytest.mark.long
async def test_job_that_fails_is_done_again_at_its_next_due_time(
    settings: Settings, database: Database, entries: Entries
) -> None:
    done: list[str] = []
    again = asyncio.Event()

    async def work() -> None:
        done.append("once")
        if len(done) == 1:
            raise RuntimeError("It fails.")
        again.set()

    async with at_work(settings, database, entries, work, seconds=1), asyncio.timeout(PATIENCE):
        await again.wait()


@pytest.mark.long
async def test_job_of_a_dead_process_is_done_by_the_next_one(
    settings: Settings, database: Database, entries: Entries
) -> None:
    await entries.store.enter(entries.job, 86_400)
    entries.begin(ProcessId(new_id()))
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    async with at_work(settings, database, entries, work, seconds=86_400), asyncio.timeout(PATIENCE):
        await done.wait()


async def test_job_that_a_living_process_has_begun_and_forgotten_is_done(
    settings: Settings, database: Database, entries: Entries
) -> None:
    """The queue gives an entry to a process, and the database is lost before the process has read it."""
    await entries.store.enter(entries.job, 86_400)
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    async with at_work(settings, database, entries, work, seconds=86_400) as process_id, asyncio.timeout(PATIENCE):
        entries.begin(process_id)
        await done.wait()


@pytest.mark.long
async def test_job_that_takes_longer_than_the_lease_is_not_begun_again(
    settings: Settings, database: Database, entries: Entries
) -> None:
    begun: list[str] = []
    is_late = asyncio.Event()

    async def work() -> None:
        begun.append("once")
        # The length is the case: the process has then looked at its entries more than once.
        asyncio.get_running_loop().call_later(3 * LEASE, is_late.set)
        await is_late.wait()

    await entries.store.enter(entries.job, 86_400)
    entries.begin(ProcessId(new_id()))
    async with at_work(settings, database, entries, work, seconds=86_400), asyncio.timeout(PATIENCE):
        await is_late.wait()
    assert begun == ["once"]


# A process that does one job, and prints a line each time.
_DOES_A_JOB = """
import asyncio, sys
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.periodic_jobs import PeriodicJob, PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.storage.database import Database
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.server_processes import ServerProcessStore

async def work():
    print("done", flush=True)

async def nothing(*_): ...

async def main(app, system, node, job):
    with ProcessHeartbeat.start(system, node=node, lease=6.0) as heartbeat:
        async with Database.open(app, system, pool_size=2) as database:
            queue = DurableQueue(
                system, node=node, process_id=heartbeat.id, slots=1, advance=nothing, start_queued=nothing,
                resume=nothing, fire=nothing,
                periodic=PeriodicJobs(PeriodicJobStore(database), [PeriodicJob(job, 1, work)]),
            )
            await queue.run(ServerProcessStore(database), heartbeat)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def own_urls() -> Iterator[DatabaseUrls]:
    """A database without the jobs of other tests' servers: a process keeps those that it does not know."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.mark.long
async def test_two_processes_do_a_job_once_each_time_and_one_goes_on_alone(
    own_urls: DatabaseUrls, database: Database
) -> None:
    entries = Entries(own_urls, database)
    done: asyncio.Queue[int] = asyncio.Queue()

    async def count(number: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while await process.stdout.readline():
            done.put_nowait(number)

    node = f"node-{new_id()}"
    arguments = [own_urls.app, own_urls.system, node, entries.job]
    pair = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DOES_A_JOB, *arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as counting:
            counters = [counting.create_task(count(number, process)) for number, process in enumerate(pair)]
            last = [await done.get() for _ in range(5)][-1]
            begun = len(entries.of()) - len(entries.of(status="DELAYED"))
            # A time that both would do has one entry, and so five results have at least five.
            assert begun >= 5
            pair[last].kill()
            await counters[last]
            while not done.empty():
                done.get_nowait()
            assert [await done.get() for _ in range(3)] == [1 - last] * 3
            pair[1 - last].kill()
    finally:
        for process in pair:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_server_ends_an_overdue_approval(workspace: WorkspaceFixture) -> None:
    approval = await asked(workspace, await guided(workspace))
    async with workspace.database.as_system() as connection:
        await connection.execute("update toolcrib.paused_calls set expires_at = now() where id = %s", (approval.id,))

    async with serving(workspace), asyncio.timeout(PATIENCE):
        while (await stored(workspace, approval.call_id)).state != "denied":
            pass
