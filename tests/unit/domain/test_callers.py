"""Roles in their order, and who a caller is."""

from dataclasses import replace

import pytest

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.callers import Agent, Caller, Role
from toolcrib.domain.ids import AgentId, RunId, UserId, WorkspaceId, new_id


@pytest.mark.req("PO-1", part="roles")
@pytest.mark.parametrize(
    ("held", "enough_for"),
    [
        (Role.VIEWER, {Role.VIEWER}),
        (Role.MEMBER, {Role.VIEWER, Role.MEMBER}),
        (Role.OWNER, {Role.VIEWER, Role.MEMBER, Role.OWNER}),
    ],
)
def test_a_role_covers_itself_and_those_below(held: Role, enough_for: set[Role]) -> None:
    assert {needed for needed in Role if held.covers(needed)} == enough_for


@pytest.mark.req("WS-1", part="@state is the run's, or the caller's")
def test_the_state_is_the_runs_then_the_agents_then_the_persons() -> None:
    person = Caller(WorkspaceId(new_id()), UserId(new_id()))
    agent = replace(person, agent=Agent(AgentId(new_id()), "helper", AgentRules()))
    run = replace(agent, run_id=RunId(new_id()))

    assert person.state_scope == str(person.user_id)
    assert agent.state_scope == str(agent.agent_id)
    assert run.state_scope == str(run.run_id)


def test_every_call_has_an_id_of_its_own() -> None:
    workspace, user = WorkspaceId(new_id()), UserId(new_id())

    assert Caller(workspace, user).call_id != Caller(workspace, user).call_id
