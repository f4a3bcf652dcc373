"""Hosts on request: a command names the hosts that it needs, a person grants them, and the call continues."""

from dataclasses import replace

import pytest

from tests.adversarial.test_sandbox_egress import PRETENDED, fetching, upstream
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of
from tests.integration.gate.test_approvals import asked, carried_out, decide, in_session
from tests.integration.tools.shell.builders import hand, ran
from tests.integration.tools.shell.test_grants import fresh, session_grant
from toolcrib.core.errors import BadArguments
from toolcrib.core.paused_calls import ApprovalDecision, GrantRule, GrantScope
from toolcrib.core.tool_calls import ToolCall
from toolcrib.policy.authorization import UNGRANTED_HOSTS, AuthorizationAction


@pytest.fixture
def open_crib(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """The same workspace, behind a sandbox that treats loopback as the public internet."""
    return workspace.with_engine(sandbox=PRETENDED)


@pytest.mark.parametrize("trust", ["guided", "review", "autonomous"])
async def test_a_command_that_names_a_host_asks_and_continues_with_exactly_that_host(
    open_crib: WorkspaceFixture, trust: str
) -> None:
    async with upstream() as (port, got):
        agent = await hand(open_crib, trust=trust)
        host, other = f"api.example.org:{port}", f"evil.example.org:{port}"
        command = f"({fetching(f'http://{host}/x')}\n)\n" + fetching(f"http://{other}/")
        approval = await asked(open_crib, agent, "bash", command=command, hosts=[host])
        assert got == []
        await decide(open_crib, approval)
        [outcome] = await carried_out(open_crib)
        again = await open_crib.call("bash", agent, command=command, hosts=[host])

    assert approval.approval.rule == UNGRANTED_HOSTS
    assert (approval.approval.effects["runs"], approval.approval.effects["contacts"]) == (command, [host])
    assert outcome.succeeded
    assert outcome.result["output"].startswith("hello\n")
    assert len(got) == 1
    [record] = await audit_records_of(open_crib, outcome.call_id)
    assert [(one["host"], one["denied_reason"]) for one in record.hosts] == [(host, None), (other, "not granted")]
    assert again.is_waiting, "once is once"


@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.ALWAYS])
async def test_a_granted_host_is_not_asked_about_again(open_crib: WorkspaceFixture, scope: GrantScope) -> None:
    async with upstream() as (port, got):
        agent = await in_session(open_crib, await hand(open_crib, trust="autonomous"))
        host = f"api.example.org:{port}"
        approval = await asked(open_crib, agent, "bash", command=fetching(f"http://{host}/1"), hosts=[host])
        assert approval.approval.suggested_rule.hosts == (host,)
        rule = approval.approval.other_rules[-1]
        assert rule == GrantRule(("bash",), hosts=(host,))

        await decide(open_crib, approval, ApprovalDecision(approved=True, scope=scope, rule=rule))
        await carried_out(open_crib)
        agent = await fresh(open_crib, agent)
        again = await open_crib.call("bash", agent, command=fetching(f"http://{host}/2"), hosts=[host.upper()])
        silent = await ran(open_crib, fetching(f"http://{host}/3"), agent)
        wider = await open_crib.call("bash", agent, command="true", hosts=[host, "example.com"])
        elsewhere = await in_session(open_crib, replace(agent, session_id=None))
        there = await open_crib.call("bash", elsewhere, command="true", hosts=[host])

    assert again.succeeded
    assert again.result["output"] == "hello\n"
    assert len(got) == 2, "a command that names no host has no network"
    assert "hello" not in silent["output"]
    assert wider.is_waiting
    assert there.is_waiting == (scope is GrantScope.SESSION)


