"""The order of roles, and who a caller is."""

from dataclasses import replace

import pytest

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller, WorkspaceRole
from toolcrib.core.ids import AgentId, RunId, SessionId, UserId, WorkspaceId, new_id


@pytest.mark.parametrize(
    ("held", "enough_for"),
    [
        (WorkspaceRole.VIEWER, {WorkspaceRole.VIEWER}),
        (WorkspaceRole.MEMBER, {WorkspaceRole.VIEWER, WorkspaceRole.MEMBER}),
        (WorkspaceRole.OWNER, {WorkspaceRole.VIEWER, WorkspaceRole.MEMBER, WorkspaceRole.OWNER}),
    ],
)
def test_a_role_covers_itself_and_those_below(held: WorkspaceRole, enough_for: set[WorkspaceRole]) -> None:
    assert {needed for needed in WorkspaceRole if held.covers(needed)} == enough_for


def test_the_state_scope_is_the_session_then_the_agent_then_the_person() -> None:
    person = Caller(WorkspaceId(new_id()), UserId(new_id()))
    agent = replace(person, agent=Agent(AgentId(new_id()), "helper", AgentRules()))
    session = replace(agent, session_id=SessionId(new_id()), run_id=RunId(new_id()))

    assert person.state_scope == str(person.user_id)
    assert agent.state_scope == str(agent.agent_id)
    assert session.state_scope == str(session.session_id)


def test_every_call_has_a_unique_id() -> None:
    workspace, user = WorkspaceId(new_id()), UserId(new_id())

    assert Caller(workspace, user).call_id != Caller(workspace, user).call_id
