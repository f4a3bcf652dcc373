"""An agent in a narrow phase of its workflow tries to get the permissions of a wider one. Only people change it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.model_server import ModelServer
from tests.integration.conftest import WorkspaceFixture, model, providers, workspace
from tests.integration.gate.builders import joined
from tests.integration.gate.test_approvals import serving
from tests.integration.runs.conftest import RunFixture, opened_office, says, yes
from tests.wait_until import PATIENCE
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Forbidden
from toolcrib.policy.trust import in_phase
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import SessionStore

__all__ = ["model", "providers", "workspace"]


PHASES: list[dict[str, Any]] = [
    {"name": "design", "tool_permissions": {"read": {"allowed": True}}},
    {"name": "build", "tool_permissions": {"read": {"allowed": True}, "write": {"allowed": True}}},
]
WRITE = ("write", {"path": "/made.txt", "content": "x"})


@pytest.fixture
async def run_fixture(workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry) -> RunFixture:
    return await opened_office(workspace, model, providers, tool_permissions=None, phases=PHASES)


@pytest.fixture
def sessions(workspace: WorkspaceFixture) -> SessionStore:
    return workspace.stores.sessions


def offered(run_fixture: RunFixture) -> list[str]:
    return [one["function"]["name"] for one in run_fixture.model.received[-1].body["tools"]]


async def test_run_has_only_the_tools_of_its_sessions_phase(run_fixture: RunFixture, sessions: SessionStore) -> None:
    made = run_fixture.workspace.project / "made.txt"
    await run_fixture.send("go", says("", WRITE), says("refused"))
    assert offered(run_fixture) == ["read"]
    assert not made.exists()
    assert "in phase 'design' cannot use `write`" in run_fixture.model_input()[-1]["content"]

    await sessions.enter_phase(run_fixture.tenant, run_fixture.session_id, "build")
    await run_fixture.send("go", says("", WRITE), says("done"))
    assert offered(run_fixture) == ["read", "write"]
    assert made.read_text() == "x"


async def test_paused_call_is_denied_if_the_phase_was_narrowed_meanwhile(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry, sessions: SessionStore
) -> None:
    run_fixture = await opened_office(workspace, model, providers, trust="guided", tool_permissions=None, phases=PHASES)
    await sessions.enter_phase(run_fixture.tenant, run_fixture.session_id, "build")
    await run_fixture.send("go", says("", WRITE), says("refused"))
    await sessions.enter_phase(run_fixture.tenant, run_fixture.session_id, "design")

    await run_fixture.decide(yes())
    await run_fixture.carry_on()

    assert not (workspace.project / "made.txt").exists()
    assert "in phase 'design' cannot use `write`" in run_fixture.model_input()[-1]["content"]


async def test_agents_own_key_acts_in_the_first_phase(workspace: WorkspaceFixture) -> None:
    agent = (await workspace.agent(trust="autonomous", phases=PHASES)).agent
    assert agent is not None
    keys = workspace.stores.keys
    _, secret = await keys.create_for_agent(workspace.tenant, agent.id, name="k", expires_at=None)
    holder = await keys.find(secret)
    assert holder is not None

    outcome = await workspace.call(
        "write", replace(workspace.caller, agent=holder.agent), path="/made.txt", content="x"
    )

    assert outcome.error is not None
    assert outcome.error.code == "NOT_PERMITTED"
    assert not (workspace.project / "made.txt").exists()


async def test_viewers_cannot_change_the_phase_and_members_choose_declared_ones(
    run_fixture: RunFixture, workspace: WorkspaceFixture, sessions: SessionStore
) -> None:
    viewer, member = (
        Tenant.of(await joined(workspace, WorkspaceRole.VIEWER)),
        Tenant.of(await joined(workspace, WorkspaceRole.MEMBER)),
    )

    with pytest.raises(Forbidden):
        await sessions.enter_phase(viewer, run_fixture.session_id, "build")
    with pytest.raises(BadArguments):
        await sessions.enter_phase(member, run_fixture.session_id, "release")
    with pytest.raises(BadArguments):
        await sessions.create(member, agent_id=run_fixture.agent.id, phase="release")
    assert (await sessions.enter_phase(member, run_fixture.session_id, "build")).phase == "build"


async def test_removed_phase_leaves_reading_only(run_fixture: RunFixture, sessions: SessionStore) -> None:
    await sessions.enter_phase(run_fixture.tenant, run_fixture.session_id, "build")
    agents = run_fixture.workspace.stores.agents
    definition = (await agents.get(run_fixture.tenant, run_fixture.agent.id)).definition
    await agents.update(
        run_fixture.tenant, run_fixture.agent.id, definition=definition.replace("name: build", "name: ship")
    )

    await run_fixture.send("go", says("", WRITE), says("refused"))

    assert "write" not in offered(run_fixture)
    assert not (run_fixture.workspace.project / "made.txt").exists()


@pytest.mark.parametrize(("then", "made"), [("build", True), (None, False)])
async def test_resumed_call_has_the_phase_of_its_execution(
    workspace: WorkspaceFixture, sessions: SessionStore, then: str | None, *, made: bool
) -> None:
    """A call outside a run: the server itself resumes it, and knows the session's phase."""
    tenant = workspace.tenant
    caller = await workspace.agent(trust="guided", phases=PHASES)
    assert caller.agent is not None
    session = await sessions.create(tenant, agent_id=caller.agent.id, phase="build")
    caller = replace(caller, agent=in_phase(caller.agent, "build"), session_id=session.id)
    asked = await workspace.call("write", caller, path="/made.txt", content="x")
    await sessions.enter_phase(tenant, session.id, then)

    await workspace.engine.paused_calls.decide(tenant, asked.metadata["pause_id"], yes(), via="test")
    async with serving(workspace), asyncio.timeout(PATIENCE):
        while (await workspace.stores.calls.get(tenant, asked.call_id)).state not in ("done", "denied"):
            pass

    # Read by a call: the worker was stopped, perhaps between its commit and the disk.
    assert (await workspace.call("read", path="/made.txt")).succeeded is made
