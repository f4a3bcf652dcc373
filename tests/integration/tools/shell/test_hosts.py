"""Granted hosts: a command reaches only the hosts that its agent's owner named, through a proxy that pins addresses."""

import asyncio
from dataclasses import replace

import pytest

from tests.adversarial.test_sandbox_egress import PRETENDED, fetching, upstream
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of
from tests.integration.tools.shell.builders import hand, ran
from tests.wait_until import PATIENCE
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import CallId
from toolcrib.policy.agent_definition import parse_definition


@pytest.fixture
def open_crib(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """The same workspace, behind a sandbox that treats loopback as the public internet."""
    return workspace.with_engine(sandbox=PRETENDED)


async def test_granted_host_is_reached_and_is_in_the_result_and_in_the_audit_log(open_crib: WorkspaceFixture) -> None:
    async with upstream() as (port, got):
        agent = await hand(open_crib, hosts=(f"api.example.org:{port}",))
        outcome = await open_crib.call("bash", agent, command=fetching(f"http://api.example.org:{port}/x"))

    assert outcome.succeeded
    assert outcome.result["output"] == "hello\n"
    assert outcome.result["metadata"]["hosts"] == [{"host": "api.example.org", "port": port}]
    assert len(got) == 1
    [record] = await audit_records_of(open_crib, outcome.call_id)
    assert record.hosts == [{"host": f"api.example.org:{port}", "denied_reason": None}]


async def test_host_that_is_not_granted_is_denied_and_reported(open_crib: WorkspaceFixture) -> None:
    async with upstream() as (port, got):
        agent = await hand(open_crib, hosts=(f"api.example.org:{port}",))
        result = await ran(open_crib, fetching(f"http://evil.example.org:{port}/"), agent)

    assert got == []
    assert "not granted" in result["output"]
    [contact] = result["metadata"]["hosts"]
    assert (contact["host"], contact["refused"]) == ("evil.example.org", "not granted")


async def test_without_a_grant_and_for_people_there_is_no_network(open_crib: WorkspaceFixture) -> None:
    async with upstream() as (port, got):
        for caller in (await hand(open_crib), open_crib.caller):
            result = await ran(open_crib, fetching(f"http://127.0.0.1:{port}/"), caller)
            assert "failed" in result["output"]
    assert got == []


async def test_command_with_network_access_is_not_repeatable(open_crib: WorkspaceFixture) -> None:
    """A crash while it runs leaves its outcome unknown: what it has sent cannot be determined."""
    agent = await hand(open_crib, hosts=("api.example.org",))
    session = await open_crib.stores.sessions.create(open_crib.tenant, agent_id=agent.agent_id)
    calling = asyncio.create_task(
        open_crib.call("bash", replace(agent, session_id=session.id), command="sleep 20; echo late")
    )
    tenant = open_crib.tenant
    async with asyncio.timeout(PATIENCE):
        while not (found := await _running(open_crib)):
            pass
    assert [repeatable for _, repeatable in found] == [False]
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    ended = await open_crib.stores.calls.get(tenant, found[0][0])
    assert (ended.state, ended.error["code"]) == ("unknown", "INTERRUPTED")
    assert "it is unknown" in ended.error["message"]


async def _running(workspace: WorkspaceFixture) -> list[tuple[CallId, bool]]:
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select id, idempotent from toolcrib.tool_calls where workspace_id = %s and state = 'running'",
            (workspace.caller.workspace_id,),
        )
        return [(CallId(id_), repeatable) for id_, repeatable in await cursor.fetchall()]


@pytest.mark.parametrize("host", ["127.0.0.1", "http://x.org", "x.org/path", "*", "*.", "a b", "x.org:99999999"])
def test_only_host_names_can_be_granted(host: str) -> None:
    with pytest.raises(BadArguments) as refused:
        parse_definition(f'tool_permissions: {{bash: {{allowed: true, hosts: ["{host}"]}}}}')

    assert list(refused.value.fields) == ["tool_permissions.bash.hosts.0"]
