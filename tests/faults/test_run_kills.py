"""Two servers under many runs, killed and stopped again and again: every run ends, nothing happens twice or by half."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tests.databases import DatabaseUrls
from tests.fakes.model_server import ModelServer
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.scripted import PROVIDERS, SHELL_TURNS, TURNS, folder
from tests.faults.server import Server
from tests.wait_until import PATIENCE

MOST_SECONDS = 1.0
AT_ONCE = 4
LEASE_SECONDS = 2
# Of the faults of the campaign; the others are kills. A stopped server continues after its runs were taken over.
STOPPED_SHARE = 0.2
ALIVE = f"heartbeat_at > now() - interval '{LEASE_SECONDS} s'"
TAKEN_OVER = f"""
select count(*) filter (where {ALIVE}) = 1 and not exists (
    select from toolcrib.runs r join toolcrib.server_processes p on p.id = r.worker_id
    where r.state = 'running' and not {ALIVE}
) from toolcrib.server_processes
"""
ALL_ALIVE = f"select count(*) filter (where {ALIVE}) = 2 from toolcrib.server_processes"
RULES = """
provider: {provider}
model: {provider}-fake
trust: autonomous
context_window: 1000000
tool_permissions:
  write: {{allowed: true}}
  edit: {{allowed: true}}
  ls: {{allowed: true}}
  plan_write: {{allowed: true}}
  bash: {{allowed: true}}
"""


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[list[Server]]:
    """Two processes of one node: one database, one disk."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(Server(tmp_path, urls)) for _ in range(2))
        # On a slow machine a run meets many kills before it finishes a step. It caused none of them.
        first.environment |= {"TOOLCRIB_HEARTBEAT_LEASE_SECONDS": str(LEASE_SECONDS), "TOOLCRIB_MAX_ATTEMPTS": "100"}
        first.environment |= {"TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*"}
        second.environment = first.environment
        first.start()
        second.start()
        yield [first, second]


async def test_ten_kills_of_either_of_two_servers_leave_every_run_consistent(
    servers: list[Server], urls: DatabaseUrls, model: ModelServer
) -> None:
    await kill_again_and_again(servers, urls, model, kills=10, seed=secrets.randbits(32))


@pytest.mark.crash
async def test_hundred_kills_and_stops_of_either_of_two_servers_leave_every_run_consistent(
    servers: list[Server], urls: DatabaseUrls, model: ModelServer
) -> None:
    await kill_again_and_again(servers, urls, model, kills=100, seed=secrets.randbits(32), stopped=STOPPED_SHARE)


async def kill_again_and_again(
    servers: list[Server], urls: DatabaseUrls, model: ModelServer, *, kills: int, seed: int, stopped: float = 0.0
) -> None:
    """Kill a server so many times, and stop one beyond its lease as often as ``stopped`` says, in addition."""
    random = Random(seed)
    campaign = await _campaign(servers, urls, model)
    killed = 0
    while killed < kills:
        try:
            await campaign.keep_busy()
            victim = random.choice(servers)
            if random.random() < stopped:
                await campaign.stop_until_taken_over(victim)
                continue
            await _killed_within(victim, random.uniform(0, MOST_SECONDS))
            killed += 1
            await asyncio.to_thread(victim.start)
        except AssertionError as error:
            error.add_note(f"after {killed} of {kills} kills, seed {seed}")
            raise
    try:
        await campaign.all_ended()
        campaign.check()
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise


async def _killed_within(server: Server, seconds: float) -> None:
    # The instant is random here; nothing is waited for.
    killed = asyncio.Event()

    def kill() -> None:
        server.kill()
        killed.set()

    asyncio.get_running_loop().call_later(seconds, kill)
    await killed.wait()


