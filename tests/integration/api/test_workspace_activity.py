"""The activity of a workspace over the WebSocket: topics that changed, whoever changed them and wherever."""

from dataclasses import replace
from typing import Any

from tests.integration.api.accounts import Newcomer
from tests.integration.api.websocket_room import Client, Room
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.tool_calls import ToolCall
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser

ASKS = "trust: supervised\ntool_permissions: {write: {allowed: true}}"


async def test_a_watching_client_learns_which_topics_changed(room: Room) -> None:
    async with room.client() as client:
        assert (await client.ask("chat:watch"))["type"] == "chat:ok"

        await room.services.executor.execute(ToolCall("write", {"path": "/a.txt", "content": "x"}), _caller(room))
        assert await _topics(client, room) == ["files"]
        await room.services.sessions.rename(room.tenant, room.session_id, "Named")
        assert await _topics(client, room) == ["sessions"]
        await room.happens()
        assert await _topics(client, room) == ["history"]


async def test_an_approval_is_announced_when_it_begins_and_when_it_ends(room: Room) -> None:
    agent = await room.services.agents.create(room.tenant, name="asker", definition=ASKS)
    session = await room.services.sessions.create(room.tenant, agent_id=agent.id)
    room = replace(room, session_id=session.id)
    async with room.client() as watcher, room.client() as client:
        await watcher.ask("chat:watch")
        call = await client.call("write", path="/a.txt", content="x")
        assert "approvals" in await _topics(watcher, room)
        await client.until_type("chat:tool-confirm")
        await client.ask("chat:tool-approve", toolId=call, approved=False)
        assert "approvals" in await _topics(watcher, room)


async def test_what_waits_in_another_workspace_is_announced_to_its_members_only(room: Room, newcomer: Newcomer) -> None:
    services, grace = room.services, await newcomer()
    assert room.tenant.user_id is not None
    elsewhere = await services.workspaces.create(
        ActingUser(room.tenant.user_id), name="other", node=services.settings.node_name
    )
    await services.workspaces.add_member(room.tenant, email=grace.email, role=WorkspaceRole.VIEWER)
    other = replace(room, tenant=Tenant(elsewhere.id, room.tenant.user_id))
    agent = await services.agents.create(other.tenant, name="asker", definition=ASKS)
    session = await services.sessions.create(other.tenant, agent_id=agent.id)
    other = replace(other, session_id=session.id)
    headers = {"Authorization": f"Bearer {grace.token}"}
    async with room.client() as ada, room.client(additional_headers=headers) as stranger, other.client() as client:
        await ada.ask("chat:watch")
        await stranger.ask("chat:watch")
        await client.call("write", path="/a.txt", content="x")
        assert (await _activity(ada)) == {"workspaceId": str(elsewhere.id), "topics": ["inbox"]}
        await services.sessions.rename(room.tenant, room.session_id, "Named")
        # The first that Grace hears is about the workspace that she is a member of.
        assert (await _activity(stranger)) == {"workspaceId": str(room.workspace_id), "topics": ["sessions"]}


async def _topics(client: Client, room: Room) -> list[str]:
    activity = await _activity(client)
    assert activity["workspaceId"] == str(room.workspace_id)
    return list(activity["topics"])


async def _activity(client: Client) -> dict[str, Any]:
    payload: dict[str, Any] = (await client.until_type("chat:activity"))["payload"]
    return payload


def _caller(room: Room) -> Caller:
    assert room.tenant.user_id is not None
    return Caller(workspace_id=room.workspace_id, user_id=room.tenant.user_id)
