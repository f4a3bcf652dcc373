"""Attack 13: a member raises an agent's trust above its owner's, so that no approval is requested any more (PO-3)."""

from dataclasses import replace

import pytest

from tests.fakes.model_server import ModelServer
from tests.integration.conftest import WorkspaceFixture, model, providers, workspace
from tests.integration.gate.builders import joined
from tests.integration.runs.conftest import RunFixture, opened_office, says
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Forbidden
from toolcrib.core.ids import new_id
from toolcrib.core.runs import RunState
from toolcrib.policy.agent_definition import parse_definition
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import Session, SessionStore

__all__ = ["model", "providers", "workspace"]


@pytest.fixture
def sessions(workspace: WorkspaceFixture) -> SessionStore:
    return workspace.stores.sessions


async def session_of(workspace: WorkspaceFixture, **rules: object) -> Session:
    agent = (await workspace.agent(**rules)).agent
    assert agent is not None
    return await workspace.stores.sessions.create(workspace.tenant, agent_id=agent.id)


@pytest.mark.parametrize("own", ["supervised", "guided"])
async def test_member_cannot_raise_session_trust_above_the_agents(
    workspace: WorkspaceFixture, sessions: SessionStore, own: str
) -> None:
    session = await session_of(workspace, trust=own)
    member = Tenant.of(await joined(workspace, WorkspaceRole.MEMBER))

    with pytest.raises(Forbidden, match=f"The agent is {own}"):
        await sessions.set_trust(member, session.id, TrustLevel.AUTONOMOUS)
    with pytest.raises(Forbidden):
        await sessions.create(member, agent_id=session.agent_id, trust=TrustLevel.AUTONOMOUS)

    assert (await sessions.get(member, session.id)).trust is None


async def test_member_may_lower_trust_and_raise_it_back(workspace: WorkspaceFixture, sessions: SessionStore) -> None:
    session = await session_of(workspace, trust="guided")
    member = Tenant.of(await joined(workspace, WorkspaceRole.MEMBER))

    for trust in (TrustLevel.SUPERVISED, TrustLevel.GUIDED, None):
        assert (await sessions.set_trust(member, session.id, trust)).trust is trust


async def test_owner_raises_trust_up_to_the_ceiling(workspace: WorkspaceFixture, sessions: SessionStore) -> None:
    owner = workspace.tenant
    free = await session_of(workspace, trust="supervised")
    bound = await session_of(workspace, trust="supervised", max_trust="guided")

    assert (await sessions.set_trust(owner, free.id, TrustLevel.AUTONOMOUS)).trust is TrustLevel.AUTONOMOUS
    with pytest.raises(Forbidden, match="limited to guided"):
        await sessions.set_trust(owner, bound.id, TrustLevel.AUTONOMOUS)
    await workspace.stores.workspaces.limit_trust(owner, TrustLevel.SUPERVISED)
    for session in (free, bound):
        with pytest.raises(Forbidden, match="limited to supervised"):
            await sessions.set_trust(owner, session.id, TrustLevel.GUIDED)


async def test_members_raise_trust_up_to_the_agents_ceiling(
    workspace: WorkspaceFixture, sessions: SessionStore
) -> None:
    session = await session_of(workspace, trust="supervised", max_trust="guided")
    member = Tenant.of(await joined(workspace, WorkspaceRole.MEMBER))

    assert (await sessions.set_trust(member, session.id, TrustLevel.GUIDED)).trust is TrustLevel.GUIDED
    with pytest.raises(Forbidden):
        await sessions.set_trust(member, session.id, TrustLevel.AUTONOMOUS)


@pytest.mark.parametrize("role", [WorkspaceRole.MEMBER, WorkspaceRole.VIEWER])
async def test_only_owners_set_the_workspaces_ceiling(workspace: WorkspaceFixture, role: WorkspaceRole) -> None:
    workspaces = workspace.stores.workspaces
    other = Tenant.of(await joined(workspace, role))

    with pytest.raises(Forbidden):
        await workspaces.limit_trust(other, None)
    assert (await workspaces.limit_trust(workspace.tenant, TrustLevel.GUIDED)).max_trust is TrustLevel.GUIDED
    assert (await workspaces.get(other)).max_trust is TrustLevel.GUIDED


async def test_ceiling_limits_an_autonomous_agent_with_its_own_key(workspace: WorkspaceFixture) -> None:
    owner = workspace.tenant
    agent = (await workspace.agent(trust="autonomous", tool_permissions={"write": {"allowed": True}})).agent
    assert agent is not None
    _, secret = await workspace.stores.keys.create_for_agent(owner, agent.id, name="k", expires_at=None)
    await workspace.stores.workspaces.limit_trust(owner, TrustLevel.GUIDED)

    holder = await workspace.stores.keys.find(secret)
    assert holder is not None
    outcome = await workspace.call(
        "write", replace(workspace.caller, agent=holder.agent), path="/made.txt", content="x"
    )

    assert outcome.metadata["status"] == "approval_pending"
    assert not (workspace.project / "made.txt").exists()


async def test_explain_names_the_ceiling(workspace: WorkspaceFixture) -> None:
    owner = workspace.tenant
    agent = (await workspace.agent(trust="autonomous", tool_permissions={"write": {"allowed": True}})).agent
    assert agent is not None
    await workspace.stores.workspaces.limit_trust(owner, TrustLevel.GUIDED)

    stored = await workspace.stores.agents.get(owner, agent.id)

    assert stored.max_trust is TrustLevel.GUIDED
    caller = replace(workspace.caller, agent=stored.as_caller)
    outcome = await workspace.call("write", caller, path="/made.txt", content="x")
    assert "limited by `max_trust: guided`" in outcome.metadata["reason"]


async def sent(run_fixture: RunFixture) -> RunState:
    write = ("write", {"path": f"/{new_id()}.txt", "content": "x"})
    run = await run_fixture.send("go", says("", write), says("done"))
    return run.state


async def test_later_ceilings_limit_a_run_of_a_trusted_session(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry, sessions: SessionStore
) -> None:
    run_fixture = await opened_office(workspace, model, providers, trust="guided")
    await sessions.set_trust(run_fixture.tenant, run_fixture.session_id, TrustLevel.AUTONOMOUS)
    assert await sent(run_fixture) is RunState.ENDED

    await workspace.stores.workspaces.limit_trust(run_fixture.tenant, TrustLevel.GUIDED)

    assert await sent(run_fixture) is RunState.WAITING


async def test_members_setting_does_not_outlive_a_stricter_agent(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry, sessions: SessionStore
) -> None:
    run_fixture = await opened_office(workspace, model, providers, trust="autonomous")
    member = Tenant.of(await joined(workspace, WorkspaceRole.MEMBER))
    await sessions.set_trust(member, run_fixture.session_id, TrustLevel.AUTONOMOUS)
    agents = workspace.stores.agents
    strict = (await agents.get(run_fixture.tenant, run_fixture.agent.id)).definition.replace("autonomous", "guided")
    await agents.update(run_fixture.tenant, run_fixture.agent.id, definition=strict)

    assert await sent(run_fixture) is RunState.WAITING


def test_agent_cannot_be_declared_above_its_own_ceiling() -> None:
    with pytest.raises(BadArguments) as wrong:
        parse_definition("trust: autonomous\nmax_trust: guided\n")
    assert "trust" in wrong.value.fields
