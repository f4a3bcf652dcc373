"""Ten outages of the database of 10 to 120 s under 30 runs, paused calls and a schedule: none stuck, lost or doubled.

While the database is away, people cancel runs, decide about calls and send messages. Each is told either that it was
done, or that the database is away; and once it is back, what they asked for is done.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.fakes import strictness
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.database_server import DatabaseServer
from tests.faults.scripted import said
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.crash]

PROVIDER = "openai-compatible"
AT_WORK, HELD, ASKED = 30, 3, 3
# Its kind, and for how many seconds. A silent database is one whose packets vanish; then it is elsewhere or back.
OUTAGES = (
    ("refused", 10), ("reset", 15), ("silent, then gone", 20), ("silent, then back", 30), ("stopped", 45),
    ("reset", 60), ("silent, then gone", 90), ("refused", 120), ("stopped", 10), ("silent, then back", 12),
)  # fmt: skip
TURNS = 3
FREE = f"""
provider: {PROVIDER}
model: fake
trust: autonomous
# Its answers are held for as long as an outage lasts.
turn_timeout: 900
context_window: 100000
tool_permissions: {{write: {{allowed: true}}, edit: {{allowed: true}}, bash: {{allowed: true}}}}
"""
GUIDED = f"""
provider: {PROVIDER}
model: fake
trust: guided
context_window: 100000
tool_permissions: {{write: {{allowed: true}}}}
"""
UNFINISHED = "select count(*) from toolcrib.runs where state <> 'ended'"
WAITING = "select count(*) from toolcrib.runs where state = 'waiting'"
UNHELD = "select count(*) from toolcrib.paused_calls where claimed_by is not null and resumed_at is null"
TASK = re.compile(r"(Task|Wait|Ask|Hello) (\d+)")


@pytest.fixture
def database_server(tmp_path: Path) -> Iterator[DatabaseServer]:
    with DatabaseServer(tmp_path) as started:
        yield started


@pytest.fixture
def server(tmp_path: Path, database_server: DatabaseServer) -> Iterator[Server]:
    with Server(tmp_path, database_server.urls) as server:
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_POOL_SIZE": "16",
            # Otherwise each silent outage would take a minute longer.
            "TOOLCRIB_DATABASE_ANSWER_SECONDS": "15",
        }
        server.start()
        yield server


class Script:
    """A model that answers some of its runs only in the middle of an outage, and some only after it."""

    def __init__(self) -> None:
        self.during = asyncio.Event()
        self.after = asyncio.Event()
        self.never = asyncio.Event()
        # Tasks whose second turn was asked for, and those whose answer is held until they are cancelled.
        self.asked: set[int] = set()
        self.held: set[int] = set()

    def begin(self) -> None:
        """Begin another outage."""
        self.during, self.after = asyncio.Event(), asyncio.Event()

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        if refusal := strictness.openai_refusal(request.body):
            return plain(400, {"error": {"message": refusal}})
        kind, number, turn = _state(request.body["messages"])
        match kind, turn:
            case "Task", 0:
                return said(
                    "First.",
                    ("write", {"path": f"/{number}/log.txt", "content": "0\nEND\n"}),
                    ("bash", {"command": f"mkdir -p other-{number}; echo 0 >> other-{number}/shell.txt"}),
                )
            case "Task", 1:
                self.asked.add(number)
                held = (None, self.during, self.after)[number % 3]
                return said(
                    "Second.",
                    ("edit", {"path": f"/{number}/log.txt", "old_string": "END", "new_string": "1\nEND"}),
                    ("bash", {"command": f"echo 1 >> other-{number}/shell.txt"}),
                    held=held,
                )
            case "Wait", _:
                self.held.add(number)
                return said("Never said.", held=self.never)
            case "Ask", 0:
                return said("May I?", ("write", {"path": f"/asked-{number}.txt", "content": f"{number}\n"}))
        return said("Done.")


def _state(messages: list[dict[str, Any]]) -> tuple[str, int, int]:
    """Return what the last message of the user sets, and how many turns with calls were made since."""
    kind, number, turn = "", -1, 0
    for message in messages:
        if message["role"] == "user" and (found := TASK.search(json.dumps(message["content"]))):
            kind, number, turn = found[1], int(found[2]), 0
        turn += bool(message.get("tool_calls"))
    return kind, number, turn


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def model(script: Script) -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=script.answer)) as server:
        yield server


@dataclass
class Attempt:
    """A request that somebody makes while the database is away, and again until it is answered."""

    what: str
    path: str
    body: Any = None
    # Of the answers while it was away.
    told: Counter[str] = field(default_factory=Counter)
    key: str = field(default_factory=lambda: str(uuid4()))


@dataclass
class Campaign:
    """A person, agents and sessions of one server, and what happened to its database."""

    server: Server
    database: DatabaseServer
    cluster: ServerCluster
    script: Script
    truth: Workspace
    sessions: list[str]
    held: list[str]
    guided: str
    key: str
    number: int = 0
    told: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    async def outage(self, kind: str, seconds: float) -> None:
        """Let the database be away, and check that all that was at work ends as it should."""
        self.script.begin()
        first = self.number
        tasks = [f"Task {first + n}" for n in range(AT_WORK)]
        self.number += AT_WORK
        for session, task in zip(self.sessions, tasks, strict=True):
            await self.cluster.say(self.server, session, task)
        waits = [
            await self.cluster.say(self.server, session, f"Wait {first + n}") for n, session in enumerate(self.held)
        ]
        pauses = await self._ask(first)
        async with asyncio.timeout(PATIENCE):
            expected = {first + n for n in range(AT_WORK) if n % 3}
            while not expected <= self.script.asked or not {first + n for n in range(HELD)} <= self.script.held:
                await asyncio.to_thread(self._count, UNFINISHED)
        # The first of them is decided as the outage begins.
        await self._repeated(self._decision(pauses[0]))
        away = await self._begin(kind)
        began = time.monotonic()
        attempts = [
            *(Attempt("cancel", f"runs/{run}/cancel") for run in waits),
            *(self._decision(pause) for pause in pauses[1 : len(pauses) // 2]),
            Attempt("message", f"sessions/{self.sessions[0]}/messages", {"text": f"Hello {first}"}),
        ]
        await _pause(seconds / 3)
        self.script.during.set()
        asking = [asyncio.create_task(self._asked(attempt)) for attempt in attempts]
        await _pause(began + seconds - time.monotonic())
        await away()
        self.script.after.set()
        back = time.monotonic()
        done = await asyncio.gather(*asking)
        for attempt, is_done in zip(attempts, done, strict=True):
            if not is_done:
                await self._repeated(attempt)
        cancelled = time.monotonic() - back
        for pause in pauses[len(pauses) // 2 :]:
            await self._repeated(self._decision(pause))
        await self._until(UNFINISHED, 0)
        settled = time.monotonic() - back
        await self._next_messages(first)
        await self._until(UNHELD, 0)
        self._check(first, waits)
        told = sum((attempt.told for attempt in attempts), Counter[str]())
        self.told += told
        self.lines.append(
            f"{kind}, {seconds} s: requests done {cancelled:.1f} s after it, all {AT_WORK + HELD + ASKED} runs ended "
            f"{settled:.1f} s after it; told meanwhile: {dict(told)}"
        )
        print(self.lines[-1], flush=True)  # noqa: T201 - the figures of a campaign

    async def check_end(self) -> None:
        """Check that the schedule fires again, and that disk and history are equal."""
        fired = self._count("select count(*) from toolcrib.runs where via = 'schedule'")
        async with asyncio.timeout(PATIENCE):
            while (
                await asyncio.to_thread(
                    self._count, "select count(*) from toolcrib.runs where via = 'schedule' and end_reason = 'done'"
                )
                <= fired
            ):
                await _pause(0.5)
        twice = self.truth.rows(
            "select date_trunc('minute', created_at), count(*) from toolcrib.runs where via = 'schedule' "
            "group by 1 having count(*) > 1"
        )
        assert twice == []
        await self._until(UNFINISHED, 0)
        self.truth.assert_nothing_twice()
        self.truth.assert_true()

    # What is at work

    async def _ask(self, first: int) -> list[str]:
        """Let runs and an agent's own calls wait for approval. Return the paused calls, of both by turns."""
        before = self._count(WAITING)
        for n in range(ASKED):
            session = await self.cluster.session(self.server, self.guided)
            await self.cluster.say(self.server, session, f"Ask {first + n}")
            call = {"tool": "write", "args": {"path": f"/called-{first + n}.txt", "content": f"{first + n}\n"}}
            async with client_of(self.server, self.key) as http:
                paused = await http.post(self.cluster.at("tools"), json=call)
            assert paused.status_code == 202, paused.text
        await self._until(WAITING, before + ASKED)
        found = await self.cluster.send(self.server, "GET", self.cluster.at("paused-calls"))
        pauses: dict[bool, list[Any]] = {True: [], False: []}
        for one in found["items"]:
            pauses[one["session_id"] is None].append(one)
        self._hashes = {one["id"]: one["arguments_sha256"] for one in found["items"]}
        assert [len(pauses[kind]) for kind in (True, False)] == [ASKED, ASKED]
        return [one["id"] for pair in zip(pauses[True], pauses[False], strict=True) for one in pair]

    def _decision(self, pause: str) -> Attempt:
        seen = {"approved": True, "arguments_sha256": self._hashes[pause]}
        return Attempt("decision", f"paused-calls/{pause}/decision", seen)

    # What people do meanwhile

    async def _asked(self, attempt: Attempt) -> bool:
        """Make a request once. Return whether it was done; otherwise it says that the database is away."""
        async with client_of(self.server, self.cluster.token) as http:
            headers = {"Idempotency-Key": attempt.key} if attempt.what == "message" else {}
            answer = await http.post(self.cluster.at(attempt.path), json=attempt.body, headers=headers)
        if answer.is_success:
            attempt.told[f"{attempt.what}: done"] += 1
            return True
        body = answer.json()
        if answer.status_code == 409 and attempt.what == "decision":
            # An earlier attempt was taken, and its answer was lost.
            assert "already" in body["error"], body
            attempt.told[f"{attempt.what}: was done"] += 1
            return True
        if answer.status_code == 409 and attempt.what == "cancel":
            attempt.told[f"{attempt.what}: {body['error'][:60]}"] += 1
            return True
        assert answer.status_code in (409, 503), body
        assert "atabase" in body["error"] or body["code"].startswith("IDEMPOTENCY"), body
        attempt.told[f"{attempt.what}: {answer.status_code} {body['code']}"] += 1
        return False

    async def _repeated(self, attempt: Attempt) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self._asked(attempt):
                await _pause(0.2)

    async def _next_messages(self, first: int) -> None:
        """Check that the next message of each session is answered."""
        before = self._count(
            "select count(*) from toolcrib.runs where end_reason = 'done' and starts_with(prompt, 'Hello')"
        )
        sessions = [*self.sessions, *self.held]
        for session in sessions:
            await self.cluster.say(self.server, session, f"Hello {first}")
        await self._until(
            "select count(*) from toolcrib.runs where end_reason = 'done' and starts_with(prompt, 'Hello')",
            before + len(sessions),
        )

    # What happens to the database

    async def _begin(self, kind: str) -> Callable[[], Awaitable[None]]:
        """Begin an outage, and return what ends it."""
        proxy = self.database.proxy

        async def on_thread(work: Callable[[], None]) -> None:
            await asyncio.to_thread(work)

        match kind:
            case "refused":
                await on_thread(proxy.refuse)
                return lambda: on_thread(proxy.accept)
            case "reset":
                await on_thread(proxy.reset_all)
                return lambda: on_thread(proxy.stop_resets)
            case "silent, then gone":
                proxy.block()
                return lambda: on_thread(proxy.replace)
            case "silent, then back":
                proxy.block()
                return lambda: on_thread(proxy.unblock)
        await on_thread(self.database.stop)
        return lambda: on_thread(self.database.start)

    # What must be true

    def _check(self, first: int, waits: list[str]) -> None:
        runs = self.truth.rows("select id, prompt, end_reason, error, turns from toolcrib.runs")
        wrong = [
            run
            for run in runs
            if (run[2] != "cancelled" if str(run[0]) in waits else run[2] != "done" and not run[1].startswith("Wait"))
            or (run[1].startswith("Task") and run[4] != TURNS)
        ]
        assert wrong == []
        prompts = Counter(run[1] for run in runs if run[1].startswith("Task"))
        assert set(prompts.values()) == {1}
        # The message that was sent while the database was away, and the next one of each session.
        greetings = sum(run[1] == f"Hello {first}" for run in runs)
        assert greetings == len(self.sessions) + len(self.held) + 1
        calls = list(self._calls(first))
        assert calls == [], "told to the model, and what happened"
        for n in range(ASKED):
            for name in ("asked", "called"):
                path = f"/{name}-{first + n}.txt"
                assert (self.truth.project / path[1:]).read_text() == f"{first + n}\n"
                assert len(self.truth.versions(path)) == 1
        self.truth.assert_nothing_twice()

    def _calls(self, first: int) -> Iterator[tuple[int, str, int, str]]:
        """Yield the calls of tasks whose effect is not what the model was told."""
        results = self.truth.rows(
            """
            select r.prompt, t.tool, t.state, t.error ->> 'message'
            from toolcrib.tool_calls t join toolcrib.runs r on r.workspace_id = t.workspace_id and r.id = t.run_id
            where starts_with(r.prompt, 'Task ') order by t.id
            """
        )
        seen = Counter[tuple[int, str]]()
        for prompt, tool, state, error in results:
            number = int(prompt.split()[1])
            if number < first:
                continue
            turn = seen[number, "bash" if tool == "bash" else "file"]
            seen[number, "bash" if tool == "bash" else "file"] += 1
            name = f"other-{number}/shell.txt" if tool == "bash" else f"{number}/log.txt"
            path = self.truth.project / name
            count = path.read_text().split().count(str(turn)) if path.exists() else 0
            if state == "done" and error is None and count == 1:
                continue
            if state == "unknown" and count <= 1 and "unknown whether it took effect" in error:
                self.told["call: unknown"] += 1
                continue
            yield number, f"{tool} {turn}: {state} {error}", count, name

    def _count(self, query: str) -> int:
        [(count,)] = self.truth.rows(query)
        return int(count)

    async def _until(self, query: str, expected: int) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while await asyncio.to_thread(self._count, query) != expected:
                    await _pause(0.1)
        except TimeoutError:
            left = self.truth.rows("select id, prompt, state, worker_id, end_reason, error from toolcrib.runs")
            stuck = [row for row in left if row[2] != "ended"]
            pauses = self.truth.rows(
                "select id, call_id, state, run_id, decided_at, resumed_at, claimed_by from toolcrib.paused_calls "
                "where state = 'pending' or resumed_at is null"
            )
            logged = self.server.logged()[-3_000:]
            raise AssertionError(f"{query}: not {expected}; {stuck}; paused: {pauses}\n{logged}") from None


