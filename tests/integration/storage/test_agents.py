"""Agents and their keys in the database."""

import pytest

from tests.integration.storage.accounts import founded, joined, someone, user_of
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotFound
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.api_keys import ApiKeyStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import Stores

DEFINITION = "trust: autonomous  # it knows its trade\n"


@pytest.fixture
def agents(stores: Stores) -> AgentStore:
    return stores.agents


@pytest.fixture
def keys(stores: Stores) -> ApiKeyStore:
    return stores.keys


@pytest.fixture
async def ada(stores: Stores) -> Tenant:
    """Ada, in her workspace."""
    return await founded(stores, await someone(stores))


async def test_rules_are_parsed_from_the_definition(agents: AgentStore, ada: Tenant) -> None:
    made = await agents.create(ada, name="writer", definition=DEFINITION)
    changed = await agents.update(ada, made.id, definition="trust: supervised")

    assert (made.definition, made.rules.trust) == (DEFINITION, TrustLevel.AUTONOMOUS)
    assert (changed.name, changed.rules.trust) == ("writer", TrustLevel.SUPERVISED)
    assert await agents.get(ada, made.id) == changed
    assert await agents.list(ada) == [changed]


async def test_invalid_definition_changes_nothing(agents: AgentStore, ada: Tenant) -> None:
    made = await agents.create(ada, name="writer", definition=DEFINITION)

    with pytest.raises(BadArguments):
        await agents.update(ada, made.id, name="author", definition="trust: blind")

    assert await agents.get(ada, made.id) == made


async def test_names_are_unique_within_a_workspace_only(agents: AgentStore, stores: Stores, ada: Tenant) -> None:
    elsewhere = await founded(stores, await someone(stores))
    await agents.create(ada, name="writer", definition="")
    reader = await agents.create(ada, name="reader", definition="")
    await agents.create(elsewhere, name="writer", definition="")

    with pytest.raises(Conflict):
        await agents.create(ada, name="writer", definition="")
    with pytest.raises(Conflict):
        await agents.update(ada, reader.id, name="writer")


async def test_agent_of_another_workspace_is_not_found(agents: AgentStore, stores: Stores, ada: Tenant) -> None:
    made = await agents.create(ada, name="writer", definition="")
    elsewhere = await founded(stores, await someone(stores))

    for attempt in (
        agents.get(elsewhere, made.id),
        agents.update(elsewhere, made.id, name="mine"),
        agents.delete(elsewhere, made.id),
        stores.keys.create_for_agent(elsewhere, made.id, name="mine", expires_at=None),
    ):
        with pytest.raises(NotFound):
            await attempt


async def test_members_may_not_manage_agents(
    agents: AgentStore, keys: ApiKeyStore, stores: Stores, ada: Tenant
) -> None:
    made = await agents.create(ada, name="writer", definition="")
    bob = await joined(stores, ada, WorkspaceRole.MEMBER)

    for attempt in (
        agents.create(bob, name="another", definition=""),
        agents.update(bob, made.id, definition=DEFINITION),
        agents.delete(bob, made.id),
        keys.create_for_agent(bob, made.id, name="mine", expires_at=None),
    ):
        with pytest.raises(Forbidden):
            await attempt


async def test_agent_key_resolves_to_the_agent_with_its_current_rules(
    agents: AgentStore, keys: ApiKeyStore, ada: Tenant
) -> None:
    made = await agents.create(ada, name="writer", definition="")
    key, secret = await keys.create_for_agent(ada, made.id, name="ci", expires_at=None)
    changed = await agents.update(ada, made.id, definition=DEFINITION)

    holder = await keys.find(secret)

    assert holder is not None
    assert (holder.user_id, holder.workspace_id) == (ada.user_id, ada.workspace_id)
    assert holder.agent == changed.as_caller
    assert (key.workspace_id, key.agent_id) == (ada.workspace_id, made.id)


async def test_deleted_agent_has_no_key_and_is_not_listed(
    agents: AgentStore, keys: ApiKeyStore, stores: Stores, ada: Tenant
) -> None:
    made = await agents.create(ada, name="writer", definition="")
    _, secret = await keys.create_for_agent(ada, made.id, name="ci", expires_at=None)
    as_agent = Tenant(ada.workspace_id, ada.user_id, 0, made.id)
    assert (await stores.workspaces.get(as_agent)).id == ada.workspace_id

    await agents.delete(ada, made.id)

    assert await keys.find(secret) is None
    with pytest.raises(Forbidden):
        await stores.workspaces.get(as_agent)


async def test_former_member_can_still_revoke_the_key_they_created(
    agents: AgentStore, keys: ApiKeyStore, stores: Stores, ada: Tenant
) -> None:
    bob = await joined(stores, ada, WorkspaceRole.OWNER)
    made = await agents.create(ada, name="writer", definition="")
    key, secret = await keys.create_for_agent(bob, made.id, name="ci", expires_at=None)
    await stores.workspaces.remove_member(bob, user_of(bob))

    await keys.revoke(ActingUser(user_of(bob)), key.id)

    assert await keys.find(secret) is None
