"""Traces as a collector receives them: from the request to the run, its turns, its tools and their SQL."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from tests.acceptance.otlp_collector import Collector, otlp_collector
from tests.databases import DatabaseUrls, migrated_database, urls_of
from tests.fakes.model_server import KEY, Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.scripted import said
from tests.faults.server import Server

AGENT = """
provider: openai-compatible
model: fake
trust: autonomous
tool_permissions: {write: {allowed: true}, read: {allowed: true}}
"""
TEXT = "What the file says is nobody's business."


def answer(request: Received) -> Answer:
    if "messages" not in request.body:
        return plain(200, {"object": "list", "data": []})
    if request.body["messages"][-1]["role"] == "user":
        return said("I will.", ("write", {"path": "/a.txt", "content": TEXT}), ("read", {"path": "/missing.txt"}))
    return said("It is written.")


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=answer)) as serving:
        yield serving


@pytest.fixture
def collector() -> Iterator[Collector]:
    with otlp_collector() as started:
        yield started


@pytest.fixture
def server(tmp_path: Path, collector: Collector) -> Iterator[Server]:
    with migrated_database() as name, Server(tmp_path, urls_of(name)) as server:
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        server.start()
        yield server


async def test_trace_leads_from_the_request_to_the_run_its_turns_tools_and_sql(
    server: Server, collector: Collector, model: ModelServer
) -> None:
    cluster = await ServerCluster.opened(server)
    agent = await cluster.agent(server, model, AGENT, provider="openai-compatible")
    session = await cluster.session(server, agent)

    run_id = await cluster.say(server, session, "Please write my secret.")
    await asyncio.to_thread(collector.wait_for, lambda: bool(collector.find("invoke_agent")))

    [posted] = collector.find("POST /api/v1/workspaces/{workspace_id}/sessions/{session_id}/messages")
    [run] = collector.find("invoke_agent")
    assert posted.attributes["http.response.status_code"] == 202
    assert posted.links == ((run.trace_id, run.span_id),)
    assert run.trace_id == UUID(run_id).hex
    assert run.attributes["gen_ai.conversation.id"] == session

    turns = collector.find("chat fake")
    assert [turn.parent_id for turn in turns] == [run.span_id] * 2
    assert all(turn.attributes["gen_ai.usage.output_tokens"] > 0 for turn in turns)
    assert {turn.attributes["gen_ai.provider.name"] for turn in turns} == {"openai-compatible"}

    [write], [read] = collector.find("execute_tool write"), collector.find("execute_tool read")
    assert (write.parent_id, write.trace_id) == (run.span_id, run.trace_id)
    assert write.attributes["toolcrib.outcome"] == "done"
    assert not write.is_error
    assert read.is_error
    statements = [one for one in collector.spans if one.parent_id == write.span_id]
    assert {one.attributes["db.system.name"] for one in statements} == {"postgresql"}
    assert any("toolcrib." in one.attributes["db.query.text"] for one in statements)

    everything = b"".join(collector.bodies)
    for private in (TEXT, "a.txt", "missing.txt", "my secret", "It is written.", KEY, cluster.token, "ada@example"):
        assert private.encode() not in everything, f"A span contains {private!r}."


async def test_trace_of_the_client_continues(server: Server, collector: Collector) -> None:
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with httpx2.AsyncClient(base_url=server.origin, trust_env=False) as http:
        await http.get("/livez", headers={"traceparent": f"00-{trace_id}-{span_id}-01"})
        await http.get("/api/v1/status", headers={"traceparent": f"00-{trace_id}-{span_id}-01"})

    await asyncio.to_thread(collector.wait_for, lambda: bool(collector.find("GET /api/v1/status")))
    [request] = [one for one in collector.spans if one.trace_id == trace_id and one.parent_id == span_id]
    assert request.name == "GET /api/v1/status"
    assert request.attributes["http.response.status_code"] == 401


def test_server_works_while_its_collector_does_not(tmp_path: Path, database_urls: DatabaseUrls) -> None:
    with Server(tmp_path, database_urls) as server:
        server.environment["TOOLCRIB_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
        server.start()

        assert httpx2.get(f"{server.origin}/readyz", trust_env=False).status_code == 200