async def _pause(seconds: float) -> None:
    """Let time pass: the length of an outage is the case."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(max(0.0, seconds), over.set)
    await over.wait()


async def _opened(server: Server, database: DatabaseServer, model: ModelServer, script: Script) -> Campaign:
    cluster = await ServerCluster.opened(server)
    free = await cluster.agent(server, model, FREE, provider=PROVIDER)
    guided = await cluster.send(server, "POST", cluster.at("agents"), {"name": "guided", "definition": GUIDED})
    key = await cluster.send(server, "POST", cluster.at(f"agents/{guided['id']}/keys"), {"name": "k"})
    schedule = {"name": "each minute", "cron": "* * * * *", "agent_id": free, "message": "By the schedule."}
    await cluster.send(server, "POST", cluster.at("schedules"), schedule)
    sessions = [await cluster.session(server, free) for _ in range(AT_WORK + HELD)]
    project = server.data_dir / "workspaces" / cluster.workspace / "project"
    truth = Workspace(database.urls.owner, UUID(cluster.workspace), project)
    return Campaign(
        server, database, cluster, script, truth, sessions[:AT_WORK], sessions[AT_WORK:], guided["id"], key["secret"]
    )


async def test_ten_outages_leave_no_run_stuck_and_no_call_lost_or_doubled(
    server: Server, database_server: DatabaseServer, model: ModelServer, script: Script
) -> None:
    campaign = await _opened(server, database_server, model, script)
    try:
        for kind, seconds in OUTAGES:
            await campaign.outage(kind, seconds)
        await campaign.check_end()
        print(f"\n{len(OUTAGES)} tried, {len(OUTAGES)} held")  # noqa: T201 - for the table of the campaigns
    finally:
        print("\n".join([*campaign.lines, str(dict(campaign.told))]))  # noqa: T201
