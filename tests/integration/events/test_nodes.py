"""Several nodes: events of one node reach the others, with Redis and without."""

import asyncio

from redis.asyncio import Redis

from tests.integration.events.builders import ChatFixture, Listener, has_seq, text_of
from tests.integration.events.redis_server import RedisServer
from toolcrib.core.events import Event
from toolcrib.events import EventHub
from toolcrib.storage.database import Database


async def test_event_of_one_node_reaches_another_at_once(nodes: tuple[EventHub, EventHub], chat: ChatFixture) -> None:
    one, two = nodes
    async with two.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        result = []
        for _ in range(5):
            await chat.happens()
            one.notify(*chat.key)
            result += await listener.seqs(1)

    assert result == [1, 2, 3, 4, 5]


async def test_deltas_of_one_node_reach_another_before_the_event_that_ends_them(
    nodes: tuple[EventHub, EventHub], chat: ChatFixture
) -> None:
    one, two = nodes
    await chat.happens(type="tool-start", toolId="call")
    async with two.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        # What happens from now on is not found by the subscription's first look at the database.
        await listener.until(has_seq(1))
        telling = asyncio.create_task(listener.until(has_seq(2)))
        for number in range(50):
            one.publish_delta(chat.says("call", f"{number:04}", offset=4 * number))
        await chat.happens(type="tool-result", toolId="call")
        one.notify(*chat.key)

        result = await telling

    assert text_of(result, "call") == "".join(f"{number:04}" for number in range(50))


async def test_late_subscriber_on_another_node_gets_the_text_so_far(
    nodes: tuple[EventHub, EventHub], chat: ChatFixture
) -> None:
    one, two = nodes
    one.publish_delta(chat.says("call", "It was "))
    async with two.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        so_far = await listener.next()
        one.publish_delta(chat.says("call", "a dark", offset=7))

        assert text_of([so_far, await listener.next()], "call") == "It was a dark"


async def test_without_redis_another_node_finds_events_by_polling(
    live: EventHub, database: Database, chat: ChatFixture
) -> None:
    async with (
        EventHub.open(database) as other,
        other.subscribe(chat.tenant, chat.session_id, after=0) as subscription,
    ):
        await chat.happens(3)
        live.notify(*chat.key)

        assert await Listener(subscription).seqs(3) == [1, 2, 3]


async def test_redis_restart_loses_no_durable_event_and_redis_is_used_again(
    nodes: tuple[EventHub, EventHub], chat: ChatFixture, redis: RedisServer
) -> None:
    one, two = nodes
    async with two.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens(10)
        one.notify(*chat.key)
        result = await listener.until(has_seq(10))
        redis.kill()
        await chat.happens(10)
        one.notify(*chat.key)
        one.publish_delta(chat.says("call", "unheard, "))
        result += await listener.until(has_seq(20))
        redis.start()
        # Deltas from the outage are sent again when the nodes reconnect.
        while not text_of(result, "call"):
            result.append(await listener.next())
        one.publish_delta(chat.says("call", "heard again", offset=9))
        await chat.happens(10)
        one.notify(*chat.key)
        result += await listener.until(has_seq(30))

    assert [item.seq for item in result if isinstance(item, Event)] == list(range(1, 31))
    assert text_of(result, "call") == "unheard, heard again"


async def test_foreign_messages_on_redis_end_nothing(
    nodes: tuple[EventHub, EventHub], chat: ChatFixture, redis: RedisServer
) -> None:
    one, two = nodes
    workspace, session = chat.key
    async with (
        two.subscribe(chat.tenant, chat.session_id, after=0) as subscription,
        Redis.from_url(redis.url) as evil,
    ):
        for note in ("", "1", "[]", "null", '{"from": 1, "delta": [1,2,3,4,5,6,7]}', '{"from": 1, "ask": [1, 2]}', "{"):
            await evil.publish(f"toolcrib:live:{workspace}:{session}", note)
            await evil.publish("toolcrib:live:asking", note)
        await chat.happens()
        one.notify(*chat.key)
        assert await Listener(subscription).seqs(1) == [1]
