"""``kill -9`` at every row that is written for child runs and schedules: each ends once. Cancelling ends them all."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.fakes import strictness
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.node_clients import pause
from tests.faults.scripted import said
from tests.faults.server import Server
from tests.faults.write_points import WritePoints
from tests.wait_until import PATIENCE, TRIES

RULES = """
provider: openai-compatible
model: fake
trust: autonomous
context_window: 1000000
tool_permissions:
  write: {allowed: true}
  bash: {allowed: true}
  run_agent: {allowed: true}
"""
TABLES = (
    "toolcrib.runs",
    "toolcrib.sessions",
    "toolcrib.messages",
    "toolcrib.tool_calls",
    "toolcrib.change_sets",
    "toolcrib.schedules",
    "toolcrib.model_usage",
    "dbos.workflow_status",
)
# A run with two children, one of which has a child of its own.
RUNS = 4
# The points of the quick tests, among those that a first pass counts.
FEW = 4
LOOK_SECONDS = 0.02


def answer(request: Received) -> Answer:
    """Answer by the first message of a conversation, and by how often the model has answered there."""
    if "messages" not in request.body:
        return plain(200, {"object": "list", "data": []})
    if refusal := strictness.openai_refusal(request.body):
        return plain(400, {"error": {"message": refusal}})
    messages: list[dict[str, Any]] = request.body["messages"]
    [task, *_] = [str(one["content"]) for one in messages if one["role"] == "user"]
    answered = len([one for one in messages if one["role"] == "assistant"])
    found = re.fullmatch(r"(\w+) (\d+)", task)
    assert found is not None, task
    name, number = found[1], found[2]
    turns: dict[str, list[Answer]] = {
        "Go": [said("", _child(f"Left {number}"), _child(f"Right {number}")), said("All done.")],
        "Left": [
            said("", ("write", {"path": f"/{number}/left.txt", "content": "left\n"})),
            said("", _child(f"Deep {number}")),
            said("Left is done."),
        ],
        "Right": [said("", _appends(number, "right")), said("Right is done.")],
        "Deep": [said("", _appends(number, "deep")), said("Deep is done.")],
        "Report": [said("", _appends(number, "report")), said("Reported.")],
    }
    if name == "Wide":
        return said("", *(_child(f"Down{at} {number}") for at in range(3)))
    if name.startswith("Down"):
        return said("", _child(f"Lower{name[-1]} {number}"))
    if name.startswith("Lower"):
        return said("", _child(f"Hang{name[-1]} {number}"))
    if name == "Hang1":
        return said("", ("bash", {"command": "sleep 600"}))
    if name.startswith("Hang"):
        return Answer(said("These words were shown. These were not.").pieces[:3], hang=True)
    return turns[name][answered]


def _child(task: str) -> tuple[str, dict[str, Any]]:
    return "run_agent", {"task": task}


def _appends(number: str, word: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": f"mkdir -p {number} && echo {word} >> {number}/{word}.txt"}


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=answer)) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        # It caused none of the kills that its runs meet.
        server.environment |= {
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2",
            "TOOLCRIB_MAX_ATTEMPTS": "100",
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "600",
        }
        server.start()
        yield server


@pytest.fixture
async def points(urls: DatabaseUrls) -> AsyncIterator[WritePoints]:
    async with await psycopg.AsyncConnection.connect(urls.owner, autocommit=True) as owner:
        yield await WritePoints.made(owner, *TABLES)


@dataclass
class Office:
    """A workspace with an agent that starts child runs, at a server that is killed."""

    server: Server
    cluster: ServerCluster
    points: WritePoints
    agent: str
    truth: Workspace
    # Looks are many, and a connection for each would take the processor from the servers.
    database: psycopg.AsyncConnection

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, server: Server, urls: DatabaseUrls, model: ModelServer, points: WritePoints
    ) -> AsyncIterator["Office"]:
        cluster = await ServerCluster.opened(server)
        agent = await cluster.agent(server, model, RULES, provider="openai-compatible")
        project = server.data_dir / "workspaces" / cluster.workspace / "project"
        truth = Workspace(urls.owner, UUID(cluster.workspace), project)
        async with await psycopg.AsyncConnection.connect(urls.owner, autocommit=True) as database:
            yield cls(server, cluster, points, agent, truth, database)

    async def killed_at(self, point: int, work: asyncio.Task[Any], *, commits: bool) -> bool:
        """Kill the server at the point and start it again. Returns False if all runs ended before."""
        async with asyncio.timeout(PATIENCE):
            while await self.points.reached() is None:
                if work.done() and await self.points.counted() < point and await self._is_idle():
                    return False
                await pause(LOOK_SECONDS)
        await self.points.kill(self.server, commits=commits)
        await asyncio.to_thread(self.server.start)
        return True

    async def all_ended(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self._is_idle():
                await pause(LOOK_SECONDS)

    async def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return await (await self.database.execute(query.encode(), parameters)).fetchall()

    async def _is_idle(self) -> bool:
        """Whether no run is unfinished, and the queue has nothing that is due."""
        [(count,)] = await self.rows(
            """
            select (select count(*) from toolcrib.runs where state <> 'ended')
                 + (select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING'))
            """
        )
        return int(count) == 0


@pytest.fixture
async def office(server: Server, urls: DatabaseUrls, model: ModelServer, points: WritePoints) -> AsyncIterator[Office]:
    async with Office.opened(server, urls, model, points) as office:
        yield office


def chosen(count: int) -> list[int]:
    """A few points, spread over all of them, other ones each time."""
    first = secrets.randbelow(max(1, count // FEW))
    return [1 + first + at * count // FEW for at in range(FEW)]


# Child runs


@pytest.mark.long
async def test_child_runs_of_a_server_killed_at_a_few_of_their_rows_end_once(office: Office) -> None:
    count = await children_killed_at(office, 0, number=0, commits=False)
    for number, point in enumerate(chosen(count), start=1):
        await children_killed_at(office, point, number=number, commits=number % 2 == 0)
    office.truth.assert_true()


@pytest.mark.crash
@pytest.mark.parametrize("commits", [False, True], ids=["before a commit", "in a commit"])
async def test_child_runs_of_a_server_killed_at_every_row_end_once(office: Office, *, commits: bool) -> None:
    count = await children_killed_at(office, 0, number=0, commits=commits)
    assert count > RUNS * 10
    for point in range(1, count + 1):
        await children_killed_at(office, point, number=point, commits=commits)
    office.truth.assert_true()


@pytest.mark.crash
async def test_child_runs_of_a_server_killed_again_and_again_end_once(office: Office) -> None:
    """A kill every few rows, so that what continues after a kill is killed too."""
    random = Random(seed := secrets.randbits(32))
    for number in range(10):
        work = asyncio.create_task(go(office, number))
        while True:
            await office.points.count_to(point := random.randint(1, 25))
            if not await office.killed_at(point, work, commits=random.random() < 0.5):
                break
        await office.all_ended()
        try:
            await check_children(office, number)
        except AssertionError as error:
            error.add_note(f"seed {seed}, number {number}")
            raise


async def children_killed_at(office: Office, point: int, *, number: int, commits: bool) -> int:
    """Let a run with child runs be killed at one point. Returns how many rows were written."""
    await office.points.count_to(point)
    work = asyncio.create_task(go(office, number))
    try:
        if point:
            await office.killed_at(point, work, commits=commits)
        await work
        await office.all_ended()
        await check_children(office, number)
    except AssertionError as error:
        error.add_note(f"point {point}, commits {commits}")
        raise
    return await office.points.counted()


async def go(office: Office, number: int) -> None:
    """Send the message until it was stored. It may be stored, and its sender not know it."""
    is_sent = "select from toolcrib.runs where prompt = %(prompt)s"
    while not await office.rows(is_sent, prompt=f"Go {number}"):
        with suppress(httpx2.TransportError):
            session = await office.cluster.session(office.server, office.agent)
            await office.cluster.say(office.server, session, f"Go {number}")


async def check_children(office: Office, number: int) -> None:
    runs = await office.rows(
        "select prompt, end_reason, turns, child_turns from toolcrib.runs where prompt ~ %(number)s order by prompt",
        number=f" {number}$",
    )
    assert runs == [
        (f"Deep {number}", "done", 2, 0),
        (f"Go {number}", "done", 2, 7),
        (f"Left {number}", "done", 3, 2),
        (f"Right {number}", "done", 2, 0),
    ]
    results = await office.rows(
        """
        select k.prompt, count(*), min(c.state), min(c.result ->> 'text') from toolcrib.tool_calls c
        join toolcrib.runs k on k.parent_call_id = c.id
        join toolcrib.events e on e.type = 'tool-result' and e.payload ->> 'toolId' = c.id::text
        where k.prompt ~ %(number)s group by 1 order by 1
        """,
        number=f" {number}$",
    )
    assert results == [(f"{name} {number}", 1, "done", f"{name} is done.") for name in ("Deep", "Left", "Right")]
    await check_calls(office, number, runs=RUNS, calls=6)
    await check_usage(office, number)
    for word in ("left", "right", "deep"):
        path = f"/{number}/{word}.txt"
        assert (office.truth.project / path[1:]).read_text() == f"{word}\n"
        assert len(office.truth.versions(path)) == 1


async def check_calls(office: Office, number: int, *, runs: int, calls: int) -> None:
    """Check that each run has one session and one end, and that each call was executed and recorded once."""
    [found] = await office.rows(
        """
        select count(distinct r.id), count(distinct r.session_id), count(distinct c.id),
               (select count(*) from toolcrib.audit_records a
                where a.call_id = any (array_agg(c.id)) and a.outcome = 'done'),
               (select count(*) from toolcrib.events e where e.session_id = any (array_agg(r.session_id))
                and e.type = 'run-state' and e.payload ->> 'state' = 'ended'),
               array_agg(distinct c.state)
        from toolcrib.runs r join toolcrib.tool_calls c on c.workspace_id = r.workspace_id and c.run_id = r.id
        where r.prompt ~ %(number)s
        """,
        number=f" {number}$",
    )
    assert found == (runs, runs, calls, calls, runs, ["done"])


async def check_usage(office: Office, number: int) -> None:
    """Check that each turn is counted once: in its run, in the runs above it, and in the sums of the workspace."""
    tokens = await office.rows(
        """
        select split_part(prompt, ' ', 1), input_tokens + output_tokens, child_tokens from toolcrib.runs
        where prompt ~ %(number)s order by 1
        """,
        number=f" {number}$",
    )
    own = {name: used for name, used, _ in tokens}
    assert all(used > 0 for used in own.values())
    assert {name: below for name, _, below in tokens} == {
        "Deep": 0, "Go": own["Left"] + own["Right"] + own["Deep"], "Left": own["Deep"], "Right": 0,
    }  # fmt: skip
    sums = await office.rows(
        """
        select u.kind, sum(u.input_tokens + u.output_tokens) = (select sum(input_tokens + output_tokens)
                                                                from toolcrib.runs)
        from toolcrib.model_usage u group by 1 order by 1
        """
    )
    assert sums == [(kind, True) for kind in ("agent", "model", "session", "workspace")]


# Schedules


@pytest.mark.long
async def test_schedule_of_a_server_killed_at_a_few_of_its_rows_fires_once(office: Office) -> None:
    count = await schedule_killed_at(office, 0, number=0, commits=False)
    for number, point in enumerate(chosen(count), start=1):
        await schedule_killed_at(office, point, number=number, commits=number % 2 == 0)
    office.truth.assert_true()


@pytest.mark.crash
@pytest.mark.parametrize("commits", [False, True], ids=["before a commit", "in a commit"])
async def test_schedule_of_a_server_killed_at_every_row_fires_once(office: Office, *, commits: bool) -> None:
    count = await schedule_killed_at(office, 0, number=0, commits=commits)
    assert count > 10
    for point in range(1, count + 1):
        await schedule_killed_at(office, point, number=point, commits=commits)
    office.truth.assert_true()


async def schedule_killed_at(office: Office, point: int, *, number: int, commits: bool) -> int:
    """Let a schedule's time come, with a kill at one point. Returns how many rows were written."""
    # The last point may be one that was not reached: some rows are written by the clock.
    await office.points.count_to(0)
    made = await office.cluster.send(
        office.server,
        "POST",
        office.cluster.at("schedules"),
        {"name": f"s{number}", "cron": "0 0 1 1 *", "agent_id": office.agent, "message": f"Report {number}"},
    )
    await office.points.count_to(point)
    # As if its time had come.
    due = int(time.time())
    work = asyncio.create_task(office.rows(COMES_NOW, id=made["id"], due=datetime.fromtimestamp(due, UTC)))
    try:
        if point:
            await office.killed_at(point, work, commits=commits)
        await work
        await fired(office, made["id"])
        await office.all_ended()
        await check_schedule(office, number, made["id"], due)
    except AssertionError as error:
        error.add_note(f"point {point}, commits {commits}")
        raise
    return await office.points.counted()


COMES_NOW = "update toolcrib.schedules set next_at = %(due)s where id = %(id)s returning id"


async def fired(office: Office, schedule: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await office.rows(
            "select from toolcrib.schedules where id = %(id)s and last_at is not null", id=schedule
        ):
            await pause(LOOK_SECONDS)


async def check_schedule(office: Office, number: int, schedule: str, due: int) -> None:
    [(next_at, error, session, run)] = await office.rows(
        "select next_at, last_error, last_session_id, last_run_id from toolcrib.schedules where id = %(id)s",
        id=schedule,
    )
    assert (error, next_at.month, next_at.day) == (None, 1, 1)
    runs = await office.rows(
        "select id, session_id, end_reason, turns from toolcrib.runs where prompt = %(prompt)s",
        prompt=f"Report {number}",
    )
    assert runs == [(run, session, "done", 2)]
    titled = await office.rows("select id from toolcrib.sessions where title = %(title)s", title=f"s{number}")
    assert titled == [(session,)]
    entries = await office.rows(
        "select workflow_uuid, status from dbos.workflow_status where workflow_uuid ~ %(id)s order by workflow_uuid",
        id=f"^schedule/{schedule}/",
    )
    assert entries == [
        (f"schedule/{schedule}/{due}", "SUCCESS"),
        (f"schedule/{schedule}/{int(next_at.timestamp())}", "DELAYED"),
    ]
    await check_calls(office, number, runs=1, calls=1)
    assert (office.truth.project / str(number) / "report.txt").read_text() == "report\n"


# Cancelling


async def test_cancelling_ends_all_descendants_of_two_servers_within_two_seconds(
    tmp_path: Path, server: Server, urls: DatabaseUrls, model: ModelServer
) -> None:
    """Three branches of depth 3: models that stream, and a command that sleeps. Either server executes some of them."""
    (tmp_path / "other").mkdir()
    with Server(tmp_path / "other", urls) as other:
        other.environment = server.environment
        await asyncio.to_thread(other.start)
        cluster = await ServerCluster.opened(server)
        agent = await cluster.agent(server, model, RULES, provider="openai-compatible")
        truth = Workspace(urls.owner, UUID(cluster.workspace), server.data_dir)
        took = []
        for number in range(TRIES):
            session = await cluster.session(server, agent)
            run = await cluster.say(server, session, f"Wide {number}")
            await until(truth, AT_WORK, [(7, 2, 1)], number=number)
            began = time.monotonic()
            await cluster.send(other, "POST", cluster.at(f"runs/{run}/cancel"))
            await until(truth, ENDED, [("cancelled", 10)], number=number)
            took.append(time.monotonic() - began)
            assert truth.rows(OPEN_CALLS) == [(0,)]
            if took[-1] < 2:
                break
        assert min(took) < 2


# Runs that wait for a child, that stream, and commands that are executed.
AT_WORK = """
select count(*) filter (where state = 'waiting'),
       count(*) filter (where state = 'running' and prompt ~ '^Hang[02]'),
       (select count(*) from toolcrib.tool_calls where tool = 'bash' and state = 'running')
from toolcrib.runs where prompt ~ (' ' || %(number)s || '$')
"""
ENDED = "select end_reason, count(*) from toolcrib.runs where prompt ~ (' ' || %(number)s || '$') group by 1"
OPEN_CALLS = "select count(*) from toolcrib.tool_calls where ended_at is null"


async def until(truth: Workspace, query: str, expected: list[tuple[Any, ...]], **parameters: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(lambda: truth.rows(query, **parameters)) != expected:
            await pause(LOOK_SECONDS)
