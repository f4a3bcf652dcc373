"""Which runs start first: by priority within a workspace, by turns between workspaces."""

from tests.integration.storage.accounts import founded, someone
from toolcrib.core.runs import Run, RunState
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.wiring.tool_runtime import Stores


async def submit(stores: Stores, runs: RunStepStore, tenant: Tenant, priority: int = 100) -> Run:
    """Submit a message in a session of its own."""
    session = await stores.sessions.create(tenant)
    return await runs.submit(tenant, session.id, "Go.", via="test", priority=priority)


async def queue_order(database: Database, runs: list[Run]) -> list[Run]:
    """Return the runs in the order in which the durable queue starts them."""
    async with database.as_system() as connection:
        cursor = await connection.execute(
            """
            select split_part(workflow_uuid, '/', 1) from dbos.workflow_status
            where split_part(workflow_uuid, '/', 1) = any (%s) and status = 'ENQUEUED' order by priority, created_at
            """,
            ([str(run.id) for run in runs],),
        )
        by_id = {str(run.id): run for run in runs}
        return [by_id[id_] for (id_,) in await cursor.fetchall()]


async def test_queued_runs_of_a_workspace_start_by_priority_and_then_by_age(stores: Stores, database: Database) -> None:
    tenant = await founded(stores, await someone(stores))
    runs = RunStepStore(database, max_at_work=1)
    first = await submit(stores, runs, tenant)
    waiting = [await submit(stores, runs, tenant, priority) for priority in (500, 100, 100, 0, 100)]
    background, older, newer, urgent, newest = waiting

    started = []
    current: Run | None = first
    while current is not None:
        # It is ended as if it had been done; the next one starts.
        await runs.cancel(tenant, current.id)
        async with database.as_system() as connection:
            await connection.execute("update toolcrib.runs set state = 'ended' where id = %s", (current.id,))
        await runs.start_queued(tenant.workspace_id)
        found = await runs.page(tenant, state=RunState.READY)
        current = found[0] if found else None
        started += [run.id for run in found]

    assert started == [one.id for one in (urgent, older, newer, newest, background)]


async def test_no_priority_puts_a_workspace_before_another(stores: Stores, database: Database) -> None:
    greedy, modest = [await founded(stores, await someone(stores)) for _ in range(2)]
    of_greedy = [await submit(stores, stores.runs, greedy, 0) for _ in range(5)]
    of_modest = [await submit(stores, stores.runs, modest) for _ in range(2)]

    order = await queue_order(database, of_greedy + of_modest)

    assert order == [
        of_greedy[0],
        of_modest[0],
        of_greedy[1],
        of_modest[1],
        *of_greedy[2:],
    ]


async def test_background_work_comes_after_that_of_all_workspaces(stores: Stores, database: Database) -> None:
    one, other = [await founded(stores, await someone(stores)) for _ in range(2)]
    background = await submit(stores, stores.runs, one, 500)
    ordinary = [await submit(stores, stores.runs, other, 499) for _ in range(3)]

    order = await queue_order(database, [background, *ordinary])

    assert order == [*ordinary, background]


async def test_runs_that_were_left_behind_start_in_the_order_of_the_queue(stores: Stores, database: Database) -> None:
    greedy, modest = [await founded(stores, await someone(stores)) for _ in range(2)]
    background = await submit(stores, stores.runs, greedy, 500)
    of_greedy = [await submit(stores, stores.runs, greedy) for _ in range(3)]
    of_modest = await submit(stores, stores.runs, modest)
    mine = {run.id: run for run in (background, *of_greedy, of_modest)}

    found = await stores.runs.due(node="test-node", lease=60, limit=10_000)

    order = [mine[run_id] for _, run_id in found if run_id in mine]
    assert order == [of_greedy[0], of_modest, *of_greedy[1:], background]