async def test_a_rule_with_a_command_and_a_host_covers_only_both(open_crib: WorkspaceFixture) -> None:
    agent = await in_session(open_crib, await hand(open_crib, trust="guided"))
    approval = await asked(open_crib, agent, "bash", command="echo 1", hosts=["example.org"])
    assert approval.approval.suggested_rule == GrantRule(("bash",), commands=("echo *",), hosts=("example.org",))
    with pytest.raises(BadArguments) as refused:
        await decide(open_crib, approval, session_grant(GrantRule(("bash",), commands=("echo *",))))
    assert list(refused.value.fields) == ["rule.hosts"]

    await decide(open_crib, approval, session_grant(approval.approval.suggested_rule))
    agent = await fresh(open_crib, agent)

    assert (await open_crib.call("bash", agent, command="echo 2", hosts=["example.org"])).succeeded
    assert (await open_crib.call("bash", agent, command="cat /etc/passwd | echo", hosts=["example.org"])).is_waiting
    assert (await open_crib.call("bash", agent, command="echo", hosts=["example.com"])).is_waiting


async def test_a_host_of_the_agents_definition_is_not_asked_about(open_crib: WorkspaceFixture) -> None:
    agent = await hand(open_crib, hosts=("*.example.org",))

    assert (await open_crib.call("bash", agent, command="true", hosts=["a.example.org"])).succeeded
    explained = await open_crib.engine.executor.explain(
        ToolCall("bash", {"command": "true", "hosts": ["example.com"]}), agent
    )
    assert (explained.action, explained.rule) == (AuthorizationAction.ASK, UNGRANTED_HOSTS)


@pytest.mark.parametrize("host", ["127.0.0.1", "https://pypi.org", "pypi.org/simple", "*", "a b", ""])
async def test_only_host_names_can_be_named(open_crib: WorkspaceFixture, host: str) -> None:
    outcome = await open_crib.call("bash", await hand(open_crib), command="true", hosts=[host])

    assert isinstance(outcome.error, BadArguments)
    assert list(outcome.error.fields) == ["hosts.0"]
    assert "is not a host" in outcome.error.fields["hosts.0"]


async def test_a_command_that_fails_without_network_is_told_how_to_ask(open_crib: WorkspaceFixture) -> None:
    agent = await hand(open_crib)
    lookup = "python3 -c 'import urllib.request as u; u.urlopen(\"http://pypi.org/\")'"
    failed = (await open_crib.call("bash", agent, command=lookup)).result
    fine = await ran(open_crib, "echo getaddrinfo", agent)
    other = (await open_crib.call("bash", agent, command="echo no; exit 1")).result

    assert failed["is_error"]
    assert "the network is closed" in failed["output"]
    assert '{"hosts": ["pypi.org"]}' in failed["output"]
    assert "closed" not in fine["output"] + other["output"]


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import urllib.request as u; u.urlopen(\"http://example.com/\")' 2>&1 | tail -1",
        "curl -s http://example.com/ | head -3",
        "curl -s --connect-timeout 1 http://192.0.2.1/ || true",
    ],
    ids=["tail", "silent", "address"],
)
async def test_a_pipeline_that_succeeds_without_network_is_told_how_to_ask(
    open_crib: WorkspaceFixture, command: str
) -> None:
    result = await ran(open_crib, command, await hand(open_crib))

    assert result["metadata"]["exitCode"] == 0
    assert "[the network is closed for this command." in result["output"]


async def test_loopback_and_the_own_host_name_are_no_network(open_crib: WorkspaceFixture) -> None:
    serves = (
        "import socket, threading, urllib.request as u\n"
        "from http.server import HTTPServer, SimpleHTTPRequestHandler as Handler\n"
        "server = HTTPServer(('', 0), Handler)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "for name in ('localhost', '127.0.0.1', socket.gethostname()):\n"
        "    print(u.urlopen(f'http://{name}:{server.server_port}/').status, socket.getfqdn(name))\n"
    )
    result = await ran(open_crib, f"python3 - <<'END' 2>/dev/null\n{serves}END\ngit --version", await hand(open_crib))

    assert result["output"].count("200 ") == 3
    assert "closed" not in result["output"]


async def test_a_refused_host_is_named_with_how_to_ask(open_crib: WorkspaceFixture) -> None:
    async with upstream() as (port, _):
        agent = await hand(open_crib, hosts=(f"api.example.org:{port}",))
        result = await ran(open_crib, fetching(f"http://other.example.org:{port}/"), agent)

    assert f"the network is closed for other.example.org:{port}" in result["output"]
    assert "repeat the call with `hosts`" in result["output"]
