"""A principal becomes a caller in a workspace. How principals are found is in the integration tests."""

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


def test_a_person_calls_anywhere_and_membership_is_asked_of_the_database() -> None:
    caller = caller_for(ADA, WORKSPACE)

    assert (caller.user_id, caller.token_version, caller.agent, caller.via) == (ADA.user_id, 3, None, "rest")


def test_an_agents_key_calls_as_the_agent() -> None:
    assert caller_for(KEY, WORKSPACE, via="mcp").agent == WRITER
    assert tenant_for(KEY, WORKSPACE).agent_id == WRITER.id


@pytest.mark.req("AP-2", part="keys of agents")
def test_an_agents_key_is_refused_elsewhere_before_the_database_is_asked() -> None:
    with pytest.raises(Forbidden, match="not a member"):
        caller_for(KEY, new_id())
