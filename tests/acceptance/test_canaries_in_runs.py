"""No secret and no content of a run, or of what fails, is in the log, the metrics or the traces."""

import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg import sql

from tests.acceptance.canaries import Canaries
from tests.acceptance.local_machine import laptop
from tests.acceptance.observed_server import ObservedServer
from tests.fakes.model_server import plain
from tests.integration.runs.conftest import says
from tests.redteam.target import Login, Target, made
from tests.wait_until import PATIENCE
from toolcrib.sandbox.bubblewrap import INTERPRETER

pytestmark = pytest.mark.xdist_group("canaries")

PROGRAM = (Path(__file__).parent.parent / "fakes" / "leaky_mcp.py").read_text()
RULES = """
provider: openai-compatible
model: fake
trust: autonomous
tool_permissions: {write: {allowed: true}, edit: {allowed: true}, bash: {allowed: true}, raise_error: {allowed: true}}
"""
LOOKS = 2_000


ENDINGS = ("work", "401", "within", "400", "402", "403", "404", "413", "429", "500", "529", "cut", "junk", "html")


@pytest.mark.gate_cases(3)
@pytest.mark.parametrize("ending", ENDINGS)
def test_runs_however_their_model_answers(observed: ObservedServer, ending: str) -> None:
    target, canaries = observed.target, observed.canaries
    person = observed.register(f"runs-{ending}")
    key = canaries.plant("the key of a model")
    access = {"secret": key, "base_url": f"{observed.model.url}/v1", "check": ending == "work"}
    made(target.http.put("/credentials/openai-compatible", json=access, headers=person.headers))
    workspace = made(target.http.post("/workspaces", json={"name": "runs"}, headers=person.headers))["id"]

    def post(path: str, body: Any) -> Any:
        return made(target.http.post(f"/workspaces/{workspace}{path}", json=body, headers=person.headers))

    definition = f"# {canaries.plant('a comment of an agent')}\n{RULES}prompt: {canaries.plant('a prompt')}\n"
    agent = post("/agents", {"name": "a", "definition": definition})["id"]
    session = post("/sessions", {"agent_id": agent, "title": canaries.plant("a title")})["id"]
    run = post(f"/sessions/{session}/messages", {"text": f"{ending} {canaries.plant(f'a message ({ending})')}"})["id"]

    shown = wait_until_settled(target, person, workspace, run)

    assert shown["state"] == "ended" or shown["waits_for"] == "provider", shown
    assert (shown["error"] is None) is (ending == "work" or shown["state"] != "ended"), shown
    if shown["state"] == "ended":
        trace_id = run.replace("-", "")
        observed.collector.wait_for(lambda: any(span.trace_id == trace_id for span in observed.collector.spans))


def wait_until_settled(target: Target, person: Login, workspace: str, run: str) -> Any:
    tick, shown = threading.Event(), None
    for _ in range(LOOKS):
        shown = made(target.http.get(f"/workspaces/{workspace}/runs/{run}", headers=person.headers))
        if shown["state"] == "ended" or shown["waits_for"] == "provider":
            return shown
        tick.wait(0.05)
    raise AssertionError(f"The run does not end: {shown}")


@pytest.mark.long
def test_programs_and_addresses_of_mcp_servers(observed: ObservedServer) -> None:
    target, canaries, mallory = observed.target, observed.canaries, observed.target.mallory

    def send(method: str, path: str, body: Any = None) -> httpx2.Response:
        return target.http.request(method, f"{mallory.workspace}{path}", json=body, headers=mallory.owner.headers)

    program = {"command": [INTERPRETER, "-c", PROGRAM], "secrets": {"SECRET": canaries.plant("a program's secret")}}
    server = made(send("POST", "/mcp-servers", {"name": "canary", **program}))
    offered = made(send("POST", f"/mcp-servers/{server['id']}/refresh"))
    assert offered["last_error"] is None, offered
    made(send("POST", f"/mcp-servers/{server['id']}/approve", {"sha256": offered["offered_sha256"]}))
    for tool in ("echo", "refuse", "junk", "crash", "echo"):
        send("POST", "/tools", {"tool": f"mcp:canary/{tool}", "args": {"text": canaries.plant("a call of MCP")}})
    # Addresses that are no MCP servers: one repeats the request, with the secret in its headers, as an error.
    for number, url in enumerate((f"{observed.model.url}/v1", "http://127.0.0.1:9/mcp", f"{target.server.origin}/mcp")):
        secret = {"Authorization": f"Bearer {canaries.plant('a header of MCP')}"}
        other = send("POST", "/mcp-servers", {"name": f"far{number}", "url": url, "secrets": secret})
        if other.is_success:
            send("POST", f"/mcp-servers/{other.json()['id']}/refresh")


