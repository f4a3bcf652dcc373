"""A server as its operator sees it: a real Prometheus scrapes it, the dashboard has data, and the log is JSON."""

import asyncio
import json
import re
import secrets
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.prometheus import Prometheus, prometheus
from tests.conftest import ROOT
from tests.databases import DatabaseUrls, migrated_database, urls_of
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.scripted import said
from tests.faults.server import Server
from tests.wait_until import PATIENCE
from toolcrib.api.server_metrics import ServerMetrics
from toolcrib.storage.database import Database

RULES_FILE = ROOT / "deploy/prometheus/toolcrib.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/toolcrib.json"
AGENT = """
provider: openai-compatible
model: /home/ada/private-model.gguf
trust: guided
tool_permissions: {write: {allowed: true}, read: {allowed: true}, bash: {allowed: true}}
"""
# What only happens when something goes wrong, or takes longer than this test.
NOT_USED_HERE = {"Cost"}


@pytest.fixture
def urls() -> Iterator[DatabaseUrls]:
    """A database for one test: the gauges count what the whole installation has."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_METRICS_TOKEN": secrets.token_urlsafe(48),
        }
        server.start()
        yield server


@pytest.fixture
def scraped(tmp_path: Path, server: Server) -> Iterator[Prometheus]:
    target, token = server.origin.removeprefix("http://"), server.environment["TOOLCRIB_METRICS_TOKEN"]
    with prometheus(tmp_path / "prometheus", target=target, token=token, rules=RULES_FILE) as started:
        yield started


def answer(request: Received) -> Answer:
    """A model that writes a file, which a person must approve."""
    if "messages" not in request.body:
        return plain(200, {"object": "list", "data": []})
    if request.body["messages"][-1]["role"] == "user":
        return said("I will.", ("write", {"path": "/a.txt", "content": "a"}))
    return said("Done.")


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=answer)) as serving:
        yield serving


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions(panel: dict[str, Any]) -> list[str]:
    """Return the queries of a panel as Grafana sends them."""
    filled = (target["expr"].replace("$__rate_interval", "1m") for target in panel["targets"])
    return [expression.replace("$instance", ".*") for expression in filled]


@pytest.mark.long
async def test_prometheus_sees_what_people_and_models_do(
    server: Server, scraped: Prometheus, model: ModelServer
) -> None:
    cluster = await ServerCluster.opened(server)
    agent = await cluster.agent(server, model, AGENT, provider="openai-compatible")
    session = await cluster.session(server, agent)

    async def sees(expression: str, *, at_least: float = 0.0, exactly: float | None = None) -> None:
        def is_right(value: float) -> bool:
            return value >= at_least if exactly is None else value == exactly

        await asyncio.to_thread(scraped.wait_for, expression, is_right)

    await sees('up{job="toolcrib"}', exactly=1)
    await sees("toolcrib_database_up", exactly=1)
    await sees("sum(toolcrib_calls_total)", exactly=0)

    for text in ("one", "two"):
        body = {"tool": "write", "args": {"path": f"/{text}.txt", "content": text}}
        await cluster.send(server, "POST", cluster.at("tools"), body)
    await cluster.send(server, "POST", cluster.at("tools"), {"tool": "bash", "args": {"command": "true"}})
    await sees('toolcrib_calls_total{tool="write",outcome="done"}', exactly=2)
    await sees('toolcrib_http_requests_total{route=~".*/tools",method="POST",status="200"}', exactly=3)
    await sees('toolcrib_sandbox_starts_total{outcome="started"}', at_least=1)

    await cluster.say(server, session, "Write it.")
    await sees('toolcrib_approvals_pending{kind="approval"}', exactly=1)
    await sees('toolcrib_approval_oldest_age_seconds{kind="approval"}', at_least=0.5)
    await sees('toolcrib_runs{state="waiting"}', exactly=1)
    await sees('toolcrib_calls_total{tool="write",outcome="paused"}', exactly=1)

    [paused] = (await cluster.send(server, "GET", cluster.at("paused-calls")))["items"]
    seen = {"approved": True, "arguments_sha256": paused["arguments_sha256"]}
    await cluster.send(server, "POST", cluster.at(f"paused-calls/{paused['id']}/decision"), seen)
    await sees('toolcrib_runs_ended_total{ending="done"}', exactly=1)
    await sees('toolcrib_approvals_pending{kind="approval"}', exactly=0)
    await sees('toolcrib_model_requests_total{provider="openai-compatible",model="other",outcome="done"}', exactly=2)
    await sees('toolcrib_model_tokens_total{direction="output"}', at_least=1)

    # A rate needs two scrapes.
    await sees("sum(rate(toolcrib_model_requests_total[1m]))", at_least=0.0001)
    for panel in panels():
        if panel["title"] not in NOT_USED_HERE:
            for expression in expressions(panel):
                assert scraped.query(expression), f"The panel {panel['title']!r} is empty: {expression}"

    everything = json.dumps(scraped.query('{job="toolcrib"}'))
    for private in ("a.txt", "private-model", "ada@", cluster.workspace, session, agent):
        assert private not in everything


async def test_dashboard_and_alerts_name_only_metrics_that_exist(database: Database) -> None:
    """And every metric is in the documentation."""
    defined = ServerMetrics(database).names()
    text = RULES_FILE.read_text() + "".join(expression for panel in panels() for expression in expressions(panel))
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\btoolcrib_[a-z_]+", text)}
    documented = set(re.findall(r"^\| `(toolcrib_[a-z_]+)", (ROOT / "docs/operations/monitoring.md").read_text(), re.M))

    assert named - defined == set()
    assert documented == defined


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "toolcrib.rules.yml"),
        ("test", "rules", "toolcrib.rules.test.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ],
    ids=["rules", "rule tests", "config"],
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    checked = subprocess.run(
        ["promtool", *arguments], cwd=RULES_FILE.parent, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


async def test_every_line_of_the_log_is_json_and_the_requests_are_in_it(server: Server) -> None:
    cluster = await ServerCluster.opened(server)
    host, port = server.origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"this is not HTTP\r\n\r\n")
        raw.recv(1000)
    await cluster.send(server, "POST", cluster.at("tools"), {"tool": "ls", "args": {"path": "/"}})
    server.signal(signal.SIGTERM)
    await asyncio.to_thread(server.await_death)

    lines = [json.loads(line) for line in server.logged().splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["event"] == "request"]
    assert ("POST", f"/api/v1/workspaces/{cluster.workspace}/tools", 200) in [
        (line["method"], line["path"], line["status"]) for line in requests
    ]
    assert all(re.fullmatch(r"[0-9a-f]{16}", line["request_id"]) for line in requests)
    assert [line["event"] for line in lines if line.get("logger") == "uvicorn.error"] == [
        "Invalid HTTP request received."
    ]
    assert cluster.token not in server.logged()
