"""Three nodes in namespaces of their own under load and random faults: ``python -m tests.faults.nodes_campaign``.

The nodes have different names and disks. Clients write, read, run commands, undo and start runs through any node. After
every fault: each workspace is served again within the lease and five seconds, no acknowledged write is lost, nothing
happened twice, and no workspace was written from two sides. At the end each tree equals the history, byte for byte, and
the audit log verifies.
"""

import argparse
import asyncio
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import psycopg

from tests.databases import DatabaseUrls
from tests.fakes.model_server import ModelServer
from tests.faults import namespaces
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.database_server import DatabaseServer
from tests.faults.namespaces import AS_USER, Machine, Machines, center
from tests.faults.node_clients import LOG, WorkspaceClient, pause
from tests.faults.scripted import SHELL_TURNS, TURNS, folder, working_model
from tests.faults.server import Server
from tests.faults.test_run_kills import RULES
from tests.wait_until import PATIENCE
from toolcrib.storage import migrate

NODES = 3
PROVIDER = "openai-compatible"
# Notes from which address every change was committed, in which epoch, apart from what the program itself records.
_OBSERVER = """
create schema campaign;
create table campaign.commits (
    workspace_id uuid, change_set_id uuid, home_node text, home_epoch bigint, address inet
);
create function campaign.note() returns trigger language plpgsql security definer as $$
begin
    insert into campaign.commits
    select w.id, new.id, w.home_node, w.home_epoch, inet_client_addr()
    from toolcrib.workspaces w where w.id = new.workspace_id;
    return null;
end $$;
create trigger observed after insert or update on toolcrib.change_sets
    for each row when (new.state = 'committed') execute function campaign.note();
"""


@dataclass
class Node:
    """A server, the machine that it runs on, and its disk."""

    name: str
    server: Server
    machine: Machine
    directory: Path

    def empty_disk(self) -> None:
        shutil.rmtree(self.server.data_dir)


