"""Waits that last too long are ended, and nothing else is."""

import asyncio

import pytest
import uvloop

from toolcrib.runtime.reusable_timeout import ReusableTimeout

pytestmark = pytest.mark.req("PR-1", part="a turn ends in time")

SOON, NEVER = 0.01, 3600.0


async def for_ever(alarm: ReusableTimeout, seconds: float) -> None:
    with alarm.after(seconds):
        await asyncio.Event().wait()


async def test_a_wait_that_lasts_too_long_is_ended_again_and_again() -> None:
    alarm = ReusableTimeout()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await for_ever(alarm, SOON)


def test_a_wait_that_is_over_at_once_can_be_followed_by_another_on_the_loop_that_a_server_runs_on() -> None:
    async def scene() -> None:
        alarm = ReusableTimeout()
        for _ in range(50):
            with alarm.after(0.0):
                pass
            with alarm.after(NEVER):
                pass

    uvloop.run(scene())


async def test_a_shorter_wait_after_a_longer_one_is_ended_in_its_own_time() -> None:
    alarm = ReusableTimeout()
    with alarm.after(NEVER):
        pass
    with pytest.raises(TimeoutError):
        await for_ever(alarm, SOON)


async def test_a_wait_that_began_later_is_not_ended_by_the_timer_of_an_earlier_one() -> None:
    alarm, loop = ReusableTimeout(), asyncio.get_running_loop()
    with alarm.after(SOON):
        pass
    passed = asyncio.Event()
    loop.call_later(2 * SOON, passed.set)
    with alarm.after(NEVER):
        await passed.wait()


async def test_after_the_wait_it_rings_for_nobody() -> None:
    alarm, passed = ReusableTimeout(), asyncio.Event()
    with alarm.after(SOON):
        pass
    asyncio.get_running_loop().call_later(2 * SOON, passed.set)
    await passed.wait()


async def test_who_is_cancelled_by_others_is_cancelled() -> None:
    task = asyncio.create_task(for_ever(ReusableTimeout(), NEVER))
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_is_cancelled_at_the_very_moment_is_cancelled_all_the_same() -> None:
    alarm = ReusableTimeout()

    async def waiting() -> None:
        asyncio.get_running_loop().call_soon(both)
        await for_ever(alarm, NEVER)

    def both() -> None:
        alarm._due = 0.0
        alarm._look()
        task.cancel()

    task = asyncio.create_task(waiting())
    with pytest.raises(asyncio.CancelledError):
        await task
