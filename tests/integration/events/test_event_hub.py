"""The event hub of one node: every event once and in order, with the deltas between them."""

import asyncio
from dataclasses import replace

import pytest

from tests.integration.conftest import new_person
from tests.integration.events.builders import Listener, Story, has_seq, text_of
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Forbidden, NotFound
from toolcrib.core.events import Delta, Event
from toolcrib.core.ids import SessionId, new_id
from toolcrib.events import EventHub
from toolcrib.events.subscriptions import MAX_WAITING
from toolcrib.storage.database import Tenant
from toolcrib.storage.workspaces import WorkspaceStore


@pytest.mark.req("EV-1", part="live")
async def test_events_are_delivered_once_in_order(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        for _ in range(3):
            await story.happens(2)
            live.notify(*story.key)
            live.notify(*story.key)

        assert await Listener(subscription).seqs(6) == [1, 2, 3, 4, 5, 6]


@pytest.mark.req("EV-1", part="resume")
async def test_returning_subscriber_gets_missed_events_and_then_live_ones(live: EventHub, story: Story) -> None:
    await story.happens(5)

    async with live.subscribe(story.tenant, story.session_id, after=2) as subscription:
        listener = Listener(subscription)
        missed = await listener.seqs(3)
        await story.happens()
        live.notify(*story.key)

        assert missed + await listener.seqs(1) == [3, 4, 5, 6]


@pytest.mark.req("EV-1", part="lost hints")
async def test_event_without_a_notification_is_found_by_polling(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await story.happens(3)

        assert await listener.seqs(3) == [1, 2, 3]


@pytest.mark.req("EV-1", part="numbers")
async def test_event_numbers_have_no_gaps_despite_rollbacks(story: Story) -> None:
    async def rolled_back() -> None:
        async with story.database.transaction(story.tenant) as connection:
            await story.sessions.append(connection, story.tenant, Event(story.session_id, "message", {}))
            raise ZeroDivisionError

    async def write(number: int) -> None:
        if number % 3 == 0:
            with pytest.raises(ZeroDivisionError):
                await rolled_back()
        else:
            await story.happens()

    await asyncio.gather(*(write(number) for number in range(30)))

    events = await story.sessions.events_after(story.tenant, story.session_id, 0, limit=100)
    assert [event.seq for event in events] == list(range(1, 21))


async def test_event_of_an_unknown_session_is_not_found(story: Story) -> None:
    with pytest.raises(NotFound):
        async with story.database.transaction(story.tenant) as connection:
            await story.sessions.append(connection, story.tenant, Event(SessionId(new_id()), "message", {}))


@pytest.mark.req("EV-1", part="deltas")
async def test_deltas_close_together_are_merged(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await story.happens()
        live.notify(*story.key)
        await listener.next()
        for number in range(100):
            live.publish_delta(story.says("call", "x", offset=number))

        # The first is sent at once; those that follow too soon are merged.
        assert await listener.next() == story.says("call", "x")
        assert await listener.next() == story.says("call", "x" * 99, offset=1)


@pytest.mark.req("EV-1", part="deltas")
async def test_deltas_before_an_event_are_delivered_before_it_and_none_after_their_end(
    live: EventHub, story: Story
) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await story.happens(type="tool-start", toolId="call")
        live.notify(*story.key)
        first = await listener.next()
        live.publish_delta(story.says("call", "said"))
        await story.happens(type="tool-result", toolId="call")
        live.notify(*story.key)
        told = [first, *await listener.until(has_seq(2))]
        live.publish_delta(story.says("call", " too late", offset=4))
        await story.happens()
        live.notify(*story.key)
        told += await listener.until(has_seq(3))

    assert [item.text if isinstance(item, Delta) else item.seq for item in told] == [1, "said", 2, 3]


@pytest.mark.req("EV-4", part="order")
async def test_deltas_after_an_event_are_delivered_after_it(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        telling = asyncio.create_task(Listener(subscription).until(has_seq(41)))
        await story.happens()
        live.notify(*story.key)
        for number in range(2, 41):
            await story.happens()
            live.notify(*story.key)
            live.publish_delta(story.says(f"call {number}", str(number)))
        await story.happens()
        live.notify(*story.key)
        told = await telling

    newest = 0
    for item in told:
        if isinstance(item, Delta):
            assert int(item.text) <= newest
        else:
            newest = item.seq or 0


@pytest.mark.req("EV-1", part="text so far")
async def test_late_subscriber_gets_the_text_so_far_and_then_the_rest(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as early:
        live.publish_delta(story.says("call", "It was "))
        assert await Listener(early).next() == story.says("call", "It was ")
        async with live.subscribe(story.tenant, story.session_id, after=0) as late:
            listener = Listener(late)
            so_far = await listener.next()
            live.publish_delta(story.says("call", "a dark", offset=7))

            assert text_of([so_far, await listener.next()], "call") == "It was a dark"


@pytest.mark.req("EV-1", part="text so far")
async def test_text_sent_before_the_first_subscriber_is_not_lost(live: EventHub, story: Story) -> None:
    live.publish_delta(story.says("call", "It was "))
    live.notify(*story.key)

    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        assert await Listener(subscription).next() == story.says("call", "It was ")


@pytest.mark.req("EV-1", part="text so far")
async def test_ended_text_is_not_delivered_as_live(live: EventHub, story: Story) -> None:
    live.publish_delta(story.says("call", "done by now"))
    seq = await story.happens(type="tool-result", toolId="call")
    live.notify(*story.key)

    async with live.subscribe(story.tenant, story.session_id, after=seq) as subscription:
        listener = Listener(subscription)
        waiting = asyncio.create_task(listener.next())
        await story.happens()
        live.notify(*story.key)

        assert has_seq(seq + 1)(await waiting)


@pytest.mark.req("EV-1", part="deltas")
async def test_new_attempt_replaces_the_old_one(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await story.happens()
        live.notify(*story.key)
        await listener.next()
        for delta in (
            story.says("call", "half a th"),
            story.says("call", "whole", attempt=1),
            story.says("call", "ought", offset=9),
            story.says("call", " thought", attempt=1, offset=5),
        ):
            live.publish_delta(delta)
            live.notify(*story.key)
        told: list[Delta] = []
        while not told or told[-1].text[-7:] != "thought":
            item = await listener.next()
            assert isinstance(item, Delta)
            told.append(item)

    assert [item.attempt for item in told] == sorted(item.attempt for item in told)
    assert text_of([item for item in told if item.attempt == 1], "call") == "whole thought"


@pytest.mark.req("EV-4", part="a slow reader")
async def test_slow_reader_loses_nothing_and_keeps_nothing_in_memory(live: EventHub, story: Story) -> None:
    count = 3 * MAX_WAITING
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await story.happens()
        live.notify(*story.key)
        first = await listener.seqs(1)
        async with live.subscribe(story.tenant, story.session_id, after=1) as other:
            await story.happens_often(count)
            live.notify(*story.key)
            # The other reader reads everything while this one pauses.
            await Listener(other).until(has_seq(count + 1))

            assert len(subscription._waiting) <= MAX_WAITING
            rest = await listener.seqs(count)

    assert first + rest == list(range(1, count + 2))


@pytest.mark.req("EV-4", part="membership")
async def test_removed_member_gets_no_later_events(live: EventHub, story: Story) -> None:
    guest = replace(story.tenant, user_id=await new_person(story.database))
    await _join(story, guest)
    async with live.subscribe(guest, story.session_id, after=0) as subscription:
        listener = Listener(subscription)
        await story.happens()
        live.notify(*story.key)
        assert await listener.seqs(1) == [1]
        assert guest.user_id is not None
        await WorkspaceStore(story.database).remove_member(story.tenant, guest.user_id)
        await story.happens()
        live.notify(*story.key)

        with pytest.raises(Forbidden):
            await listener.next()


async def test_stranger_may_not_subscribe(live: EventHub, story: Story) -> None:
    stranger = replace(story.tenant, user_id=await new_person(story.database))

    with pytest.raises(Forbidden):
        async with live.subscribe(stranger, story.session_id, after=0):
            pass


async def test_deleting_a_session_ends_its_subscriptions(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0) as subscription:
        await story.sessions.delete(story.tenant, story.session_id)

        with pytest.raises(NotFound):
            await Listener(subscription).next()


@pytest.mark.parametrize("after", [-1, 2, 10**12])
async def test_unknown_event_number_is_rejected(live: EventHub, story: Story, after: int) -> None:
    await story.happens()

    with pytest.raises(BadArguments, match="Validation"):
        async with live.subscribe(story.tenant, story.session_id, after=after):
            pass


async def test_node_drops_a_session_without_subscribers(live: EventHub, story: Story) -> None:
    async with live.subscribe(story.tenant, story.session_id, after=0):
        assert story.key in live._channels
    assert not live._channels


async def _join(story: Story, guest: Tenant) -> None:
    async with story.database.as_system() as connection:
        await connection.execute(
            "insert into toolcrib.members (workspace_id, user_id, role) values (%s, %s, %s)",
            (guest.workspace_id, guest.user_id, WorkspaceRole.VIEWER),
        )