@dataclass
class Campaign:
    """The nodes that exist, the workspaces, and what happened."""

    directory: Path
    database: DatabaseServer
    machines: Machines
    random: Random
    lease: float
    within: float
    forwarding: bool
    only: str | None
    nodes: list[Node] = field(default_factory=list)
    clients: list[WorkspaceClient] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    _opened: ExitStack = field(default_factory=ExitStack)
    _secrets: dict[str, str] = field(default_factory=dict)
    _tasks: Iterator[int] = field(default_factory=count)

    def add_node(self) -> Node:
        """Start a node with a new name and an empty disk."""
        name = f"node-{len(self.addresses) + 1}"
        machine, directory = self.machines.connect(), self.directory / name
        directory.mkdir()
        server = self._opened.enter_context(Server(directory, self._urls, address=machine.addresses["clients"]))
        if not self._secrets:
            shared = ("TOOLCRIB_JWT_SECRET", "TOOLCRIB_AUDIT_SEAL_KEY")
            self._secrets = {secret: server.environment[secret] for secret in shared}
        server.program = [*machine.program, *server.program]
        server.environment |= self._secrets | {
            "TOOLCRIB_NODE_NAME": name,
            "TOOLCRIB_HOST": server.address,
            "TOOLCRIB_ALLOWED_HOSTS": server.address,
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": str(self.lease),
            "TOOLCRIB_TAKE_OVER_HOMES": "true",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "1",
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            # On a slow machine a run meets many faults before it finishes a step. It caused none of them.
            "TOOLCRIB_MAX_ATTEMPTS": "100",
        }
        if self.forwarding:
            server.environment |= {
                "TOOLCRIB_INTERNAL_HOST": machine.addresses["nodes"],
                "TOOLCRIB_INTERNAL_PORT": "3001",
            }
        server.start()
        self.addresses[name] = machine.addresses["database"]
        node = Node(name, server, machine, directory)
        self.nodes.append(node)
        return node

    def close(self) -> None:
        self._opened.close()

    @property
    def _urls(self) -> DatabaseUrls:
        direct = self.database.direct
        return DatabaseUrls(owner=direct("postgres"), app=direct(migrate.APP_ROLE), system=direct(migrate.SYSTEM_ROLE))

    async def open_workspaces(self, number: int, model: ModelServer) -> None:
        """Create workspaces, each with an agent for its runs, on one node after the other."""
        first = await ServerCluster.opened(self.nodes[0].server)
        for index in range(number):
            node = self.nodes[index % len(self.nodes)].server
            made = await first.send(node, "POST", "/workspaces", {"name": f"workspace {index}"})
            cluster = ServerCluster(first.token, made["id"])
            agent = await cluster.agent(node, model, RULES.format(provider=PROVIDER), provider=PROVIDER)
            client = WorkspaceClient(
                UUID(made["id"]), first.token, agent, lambda: [one.server for one in self.nodes],
                Random(self.random.random()), self.forwarding,
            )  # fmt: skip
            await client.call("write", path=LOG, content="")
            self.clients.append(client)

    # Faults

    async def kill(self, node: Node) -> str:
        """Kill a node for ever. Another one, with another name, replaces it once its workspaces are served again."""
        self.nodes.remove(node)
        node.server.kill()
        said = await self._served_again()
        node.machine.close()
        await asyncio.to_thread(self.add_node)
        return said

    async def freeze(self, node: Node) -> str:
        """Stop a node for a while, often for longer than its lease. It does not notice."""
        node.server.freeze()
        try:
            return await self._lasting()
        finally:
            node.server.thaw()

    async def cut_off_database(self, node: Node) -> str:
        return await self._cut(node, "database")

    async def cut_off_nodes(self, node: Node) -> str:
        return await self._cut(node, "nodes")

    async def lose_disk(self, node: Node) -> str:
        """Kill a node, empty its disk, and start it again under its name."""
        node.server.kill()
        node.empty_disk()
        said, _ = await asyncio.gather(self._served_again(), asyncio.to_thread(node.server.start))
        return said

    async def _cut(self, node: Node, network: str) -> str:
        node.machine.cut(network)
        try:
            return await self._lasting()
        finally:
            node.machine.join(network)

    async def _lasting(self) -> str:
        """Let a fault last, and check meanwhile that all workspaces are served again in time."""
        seconds = self.random.uniform(0.2, 2) * self.lease
        said, _ = await asyncio.gather(self._served_again(), pause(seconds))
        return f"for {seconds:.1f} s, {said}"

    async def _served_again(self) -> str:
        took = max(await asyncio.gather(*(self._served_after(client) for client in self.clients)))
        self.slowest = max(self.slowest, took)
        return f"all served after {took:.1f} s"

    async def _served_after(self, client: WorkspaceClient) -> float:
        """Ask all nodes until one serves the workspace. Returns the seconds."""
        began, limit = time.monotonic(), self.lease + self.within
        asking = {asyncio.create_task(self._asked(client, node.server)) for node in self.nodes}
        try:
            async with asyncio.timeout(limit):
                _, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            why = {node.name: await client.probe(node.server) for node in self.nodes}
            raise AssertionError(f"{client.id} is not served after {limit:.1f} s: {why}{self._logs()}") from None
        finally:
            for one in asking:
                one.cancel()
        return time.monotonic() - began

    async def _asked(self, client: WorkspaceClient, node: Server) -> None:
        while await client.probe(node) is not None:
            await pause(0.1)

    async def run(self, faults: int) -> None:
        """Cause so many faults under load, with checks after each."""
        stop = asyncio.Event()
        kinds = [self.kill, self.freeze, self.cut_off_database, self.cut_off_nodes, self.lose_disk]
        kinds = [kind for kind in kinds if self.only in (None, kind.__name__)]
        async with asyncio.TaskGroup() as load:
            for client in self.clients:
                is_idle = partial(self._is_idle, client)
                load.create_task(client.work(stop, lambda: next(self._tasks), is_idle))
            for number in range(1, faults + 1):
                await pause(self.random.uniform(0, 1))
                node, fault = self.random.choice(self.nodes), self.random.choice(kinds)
                name = f"{fault.__name__.replace('_', ' ')} of {node.name}"
                try:
                    said = await fault(node)
                    await asyncio.to_thread(self._check)
                except AssertionError as error:
                    error.add_note(f"fault {number} of {faults}: {name}")
                    raise
                self.faults[fault.__name__] += 1
                _say(f"{number}/{faults} {name}: {said}")
            stop.set()

    def _is_idle(self, client: WorkspaceClient) -> bool:
        return _unfinished(self._truth(client)) == 0

    def _check(self) -> None:
        for client in self.clients:
            client.check(self._truth(client))
        self._check_sides()

    def _check_sides(self) -> None:
        """Check that every change came from the node that was the workspace's home at that moment."""
        with psycopg.connect(self.database.direct("postgres")) as connection:
            commits = connection.execute(
                "select distinct workspace_id, home_epoch, home_node, host(address) from campaign.commits"
            ).fetchall()
        wrong = [row for row in commits if self.addresses[row[2]] != row[3]]
        assert not wrong, f"written by another node than the home: {wrong}"
        homes = Counter((workspace, epoch) for workspace, epoch, _, _ in commits)
        assert not [key for key, number in homes.items() if number > 1], "one epoch, and two nodes"

    async def check_end(self) -> None:
        """Wait until nothing is at work, and check everything."""
        for client in self.clients:
            truth = self._truth(client)
            async with asyncio.timeout(2 * PATIENCE):
                while await asyncio.to_thread(_unfinished, truth) or await asyncio.to_thread(_pending, truth):
                    await pause(0.2)
            # A home that took over builds the whole tree when a command needs it.
            await client.call("bash", command="true")
        self._check_sides()
        for client in self.clients:
            truth = self._truth(client)
            client.check_end(truth)
            truth.assert_true()
            _check_runs(truth, client)
        for node in self.nodes:
            verified = await asyncio.to_thread(node.server.command, "audit", "verify", "--json")
            assert verified.returncode == 0, verified.stdout + verified.stderr

    def figures(self) -> str:
        counts = sum((client.counts for client in self.clients), Counter[str]())
        return (
            f"faults: {dict(sorted(self.faults.items()))}\n"
            f"nodes: {len(self.addresses)}; served again after at most {self.slowest:.1f} s (lease {self.lease} s)\n"
            f"load: {dict(sorted(counts.items()))}"
        )

    def _truth(self, client: WorkspaceClient) -> Workspace:
        owner = self.database.direct("postgres")
        rows = Workspace(owner, client.id, self.directory).rows(
            "select home_node from toolcrib.workspaces where id = %(workspace)s"
        )
        return Workspace(
            owner, client.id, self.directory / rows[0][0] / "data" / "workspaces" / str(client.id) / "project"
        )

    def _logs(self) -> str:
        """The ends of the nodes' logs, for a report."""
        return "".join(f"\n--- {node.name}\n{node.server.logged()[-2_000:]}" for node in self.nodes)


