"""One complete durable task through a real server: a real model calls a tool and answers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.databases import DatabaseUrls
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.server import Server
from tests.real.llama import CONTEXT, KEY, MODEL, insisting_on_a_call
from toolcrib.core.model_options import Wire

pytestmark = pytest.mark.real

PATIENCE_SECONDS = 300
RULES = f"""
provider: openai-compatible
model: {MODEL}
trust: autonomous
context_window: {CONTEXT}
max_output_tokens: 300
max_turns: 4
toolsets: [workspace]
tool_permissions: {{ls: {{allowed: true}}}}
"""


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        server.environment["TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS"] = "*"
        server.start()
        yield server


@pytest.mark.parametrize("wire", Wire)
async def test_real_model_calls_a_tool_and_answers(
    server: Server, urls: DatabaseUrls, calling_url: str, talking_url: str, wire: Wire
) -> None:
    async with insisting_on_a_call(calling_url, talking_url) as url:
        cluster = await ServerCluster.opened(server)
        truth = Workspace(urls.owner, UUID(cluster.workspace), server.data_dir)
        agent = await cluster.agent_at(server, f"{url}/v1", KEY, f"{RULES}wire: {wire}\n", provider="openai-compatible")
        session = await cluster.session(server, agent)
        await cluster.say(server, session, "Which files are here? List the root folder.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (ended := await asyncio.to_thread(truth.rows, "select end_reason, error, turns from "
                                                        "toolcrib.runs where state = 'ended'")):  # fmt: skip
                pass

    # Whatever the text and the calls: the run ended normally, within its turns, and every call has ended.
    [(ending, error, turns)] = ended
    assert (ending, error) == ("done", None)
    assert turns >= 2
    said = truth.rows("select role, content, metadata from toolcrib.messages order by position")
    called = [call["call_id"] for _, _, metadata in said for call in (metadata or {}).get("tool_calls", ())]
    calls = truth.rows("select id::text, tool, state, result is not null or error is not null from toolcrib.tool_calls")
    assert called
    assert sorted(calls) == sorted((call_id, "ls", "done", True) for call_id in called)
    assert [role for role, _, _ in said[:2]] == ["user", "assistant"]
    assert said[-1][0] == "assistant"
