"""Kill a process (``kill -9``) at a random moment of a task of twenty calls, restart it, and count repeated calls.

usage: python -m bench kill_resume [--kills 100] [--think-ms 0] [--langgraph PYTHON]

Every call first writes a line to a log, so a repeated call has two lines. The benchmark fails if ours repeats one.
LangGraph runs with the Python of a virtualenv that has it; docs/decisions/0009-runs.md has the versions and the results
of others.
"""

import argparse
import asyncio
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2
import psycopg

from bench.cluster import model_server
from bench.engines import bench_settings, new_caller
from bench.servers import fresh_database, url_of
from toolcrib.core.ids import new_id
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.runs import durable
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import Stores

CALLS = 20
# How long a process must send no heartbeat before another takes over its runs.
_LEASE = 2
_LOOK_SECONDS = 0.002
_RESUME_SECONDS = 600
_RULES = """
provider: openai-compatible
model: counted-{calls}-{think_ms}
trust: autonomous
toolsets: [bench]
context_window: 10000000
tool_permissions: {{read_sample: {{allowed: true}}}}
"""


@dataclass(frozen=True)
class Trial:
    """The result of one kill."""

    ended: bool
    begun_at_kill: int
    again: int
    unknown: int
    asked_again: int
    last_words: str = ""


class Peer(Protocol):
    """A runtime in a process that the benchmark can kill."""

    @property
    def name(self) -> str: ...

    def new_task(self) -> str: ...

    def start(self, action: str, task: str, folder: Path) -> subprocess.Popen[str]: ...

    def unknown(self, task: str) -> int:
        """Return the number of calls whose outcome it reports as unknown."""


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--think-ms", type=int, default=0)
    parser.add_argument("--langgraph", type=Path)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args(argv)
    print(f"seed {options.seed}, load {os.getloadavg()[0]:.1f}\n")
    print("| runtime | kills | completed | calls started at the kill | repeated: in all, worst | unknown "
          "| model asked again |\n|---|---|---|---|---|---|---|")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, model_server() as model:
        scratch, model_url = Path(folder), model.url
        with ours(scratch, model_url, think_ms=options.think_ms) as peer:
            mine = trials(peer, scratch, model_url, kills=options.kills, seed=options.seed)
            _report(peer, mine)
        for durability in ("async", "sync") if options.langgraph else ():
            with langgraph(options.langgraph, model_url, durability, think_ms=options.think_ms) as other:
                _report(other, trials(other, scratch, model_url, kills=options.kills, seed=options.seed))
    wrong = [trial for trial in mine if trial.again or not trial.ended]
    print(f"{len(mine)} tried, {len(mine) - len(wrong)} held")
    if wrong:
        raise SystemExit(f"{len(wrong)} kills did harm: {wrong[0]}")


def trials(peer: Peer, scratch: Path, model_url: str, *, kills: int, seed: int) -> list[Trial]:
    """Run trials, each with a kill between its first call and its last."""
    chance, found = random.Random(seed), list[Trial]()
    span = _seconds_of_a_task(peer, scratch)
    while len(found) < kills:
        trial = _trial(peer, scratch, model_url, after=chance.uniform(0, span))
        if trial is not None:
            found.append(trial)
            print(f"{peer.name}: kill {len(found)}, {trial}", file=sys.stderr, flush=True)
    return found


def _trial(peer: Peer, folder: Path, model_url: str, *, after: float) -> Trial | None:
    """Run one trial. Returns None if the task ended before the kill."""
    task, asked = peer.new_task(), _asked(model_url)
    log = folder / task
    killed = peer.start("start", task, folder)
    _wait_for_first_call(killed, log)
    time.sleep(after)
    if killed.poll() is not None:
        return None
    killed.kill()
    killed.communicate()
    begun = len(_called(log))
    going_on = peer.start("resume", task, folder)
    try:
        said, _ = going_on.communicate(timeout=_RESUME_SECONDS)
    except subprocess.TimeoutExpired:
        going_on.kill()
        said, _ = going_on.communicate()
    done, unknown = Counter(_called(log)), peer.unknown(task)
    return Trial(
        # A call with unknown outcome may have been stopped before its first line.
        ended=said.endswith("done\n") and CALLS - unknown <= len(done) <= CALLS,
        begun_at_kill=begun,
        again=done.total() - len(done),
        unknown=unknown,
        asked_again=_asked(model_url) - asked - (CALLS + 1),
        last_words=said[-400:],
    )


