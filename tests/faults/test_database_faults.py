"""Faults of the database under many runs: what a model was told about each call is what happened, exactly once."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.fakes.model_server import ModelServer
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.database_server import DatabaseServer
from tests.faults.scripted import SHELL_TURNS, TURNS, folder, task_of
from tests.faults.server import Server
from tests.faults.test_run_kills import RULES
from tests.wait_until import PATIENCE

PROVIDER = "openai-compatible"
MOST_SECONDS = 1.0


@pytest.fixture
def database_server(tmp_path: Path) -> Iterator[DatabaseServer]:
    with DatabaseServer(tmp_path) as started:
        yield started


@pytest.fixture
def server(tmp_path: Path, database_server: DatabaseServer) -> Iterator[Server]:
    with Server(tmp_path, database_server.urls) as server:
        server.environment |= {"TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*"}
        server.start()
        yield server


async def test_four_faults_of_the_database_are_never_results_of_tools(
    server: Server, database_server: DatabaseServer, model: ModelServer
) -> None:
    await fail_again_and_again(server, database_server, model, faults=4, at_once=3, seed=secrets.randbits(32))


@pytest.mark.crash
async def test_hundred_faults_of_the_database_are_never_results_of_tools(
    server: Server, database_server: DatabaseServer, model: ModelServer
) -> None:
    await fail_again_and_again(server, database_server, model, faults=100, at_once=12, seed=secrets.randbits(32))


async def fail_again_and_again(
    server: Server, database_server: DatabaseServer, model: ModelServer, *, faults: int, at_once: int, seed: int
) -> None:
    random = Random(seed)
    campaign = await _campaign(server, database_server, at_once, model)
    kinds = list(database_server.faults)
    for number in range(faults):
        await campaign.keep_busy(at_once)
        kind = kinds[number % len(kinds)]
        # The instant is random here; nothing is waited for.
        moment = asyncio.Event()
        asyncio.get_running_loop().call_later(random.uniform(0, MOST_SECONDS), moment.set)
        await moment.wait()
        await asyncio.to_thread(database_server.faults[kind])
        campaign.faults[kind] += 1
    try:
        await campaign.all_ended()
        campaign.check(model)
        print(f"\n{faults} tried, {faults} held")  # noqa: T201 - for the table of the campaigns
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        print(campaign.figures())  # noqa: T201 - the figures of a campaign, shown with -s


@dataclass(frozen=True)
class ToldCall:
    """A call as the model sees it: what it requested, and the result that it was given."""

    task: int
    turn: int
    tool: str
    result: str

    @property
    def outcome(self) -> str:
        """``done``, ``unknown``, or the text of the failure. Successful results are JSON, or what a command printed."""
        if "it is unknown whether it took effect" in self.result:
            return "unknown"
        if self.tool == "bash" and self.result == "(nothing)":
            return "done"
        try:
            result = json.loads(self.result)
        except ValueError:
            return self.result
        failed = isinstance(result, dict) and (result.get("error") or result.get("is_error"))
        return self.result if failed else "done"


@dataclass
class Campaign:
    """Sessions with one agent, their tasks, and the truth on disk and in the database."""

    server: Server
    cluster: ServerCluster
    sessions: list[str]
    truth: Workspace
    submitted: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def keep_busy(self, at_once: int) -> None:
        """Submit tasks until enough are unfinished. One that failed to be submitted may still have been stored."""
        for _ in range(100 * at_once):
            if self._unfinished() >= at_once:
                return
            number, self.submitted = self.submitted, self.submitted + 1
            try:
                await self.cluster.say(self.server, self.sessions[number % len(self.sessions)], f"Task {number}")
            except (AssertionError, httpx2.HTTPError):
                continue
        raise AssertionError(f"Runs cannot be started:\n{self.server.logged()[-3_000:]}")

    async def all_ended(self) -> None:
        async with asyncio.timeout(2 * PATIENCE):
            while self._unfinished() or self._pending():
                await asyncio.to_thread(self._unfinished)

    def check(self, model: ModelServer) -> None:
        runs = self.truth.rows(
            "select id, end_reason, error, turns from toolcrib.runs where workspace_id = %(workspace)s"
        )
        assert [run for run in runs if run[1] != "done" or run[3] != TURNS + 1] == []
        calls = told_calls(model)
        self.told = Counter((call.tool, call.outcome[:200]) for call in calls)
        tasks = sorted({call.task for call in calls})
        assert len(tasks) == len(runs)
        assert len(calls) == len(tasks) * (3 * TURNS + len(SHELL_TURNS) + 1)
        wrong = [
            (call, count)
            for call in calls
            if (count := self._effects(call)) not in ((0, 1) if call.outcome == "unknown" else (1,))
            or call.outcome not in ("done", "unknown")
        ]
        assert wrong == [], "told to the model, and how often it happened"
        self._check_nothing_else_happened(tasks, calls)
        self.truth.assert_true()

    def _effects(self, call: ToldCall) -> int:
        """How often the effect of a call is on disk; for reading, once."""
        here = self.truth.project / folder(call.task)[1:]
        match call.tool:
            case "write" if call.turn == 0:
                return int((here / "log.txt").exists() and (here / "0.txt").read_text() == f"{call.task}-0\n")
            case "write":
                path = here / f"{call.turn}.txt"
                return int(path.exists() and path.read_text() == f"{call.task}-{call.turn}\n")
            case "edit":
                return (here / "log.txt").read_text().split().count(str(call.turn))
            case "bash":
                return (here / "shell.txt").read_text().split().count(str(call.turn))
            case "plan_write":
                plans = (self.truth.project / "plans").glob("*.plan")
                return sum(f"Plan of task {call.task}\n" in f"{path.read_text()}\n" for path in plans)
            case _:
                return 1

    def _check_nothing_else_happened(self, tasks: list[int], calls: list[ToldCall]) -> None:
        """Check the history: one version for each change, one record and one event for each call."""
        for task in tasks:
            log = self.truth.project / folder(task)[1:] / "log.txt"
            assert log.read_text().split() == [*map(str, range(TURNS)), "END"]
            assert len(self.truth.versions(f"{folder(task)}/log.txt")) == TURNS
            for turn in range(TURNS):
                assert len(self.truth.versions(f"{folder(task)}/{turn}.txt")) == 1
        plans = len(list((self.truth.project / "plans").glob("*.plan")))
        done = sum(call.tool == "plan_write" and call.outcome == "done" for call in calls)
        assert plans >= done
        self.truth.assert_nothing_twice()

    def figures(self) -> str:
        """What was done and what was told, for the report of a campaign."""
        return f"faults: {dict(self.faults)}; tasks submitted: {self.submitted}; told: {dict(self.told)}"

    def _unfinished(self) -> int:
        [(count,)] = self.truth.rows(
            "select count(*) from toolcrib.runs where workspace_id = %(workspace)s and state <> 'ended'"
        )
        return int(count)

    def _pending(self) -> int:
        [(count,)] = self.truth.rows("select count(*) from toolcrib.pending_applies where workspace_id = %(workspace)s")
        return int(count)


def told_calls(model: ModelServer) -> list[ToldCall]:
    """Return every call with its result, as the model saw them. A result must never change."""
    told: dict[str, ToldCall] = {}
    for request in list(model.received):
        task, turns, requested = -1, 0, dict[str, tuple[int, int, str]]()
        for message in request.body.get("messages", ()):
            if message["role"] == "user" and (found := task_of(message)) is not None:
                task, turns = found, 0
            for call in message.get("tool_calls") or ():
                requested[call["id"]] = task, turns, call["function"]["name"]
            turns += bool(message.get("tool_calls"))
            if message["role"] == "tool":
                call_id = message["tool_call_id"]
                call = ToldCall(*requested[call_id], _text(message["content"]))
                assert told.setdefault(call_id, call) == call, "The model was told two different results."
    return list(told.values())


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


async def _campaign(server: Server, database_server: DatabaseServer, at_once: int, model: ModelServer) -> Campaign:
    cluster = await ServerCluster.opened(server)
    agent = await cluster.agent(server, model, RULES.format(provider=PROVIDER), provider=PROVIDER)
    sessions = [await cluster.session(server, agent) for _ in range(at_once)]
    project = server.data_dir / "workspaces" / cluster.workspace / "project"
    return Campaign(server, cluster, sessions, Workspace(database_server.urls.owner, UUID(cluster.workspace), project))