@dataclass
class Campaign:
    """Sessions with agents of every provider, and their tasks."""

    servers: list[Server]
    cluster: ServerCluster
    sessions: list[str]
    truth: Workspace
    tasks: int = 0

    async def keep_busy(self) -> None:
        """Submit tasks until enough are unfinished: a kill while idle shows nothing."""
        while self._unfinished() < AT_ONCE:
            server = self.servers[self.tasks % len(self.servers)]
            session = self.sessions[self.tasks % len(self.sessions)]
            await self.cluster.say(server, session, f"Task {self.tasks}")
            self.tasks += 1

    async def stop_until_taken_over(self, server: Server) -> None:
        server.freeze()
        try:
            async with asyncio.timeout(PATIENCE):
                while await asyncio.to_thread(self.truth.rows, TAKEN_OVER) != [(True,)]:
                    pass
        finally:
            server.thaw()
        # Until its next heartbeat the others end its sessions, and it answers 503: a load balancer leaves it out.
        async with asyncio.timeout(PATIENCE):
            while await asyncio.to_thread(self.truth.rows, ALL_ALIVE) != [(True,)]:
                pass

    async def all_ended(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while self._unfinished():
                await asyncio.to_thread(self._unfinished)

    def check(self) -> None:
        self._check_runs()
        self._check_files()
        self._check_calls()
        self.truth.assert_true()

    def _check_runs(self) -> None:
        runs = self.truth.rows(
            "select id, end_reason, error, epoch, turns from toolcrib.runs where workspace_id = %(workspace)s"
        )
        assert len(runs) == self.tasks
        assert [run for run in runs if run[1] != "done" or run[4] != TURNS + 1] == []
        # A campaign without a takeover shows little.
        assert sum(run[3] for run in runs) > len(runs)

    def _check_files(self) -> None:
        """Check that every write and every edit is there once, in the order of the model's calls."""
        for task in range(self.tasks):
            here = self.truth.project / folder(task)[1:]
            log = (here / "log.txt").read_text().split()
            assert log == [*map(str, range(TURNS)), "END"]
            for turn in range(TURNS):
                assert (here / f"{turn}.txt").read_text() == f"{task}-{turn}\n"
                assert len(self.truth.versions(f"{folder(task)}/{turn}.txt")) == 1
            assert len(self.truth.versions(f"{folder(task)}/log.txt")) == TURNS
            # Appending twice would show.
            assert (here / "shell.txt").read_text().split() == [*map(str, SHELL_TURNS)], self._commands()

    def _commands(self) -> str:
        """Return how the commands ended that did not succeed."""
        found = self.truth.rows(
            "select id, arguments, state, error, result from toolcrib.tool_calls "
            "where workspace_id = %(workspace)s and tool = 'bash' "
            "and (state <> 'done' or error is not null or change_set_id is null)"
        )
        return "\n".join(map(str, found))

    def _check_calls(self) -> None:
        calls = self.truth.rows(
            "select tool, state, count(*) from toolcrib.tool_calls where workspace_id = %(workspace)s group by 1, 2"
        )
        counts = {(tool, state): count for tool, state, count in calls}
        plans = list((self.truth.project / "plans").glob("*.plan"))
        # An undetermined outcome is shown as unknown, and was not executed.
        assert len(plans) == counts.get(("plan_write", "done"), 0)
        assert len(plans) + counts.pop(("plan_write", "unknown"), 0) == self.tasks
        assert {state for _, state in counts} == {"done"}
        twice = self.truth.rows(
            """
            select call_id, count(*) from toolcrib.audit_records
            where workspace_id = %(workspace)s and outcome = 'done' group by 1 having count(*) > 1
            """
        )
        result = self.truth.rows(
            """
            select payload ->> 'toolId', count(*) from toolcrib.events
            where workspace_id = %(workspace)s and type = 'tool-result' group by 1 having count(*) > 1
            """
        )
        assert (twice, result) == ([], [])

    def _unfinished(self) -> int:
        [(count,)] = self.truth.rows(
            "select count(*) from toolcrib.runs where workspace_id = %(workspace)s and state <> 'ended'"
        )
        return int(count)


async def _campaign(servers: list[Server], urls: DatabaseUrls, model: ModelServer) -> Campaign:
    here = servers[0]
    cluster = await ServerCluster.opened(here)
    agents = [
        await cluster.agent(here, model, RULES.format(provider=provider), provider=provider) for provider in PROVIDERS
    ]
    sessions = [await cluster.session(here, agent) for agent in agents for _ in range(2)]
    project = here.data_dir / "workspaces" / cluster.workspace / "project"
    return Campaign(servers, cluster, sessions, Workspace(urls.owner, UUID(cluster.workspace), project))