def test_rows_that_the_database_rejects(observed: ObservedServer) -> None:
    """PostgreSQL quotes the whole row, and psycopg shows it."""
    target, canaries = observed.target, observed.canaries
    mallory, rejected = target.mallory, canaries.plant("a row")
    with psycopg.connect(observed.owner_url, autocommit=True) as owner:
        for table, column in (("sessions", "title"), ("agents", "name"), ("blobs", None)):
            value = sql.Literal(rejected)
            test = sql.SQL("{} <> {}").format(sql.Identifier(column), value) if column else sql.SQL("false")
            owner.execute(
                sql.SQL("alter table toolcrib.{} add constraint canary check ({}) not valid").format(
                    sql.Identifier(table), test
                )
            )
        headers = mallory.owner.headers
        answers = [
            target.http.post(f"{mallory.workspace}/sessions", json={"title": rejected}, headers=headers),
            target.http.post(
                f"{mallory.workspace}/agents", json={"name": rejected, "definition": "{}"}, headers=headers
            ),
            target.call("write", {"path": "/rejected.txt", "content": canaries.plant("content") * 200}),
        ]
        for table in ("sessions", "agents", "blobs"):
            owner.execute(sql.SQL("alter table toolcrib.{} drop constraint canary").format(sql.Identifier(table)))

    assert [one.status_code for one in answers] == [500] * 3, [one.text for one in answers]
    assert observed.server.logged().count("CheckViolation") >= 3


@pytest.mark.long
def test_connections_to_the_database_that_break(observed: ObservedServer) -> None:
    target, canaries, mallory = observed.target, observed.canaries, observed.target.mallory
    running = threading.Thread(
        target=lambda: target.http.post(
            f"{mallory.workspace}/tools",
            json={"tool": "bash", "args": {"command": f"sleep 2; echo {canaries.plant('output')} > broken.txt"}},
            headers=mallory.owner.headers,
        )
    )
    running.start()
    with psycopg.connect(observed.owner_url, autocommit=True) as owner:
        for _ in range(20):
            owner.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid()"
            )
            for path in ("/broken.txt", "/broken-too.txt"):
                target.call("write", {"path": path, "content": canaries.plant("content"), "overwrite": True})
    running.join(PATIENCE)
    assert not running.is_alive()


def test_server_that_is_killed_at_work_and_recovers(observed: ObservedServer) -> None:
    target, canaries, mallory = observed.target, observed.canaries, observed.target.mallory
    for _ in range(2):
        command = {"command": f"echo {canaries.plant('output')}; sleep 600; echo {canaries.plant('command')}"}
        started = target.call("bash_start", command)
        assert started.json()["success"], started.text
        target.http.post(f"{mallory.workspace}/sessions/{mallory.ids['session_id']}/messages",
                         json={"text": canaries.plant("message")}, headers=mallory.owner.headers)  # fmt: skip
        observed.server.kill()
        observed.restart()
        target.call("bash_output", {"process_id": started.json()["result"]["metadata"]["processId"]})


@pytest.mark.long
def test_server_that_is_stopped(observed: ObservedServer) -> None:
    observed.target.call("bash_start", {"command": f"echo {observed.canaries.plant('command')}; sleep 600"})
    observed.server.signal(signal.SIGTERM)
    observed.server.await_death()
    observed.restart()


@pytest.mark.long
def test_log_of_local_mode() -> None:
    canaries = Canaries()
    with laptop() as own:
        project = own.project()
        wrong = canaries.plant("a content")
        own.model.script = [
            says(f"I think of {wrong}.", ("write", {"path": "/a.txt", "content": wrong}),
                 ("bash", {"command": f"echo {wrong}; exit 1"})),
            says(canaries.plant("an answer")),
            plain(400, {"error": {"message": canaries.plant("an error"), "type": "invalid", "code": "invalid"}}),
        ]  # fmt: skip
        for message in ("a message", "another"):
            own.run("run", "--trust", "autonomous", canaries.plant(message), at=project)
        logs = [*own.data.rglob("*.log")]
        assert logs
        assert any("run.failed" in log.read_text() for log in logs)
        for log in logs:
            assert not canaries.found_in(log.read_bytes()), log