def _seconds_of_a_task(peer: Peer, folder: Path) -> float:
    """Measure a task from its first call to its last, in seconds."""
    task = peer.new_task()
    said, _ = peer.start("start", task, folder).communicate(timeout=_RESUME_SECONDS)
    log = (folder / task).read_text() if (folder / task).exists() else ""
    moments = [int(line.split()[1]) for line in log.splitlines()]
    if len(moments) != CALLS:
        raise SystemExit(f"{peer.name} does not complete the task without a kill: {said[-2000:]}")
    return (moments[-1] - moments[0]) / 1e9


def _wait_for_first_call(process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + _RESUME_SECONDS
    while not _called(log) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _called(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def _asked(model_url: str) -> int:
    return int(httpx2.get(f"{model_url}/models", trust_env=False).json()["requests"])


@dataclass(frozen=True)
class Ours:
    """Toolcrib: the database, the person, and the agent of all tasks."""

    owner_url: str
    settings: Settings
    environment: dict[str, str]
    tenant: Tenant
    rules: str
    name: str = "ours, the tool not repeatable"

    def new_task(self) -> str:
        return asyncio.run(self._new_session())

    async def _new_session(self) -> str:
        async with _stores(self.settings) as stores:
            agent = await stores.agents.create(self.tenant, name=f"reader {new_id()}", definition=self.rules)
            return str((await stores.sessions.create(self.tenant, agent_id=agent.id)).id)

    def start(self, action: str, task: str, folder: Path) -> subprocess.Popen[str]:
        who = [str(self.tenant.workspace_id), str(self.tenant.user_id)]
        command = [sys.executable, "-m", "bench.killable", action, *who, task, str(folder)]
        return _piped(command, self.environment)

    def unknown(self, task: str) -> int:
        with psycopg.connect(self.owner_url) as connection:
            row = connection.execute(
                "select count(*) from toolcrib.tool_calls where session_id = %s and state = 'unknown'", (task,)
            ).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def ours(scratch: Path, model_url: str, *, think_ms: int = 0) -> Iterator[Ours]:
    with fresh_database() as name:
        durable.upgrade(url_of(name))
        settings = bench_settings(name, scratch / "data")
        environment = {
            "TOOLCRIB_DATABASE_URL": settings.database_url,
            "TOOLCRIB_SYSTEM_DATABASE_URL": settings.system_url,
            "TOOLCRIB_JWT_SECRET": settings.jwt_secret.get_secret_value(),
            "TOOLCRIB_AUDIT_SEAL_KEY": settings.audit_seal_key.get_secret_value(),
            "TOOLCRIB_DATA_DIR": str(settings.data_dir),
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": str(_LEASE),
            "TOOLCRIB_NODE_NAME": settings.node_name,
        }
        tenant = asyncio.run(_tenant(settings, model_url))
        yield Ours(url_of(name), settings, environment, tenant, _RULES.format(calls=CALLS, think_ms=think_ms))


async def _tenant(settings: Settings, model_url: str) -> Tenant:
    async with _stores(settings) as stores:
        person = await new_caller(stores)
        await stores.access.store(ActingUser(person.user_id), "openai-compatible", ProviderCredentials("x", model_url))
        return Tenant.of(person)


@asynccontextmanager
async def _stores(settings: Settings) -> AsyncIterator[Stores]:
    async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
        yield Stores(settings, database)


@dataclass(frozen=True)
class LangGraph:
    """LangGraph with its PostgreSQL checkpointer."""

    python: Path
    environment: dict[str, str]
    name: str

    def new_task(self) -> str:
        return str(new_id())

    def start(self, action: str, task: str, folder: Path) -> subprocess.Popen[str]:
        script = Path(__file__).parent / "peers" / "langgraph_peer.py"
        return _piped([str(self.python), str(script), action, task, str(folder)], self.environment)

    def unknown(self, task: str) -> int:
        return 0


@contextmanager
def langgraph(python: Path, model_url: str, durability: str, *, think_ms: int = 0) -> Iterator[LangGraph]:
    with fresh_database() as name:
        environment = {
            "PEER_DATABASE": url_of(name),
            "PEER_MODEL_URL": model_url,
            "PEER_MODEL": f"counted-{CALLS}-{think_ms}",
            "PEER_DURABILITY": durability,
        }
        yield LangGraph(python, environment, f"LangGraph, durability {durability}")


def _piped(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _report(peer: Peer, found: list[Trial]) -> None:
    again = [trial.again for trial in found]
    ended, begun, unknown, asked = (
        sum(getattr(trial, part) for trial in found) for part in ("ended", "begun_at_kill", "unknown", "asked_again")
    )
    print(
        f"| {peer.name} | {len(found)} | {ended} | {begun} | {sum(again)}, {max(again)} | {unknown} | {asked} |",
        flush=True,
    )
