"""A client that is disconnected many times during heavy activity, and reconnects to this node or to another."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.integration.api.websocket_room import Room, listening
from tests.integration.events.conftest import redis
from tests.integration.events.redis_server import RedisServer
from toolcrib.core.callers import Caller
from toolcrib.core.ids import SessionId
from toolcrib.core.tool_calls import ToolCall
from toolcrib.events import EventHub
from toolcrib.storage.database import Database

__all__ = ["redis"]

EVENTS = 2_000
CUTS = 50


@pytest.fixture
async def live(database: Database, redis: RedisServer) -> AsyncIterator[EventHub]:
    """The first node, where events happen."""
    async with EventHub.open(database, redis_url=redis.url, node="one") as opened:
        await opened.connected()
        yield opened


@pytest.fixture
async def second_room(room: Room, database: Database, redis: RedisServer) -> AsyncIterator[Room]:
    """The same session on a second node."""
    async with EventHub.open(database, redis_url=redis.url, node="two") as second:
        await second.connected()
        async with listening(replace(room.services, live=second)) as address:
            yield replace(room, address=address)


async def test_client_disconnected_50_times_gets_every_event_once_in_order_and_pending_approvals(
    room: Room, second_room: Room
) -> None:
    chance = random.Random(2000)
    session_id, approval = await _something_waits(room)
    room, second_room = (replace(one, session_id=session_id) for one in (room, second_room))
    seen: list[int] = []
    happening = asyncio.create_task(_much_happens(room, chance))

    for cut in range(CUTS + 1):
        # The cut is random: before the first message, in the middle, or after the last.
        wanted = EVENTS if cut == CUTS else min(EVENTS, len(seen) + chance.randint(0, 2 * EVENTS // CUTS))
        async with chance.choice([room, second_room]).client() as client:
            resumed = await client.resume(after=len(seen))
            assert resumed["payload"]["pausedCalls"] == [approval]
            while len(seen) < wanted:
                message = await client.next()
                seen += [message["seq"]] if "seq" in message else []
            client.socket.transport.abort()
    await happening

    assert seen == list(range(1, EVENTS + 1))


async def _something_waits(room: Room) -> tuple[SessionId, str]:
    """Start an agent's call that waits for approval, as its session's first event; return both ids."""
    services = room.services
    agent = await services.agents.create(
        room.tenant, name="writer", definition="tool_permissions: {write: {allowed: true}}"
    )
    session = await services.sessions.create(room.tenant, agent_id=agent.id)
    assert room.tenant.user_id is not None
    caller = Caller(room.workspace_id, room.tenant.user_id, agent=agent.as_caller, session_id=session.id)
    outcome = await services.executor.execute(ToolCall("write", {"path": "/x", "content": "x"}), caller)
    return session.id, str(outcome.metadata["pause_id"])


async def _much_happens(room: Room, chance: random.Random) -> None:
    while True:
        newest = (await room.services.sessions.get(room.tenant, room.session_id)).last_seq
        if newest >= EVENTS:
            return
        async with room.services.database.transaction(room.tenant) as connection:
            await connection.execute(
                "select toolcrib.append_event(%s, %s, 'message', '{}') from generate_series(1, %s)",
                (room.workspace_id, room.session_id, min(chance.randint(1, 20), EVENTS - newest)),
            )
        room.services.live.notify(room.workspace_id, room.session_id)
