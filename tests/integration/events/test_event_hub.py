"""The event hub of one node: every event once and in order, with the deltas between them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import new_person
from tests.integration.events.builders import ChatFixture, Listener, has_seq, text_of
from tests.integration.storage.accounts import joined, user_of
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, DatabaseBusy, Forbidden, NotFound
from toolcrib.core.events import Delta, Event
from toolcrib.core.ids import SessionId, new_id
from toolcrib.events import EventHub
from toolcrib.events.event_hub import MAX_WAITING
from toolcrib.storage.events import EventBatch, EventStore


async def test_events_are_delivered_once_in_order(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        for _ in range(3):
            await chat.happens(2)
            live.notify(*chat.key)
            live.notify(*chat.key)

        assert await Listener(subscription).seqs(6) == [1, 2, 3, 4, 5, 6]


async def test_returning_subscriber_gets_missed_events_and_then_live_ones(live: EventHub, chat: ChatFixture) -> None:
    await chat.happens(5)

    async with live.subscribe(chat.tenant, chat.session_id, after=2) as subscription:
        listener = Listener(subscription)
        missed = await listener.seqs(3)
        await chat.happens()
        live.notify(*chat.key)

        assert missed + await listener.seqs(1) == [3, 4, 5, 6]


async def test_event_without_a_notification_is_found_by_polling(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens(3)

        assert await listener.seqs(3) == [1, 2, 3]


@pytest.mark.parametrize("error", [ValueError("a defect"), DatabaseBusy("a lock")], ids=["a defect", "a lock"])
async def test_subscription_goes_on_after_a_read_that_failed(
    live: EventHub, chat: ChatFixture, error: Exception
) -> None:
    reads = live._event_store.events_since
    failed: list[object] = []

    async def read(*args: Any, **kwargs: Any) -> EventBatch:
        if not failed:
            failed.append(args)
            raise error
        return await reads(*args, **kwargs)

    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens()
        live.notify(*chat.key)
        # From now on it is up to date, and reads nothing itself.
        assert await listener.seqs(1) == [1]
        live._event_store.events_since = read  # type: ignore[method-assign]
        await chat.happens(2)
        live.notify(*chat.key)

        assert await listener.seqs(2) == [2, 3]
    assert failed


async def test_event_numbers_have_no_gaps_despite_rollbacks(chat: ChatFixture) -> None:
    async def rolled_back() -> None:
        async with chat.database.transaction(chat.tenant) as connection:
            await EventStore.append_within(connection, chat.tenant, Event(chat.session_id, "message", {}))
            raise ZeroDivisionError

    async def write(number: int) -> None:
        if number % 3 == 0:
            with pytest.raises(ZeroDivisionError):
                await rolled_back()
        else:
            await chat.happens()

    await asyncio.gather(*(write(number) for number in range(30)))

    events = await chat.stores.sessions.events_after(chat.tenant, chat.session_id, 0, limit=100)
    assert [event.seq for event in events] == list(range(1, 21))


async def test_event_of_an_unknown_session_is_not_found(chat: ChatFixture) -> None:
    with pytest.raises(NotFound):
        async with chat.database.transaction(chat.tenant) as connection:
            await EventStore.append_within(connection, chat.tenant, Event(SessionId(new_id()), "message", {}))


async def test_deltas_close_together_are_merged(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens()
        live.notify(*chat.key)
        await listener.next()
        for number in range(100):
            live.publish_delta(chat.says("call", "x", offset=number))

        # The first is sent at once; those that follow too soon are merged.
        assert await listener.next() == chat.says("call", "x")
        assert await listener.next() == chat.says("call", "x" * 99, offset=1)


async def test_deltas_before_an_event_are_delivered_before_it_and_none_after_their_end(
    live: EventHub, chat: ChatFixture
) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens(type="tool-start", toolId="call")
        live.notify(*chat.key)
        first = await listener.next()
        live.publish_delta(chat.says("call", "said"))
        await chat.happens(type="tool-result", toolId="call")
        live.notify(*chat.key)
        result = [first, *await listener.until(has_seq(2))]
        live.publish_delta(chat.says("call", " too late", offset=4))
        await chat.happens()
        live.notify(*chat.key)
        result += await listener.until(has_seq(3))

    assert [item.text if isinstance(item, Delta) else item.seq for item in result] == [1, "said", 2, 3]


async def test_deltas_after_an_event_are_delivered_after_it(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        telling = asyncio.create_task(Listener(subscription).until(has_seq(41)))
        await chat.happens()
        live.notify(*chat.key)
        for number in range(2, 41):
            await chat.happens()
            live.notify(*chat.key)
            live.publish_delta(chat.says(f"call {number}", str(number)))
        await chat.happens()
        live.notify(*chat.key)
        result = await telling

    newest = 0
    for item in result:
        if isinstance(item, Delta):
            assert int(item.text) <= newest
        else:
            newest = item.seq or 0


async def test_late_subscriber_gets_the_text_so_far_and_then_the_rest(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as early:
        live.publish_delta(chat.says("call", "It was "))
        assert await Listener(early).next() == chat.says("call", "It was ")
        async with live.subscribe(chat.tenant, chat.session_id, after=0) as late:
            listener = Listener(late)
            so_far = await listener.next()
            live.publish_delta(chat.says("call", "a dark", offset=7))

            assert text_of([so_far, await listener.next()], "call") == "It was a dark"


async def test_text_sent_before_the_first_subscriber_is_not_lost(live: EventHub, chat: ChatFixture) -> None:
    live.publish_delta(chat.says("call", "It was "))
    live.notify(*chat.key)

    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        assert await Listener(subscription).next() == chat.says("call", "It was ")


async def test_ended_text_is_not_delivered_as_live(live: EventHub, chat: ChatFixture) -> None:
    live.publish_delta(chat.says("call", "done by now"))
    seq = await chat.happens(type="tool-result", toolId="call")
    live.notify(*chat.key)

    async with live.subscribe(chat.tenant, chat.session_id, after=seq) as subscription:
        listener = Listener(subscription)
        waiting = asyncio.create_task(listener.next())
        await chat.happens()
        live.notify(*chat.key)

        assert has_seq(seq + 1)(await waiting)


async def test_new_attempt_replaces_the_old_one(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens()
        live.notify(*chat.key)
        await listener.next()
        for delta in (
            chat.says("call", "half a th"),
            chat.says("call", "whole", attempt=1),
            chat.says("call", "ought", offset=9),
            chat.says("call", " thought", attempt=1, offset=5),
        ):
            live.publish_delta(delta)
            live.notify(*chat.key)
        result: list[Delta] = []
        while not result or result[-1].text[-7:] != "thought":
            item = await listener.next()
            assert isinstance(item, Delta)
            result.append(item)

    assert [item.attempt for item in result] == sorted(item.attempt for item in result)
    assert text_of([item for item in result if item.attempt == 1], "call") == "whole thought"


async def test_slow_reader_loses_nothing_and_keeps_nothing_in_memory(live: EventHub, chat: ChatFixture) -> None:
    count = 3 * MAX_WAITING
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens()
        live.notify(*chat.key)
        first = await listener.seqs(1)
        async with live.subscribe(chat.tenant, chat.session_id, after=1) as other:
            await chat.happens_often(count)
            live.notify(*chat.key)
            # The other reader reads everything while this one pauses.
            await Listener(other).until(has_seq(count + 1))

            assert len(subscription._waiting) <= MAX_WAITING
            rest = await listener.seqs(count)

    assert first + rest == list(range(1, count + 2))


async def test_removed_member_gets_no_later_events(live: EventHub, chat: ChatFixture) -> None:
    guest = await joined(chat.stores, chat.tenant, WorkspaceRole.VIEWER)
    async with live.subscribe(guest, chat.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await chat.happens()
        live.notify(*chat.key)
        assert await listener.seqs(1) == [1]
        await chat.stores.workspaces.remove_member(chat.tenant, user_of(guest))
        await chat.happens()
        live.notify(*chat.key)

        with pytest.raises(Forbidden):
            await listener.next()


async def test_stranger_may_not_subscribe(live: EventHub, chat: ChatFixture) -> None:
    stranger = replace(chat.tenant, user_id=await new_person(chat.stores))

    with pytest.raises(Forbidden):
        async with live.subscribe(stranger, chat.session_id, after=0):
            pass


async def test_deleting_a_session_ends_its_subscriptions(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0) as subscription:
        await chat.stores.sessions.delete(chat.tenant, chat.session_id)

        with pytest.raises(NotFound):
            await Listener(subscription).next()


@pytest.mark.parametrize("after", [-1, 2, 10**12])
async def test_unknown_event_number_is_rejected(live: EventHub, chat: ChatFixture, after: int) -> None:
    await chat.happens()

    with pytest.raises(BadArguments, match="Validation"):
        async with live.subscribe(chat.tenant, chat.session_id, after=after):
            pass


async def test_node_drops_a_session_without_subscribers(live: EventHub, chat: ChatFixture) -> None:
    async with live.subscribe(chat.tenant, chat.session_id, after=0):
        assert chat.key in live._channels
    assert not live._channels