def _check_runs(truth: Workspace, client: WorkspaceClient) -> None:
    """Check that every run ended well, and that each of its effects is there once and in order."""
    runs = truth.rows("select prompt, end_reason, error, turns from toolcrib.runs where workspace_id = %(workspace)s")
    assert [run for run in runs if run[1] != "done" or run[3] != TURNS + 1] == []
    tasks = {int(prompt.removeprefix("Task ")) for prompt, *_ in runs}
    assert client.told.tasks <= tasks <= client.told.tasks | client.told.unknown_tasks
    assert len(tasks) == len(runs), "a message was stored twice"
    for task in tasks:
        here = truth.project / folder(task)[1:]
        assert (here / "log.txt").read_text().split() == [*map(str, range(TURNS)), "END"]
        assert (here / "shell.txt").read_text().split() == [*map(str, SHELL_TURNS)]
        for turn in range(TURNS):
            assert len(truth.versions(f"{folder(task)}/{turn}.txt")) == 1


def _unfinished(truth: Workspace) -> int:
    [(number,)] = truth.rows(
        "select count(*) from toolcrib.runs where workspace_id = %(workspace)s and state <> 'ended'"
    )
    return int(number)


def _pending(truth: Workspace) -> int:
    [(number,)] = truth.rows("select count(*) from toolcrib.pending_applies where workspace_id = %(workspace)s")
    return int(number)


@contextmanager
def campaign(directory: Path, given: argparse.Namespace) -> Iterator[Campaign]:
    """Open the machines and the database, with as many nodes as usual."""
    with ExitStack() as opened:
        machines = opened.enter_context(Machines())
        database = DatabaseServer(directory, address=center("database"), program=AS_USER)
        opened.enter_context(database)
        with psycopg.connect(database.direct("postgres")) as connection:
            connection.execute(_OBSERVER)
        made = Campaign(
            directory, database, machines, Random(given.seed), given.lease, given.within, given.forwarding, given.only
        )
        opened.callback(made.close)
        for _ in range(NODES):
            made.add_node()
        yield made


async def _play(made: Campaign, given: argparse.Namespace) -> None:
    with working_model(center("clients")) as model:
        await made.open_workspaces(given.workspaces, model)
        try:
            await made.run(given.faults)
            await made.check_end()
        finally:
            _say(made.figures())


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the report of a campaign


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--workspaces", type=int, default=4)
    parser.add_argument("--lease", type=float, default=3.0, help="seconds")
    parser.add_argument("--within", type=float, default=5.0, help="seconds after the lease until all is served again")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--forwarding", action="store_true", help="nodes forward requests; clients rely on it")
    parser.add_argument("--only", help="one kind of fault, such as cut_off_database")
    given = parser.parse_args(arguments)
    if not namespaces.is_inside():
        seed = secrets.randbits(32) if given.seed is None else given.seed
        namespaces.enter(__spec__.name, [*arguments, "--seed", str(seed)])
    # The first process of a namespace gets only signals that it handles. A shell may have told it to ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    _say(f"seed {given.seed}")
    began = time.monotonic()
    kept = tempfile.TemporaryDirectory(prefix="toolcrib-nodes-", ignore_cleanup_errors=True)
    with kept as directory, campaign(Path(directory), given) as made:
        asyncio.run(_play(made, given))
    _say(f"{given.faults} faults in {time.monotonic() - began:.0f} s: nothing lost, nothing twice")
    _say(f"{given.faults} tried, {given.faults} held")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
