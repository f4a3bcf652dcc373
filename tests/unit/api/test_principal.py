"""Turns a principal into a caller in a workspace. The integration tests cover how principals are found."""

import pytest

from toolcrib.api.auth.principal import Principal, caller_for, tenant_for
from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import AgentId, UserId, WorkspaceId, new_id

WORKSPACE = WorkspaceId(new_id())
WRITER = Agent(AgentId(new_id()), "writer", AgentRules())
ADA = Principal(UserId(new_id()), 3, "bearer")
KEY = Principal(ADA.user_id, 3, "key", WRITER, WORKSPACE)


def test_a_person_gets_a_caller_for_any_workspace_before_the_membership_check() -> None:
    caller = caller_for(ADA, WORKSPACE)

    assert (caller.user_id, caller.token_version, caller.agent, caller.via) == (ADA.user_id, 3, None, "rest")


def test_an_agents_key_calls_as_the_agent() -> None:
    assert caller_for(KEY, WORKSPACE, via="mcp").agent == WRITER
    assert tenant_for(KEY, WORKSPACE).agent_id == WRITER.id


def test_an_agents_key_is_rejected_in_other_workspaces_without_a_query() -> None:
    with pytest.raises(Forbidden, match="not a member"):
        caller_for(KEY, new_id())
