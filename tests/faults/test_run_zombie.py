"""A server that is stopped beyond its lease, and goes on after another has taken its runs over: it is too late."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.conftest import DatabaseUrls
from tests.fakes import wires
from tests.fakes.model_server import Answer, ModelServer, model_server
from tests.fakes.scenes import Scene, SceneCall
from tests.faults.databases import migrated_database, urls_of
from tests.faults.office import Office
from tests.faults.server import Server
from tests.faults.truth import Workspace
from toolcrib.domain.ids import new_id
from toolcrib.domain.streams import FinishReason

pytestmark = [pytest.mark.req("RN-5", part="a process that was believed dead"), pytest.mark.xdist_group("kill")]

PATIENCE_SECONDS = 120
RULES = """
provider: openai-compatible
model: fake
trust: autonomous
context_window: 100000
tool_permissions: {write: {allowed: true}, bash: {allowed: true}}
"""
# Long enough to be stopped in, and in a process of its own, which goes on while the server is stopped.
COMMAND = "sleep 2; echo once >> once.txt"


@pytest.fixture
def urls() -> Iterator[DatabaseUrls]:
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    """Two processes of one node, neither of them started."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with Server(tmp_path / "first", urls) as first, Server(tmp_path / "second", urls) as second:
        # Sealed so seldom that it is not the sealer that is stopped with a lock in its hand.
        first.environment |= {"TOOLCRIB_PRIVATE_MODEL_HOSTS": "*", "TOOLCRIB_SEAL_SECONDS": "600"}
        second.environment = first.environment | {"TOOLCRIB_LEASE_SECONDS": "2"}
        yield first, second


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.mark.parametrize(
    ("lease", "notices"),
    [
        pytest.param("2", "runner.presence_lost", id="and knows that it slept", marks=pytest.mark.crash),
        # It believes that nobody can have taken over yet, and tries to commit what it was at.
        pytest.param("60", "run.superseded", id="and does not know that it slept"),
    ],
)
async def test_what_a_stopped_server_was_at_is_done_once_by_the_other(
    servers: tuple[Server, Server], urls: DatabaseUrls, model: ModelServer, lease: str, notices: str
) -> None:
    zombie, heir = servers
    zombie.environment["TOOLCRIB_LEASE_SECONDS"] = lease
    zombie.start()
    office = await Office.opened(zombie)
    project = zombie.data_dir / "workspaces" / office.workspace / "project"
    truth = Workspace(urls.owner, UUID(office.workspace), project)
    agent = await office.agent(zombie, model, RULES, provider="openai-compatible")
    running, speaking = [await office.session(zombie, agent) for _ in range(2)]

    model.say(said("", ("bash", {"command": COMMAND})))
    await office.say(zombie, running, "Run the command.")
    await until(truth, "select count(*) from toolcrib.tool_calls where state = 'running'", 1)
    finish = asyncio.Event()
    model.say(said("Half an answer", ("write", {"path": "/zombie.txt", "content": "x"}), held=finish))
    await office.say(zombie, speaking, "Speak.")
    await until(truth, "select count(*) from toolcrib.events where type = 'stream-start'", 2)
    zombie.freeze()

    model.say(said("Said by the heir."), said("The command has run."))
    await asyncio.to_thread(heir.start)
    await until(truth, "select count(*) from toolcrib.runs where ending = 'done'", 2)
    before = told(truth)
    finish.set()
    zombie.thaw()
    await logged(zombie, notices)

    # It is of use again, and nothing of what it was at was added. The heir may take this from it once more, too: by its
    # own lease, one that beats so seldom is dead.
    model.say(*[said("Back again.")] * 3)
    await office.say(zombie, await office.session(zombie, agent), "Are you there?")
    await until(truth, "select count(*) from toolcrib.runs where ending = 'done'", 3)
    assert told(truth)[: len(before)] == before
    assert [row[1] for row in told(truth)[len(before) :]] == ["Are you there?", "Back again."]
    assert (project / "once.txt").read_text() == "once\n"
    assert len(truth.versions("/once.txt")) == 1
    assert not (project / "zombie.txt").exists()
    assert truth.rows("select tool, state from toolcrib.tool_calls") == [("bash", "done")]
    truth.assert_true()


def said(text: str, *calls: tuple[str, dict[str, Any]], held: asyncio.Event | None = None) -> Answer:
    scene = Scene(
        text=text,
        calls=tuple(SceneCall(f"call_{new_id()}", name, json.dumps(args)) for name, args in calls),
        reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
    )
    return Answer(tuple(wires.chat_completions(scene, "fake")), held=held)


def told(truth: Workspace) -> list[tuple[Any, ...]]:
    """What stands in the sessions, in the order in which it was written."""
    return truth.rows("select role, content, metadata from toolcrib.messages order by created_at, position")


async def until(truth: Workspace, query: str, expected: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await asyncio.to_thread(truth.rows, query) != [(expected,)]:
            pass


async def logged(server: Server, event: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while event not in await asyncio.to_thread(server.logged):
            pass
