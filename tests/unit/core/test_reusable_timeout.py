"""Cancels waits that take too long, and nothing else."""

import asyncio

import pytest
import uvloop

from toolcrib.runtime.reusable_timeout import ReusableTimeout

SOON, NEVER = 0.01, 3600.0


async def for_ever(alarm: ReusableTimeout, seconds: float) -> None:
    with alarm.after(seconds):
        await asyncio.Event().wait()


async def test_a_wait_that_takes_too_long_is_cancelled_every_time() -> None:
    alarm = ReusableTimeout()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await for_ever(alarm, SOON)


def test_a_wait_that_returns_at_once_can_be_followed_by_another_on_uvloop() -> None:
    async def scene() -> None:
        alarm = ReusableTimeout()
        for _ in range(50):
            with alarm.after(0.0):
                pass
            with alarm.after(NEVER):
                pass

    uvloop.run(scene())


async def test_a_shorter_wait_after_a_longer_one_times_out_in_its_own_time() -> None:
    alarm = ReusableTimeout()
    with alarm.after(NEVER):
        pass
    with pytest.raises(TimeoutError):
        await for_ever(alarm, SOON)


async def test_a_later_wait_is_not_cancelled_by_the_timer_of_an_earlier_one() -> None:
    alarm, loop = ReusableTimeout(), asyncio.get_running_loop()
    with alarm.after(SOON):
        pass
    passed = asyncio.Event()
    loop.call_later(2 * SOON, passed.set)
    with alarm.after(NEVER):
        await passed.wait()


async def test_the_timer_does_not_fire_after_the_wait() -> None:
    alarm, passed = ReusableTimeout(), asyncio.Event()
    with alarm.after(SOON):
        pass
    asyncio.get_running_loop().call_later(2 * SOON, passed.set)
    await passed.wait()


async def test_a_cancellation_from_outside_is_raised() -> None:
    task = asyncio.create_task(for_ever(ReusableTimeout(), NEVER))
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_at_the_moment_of_the_timeout_is_raised() -> None:
    alarm = ReusableTimeout()

    async def waiting() -> None:
        asyncio.get_running_loop().call_soon(both)
        await for_ever(alarm, NEVER)

    def both() -> None:
        alarm._due = 0.0
        alarm._check()
        task.cancel()

    task = asyncio.create_task(waiting())
    with pytest.raises(asyncio.CancelledError):
        await task
