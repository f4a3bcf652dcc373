"""Turns: half of the free ones per account, accounts in rotation, a bounded queue, and no turn lost on cancellation."""

import asyncio

import pytest

from tests.wait_until import PATIENCE
from toolcrib.core.errors import Overloaded
from toolcrib.runtime.fair_queue import FairQueue


class TurnHolder:
    """Holds turns until a test releases them."""

    def __init__(self, turns: FairQueue) -> None:
        self._turns = turns
        self.order: list[str] = []
        self._ends: list[tuple[str, asyncio.Event]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, who: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._hold(who))
        self._tasks.append(task)
        await applied()
        return task

    async def end_one(self) -> None:
        self._ends.pop(0)[1].set()
        await applied()

    @property
    def holding(self) -> list[str]:
        return [who for who, _ in self._ends]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, who: str) -> None:
        async with self._turns.turn(who):
            self.order.append(who)
            end = asyncio.Event()
            self._ends.append((who, end))
            await end.wait()


async def applied() -> None:
    """Lets every task run as far as it can."""
    for _ in range(10):
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)


async def test_one_account_takes_half_and_the_next_account_gets_a_turn() -> None:
    turn_holder = TurnHolder(FairQueue(16, what="commands"))
    for _ in range(20):
        await turn_holder.ask("a")
    for _ in range(20):
        await turn_holder.ask("b")
    await turn_holder.ask("c")

    assert turn_holder.holding == ["a"] * 8 + ["b"] * 4 + ["c"]
    await turn_holder.close()


async def test_with_contention_an_account_holds_few_turns_while_others_wait() -> None:
    now = 0.0
    turn_holder = TurnHolder(FairQueue(16, what="calls", beside_others=2, clock=lambda: now))
    for _ in range(12):
        await turn_holder.ask("a")
    assert turn_holder.holding == ["a"] * 8

    await turn_holder.ask("b")
    assert turn_holder.holding == ["a"] * 8 + ["b"]
    for _ in range(7):
        await turn_holder.end_one()
    assert turn_holder.holding == ["a", "b", "a"], "One more only when no more than two are held."

    now = 2.0
    await turn_holder.end_one()
    assert turn_holder.holding == ["b", "a", "a", "a", "a"], "Nobody else has asked for a while."
    await turn_holder.close()


async def test_accounts_are_served_in_rotation_whatever_their_number_of_requests() -> None:
    turn_holder = TurnHolder(FairQueue(2, what="commands"))
    for who in ("a", "a", "a", "a", "b", "b"):
        await turn_holder.ask(who)
    assert turn_holder.holding == ["a", "b"]
    for _ in range(6):
        await turn_holder.end_one()

    assert turn_holder.order == ["a", "b", "a", "b", "a", "a"]
    await turn_holder.close()


async def test_a_full_queue_rejects_one_account_and_not_another() -> None:
    turns = FairQueue(2, what="commands", waiting_of_one=2)
    turn_holder = TurnHolder(turns)
    for _ in range(3):
        await turn_holder.ask("a")

    with pytest.raises(Overloaded, match="Too many commands are queued"):
        async with turns.turn("a"):
            pass
    await turn_holder.ask("b")
    assert turn_holder.holding == ["a", "b"]
    await turn_holder.close()


@pytest.mark.parametrize("leaves_with", [False, True])
async def test_a_cancelled_waiter_loses_no_turn(leaves_with: bool) -> None:
    turn_holder = TurnHolder(FairQueue(2, what="commands"))
    holder, waiter = await turn_holder.ask("a"), await turn_holder.ask("a")
    waiter.cancel()
    if leaves_with:
        holder.cancel()
    else:
        await turn_holder.end_one()
    await applied()
    await turn_holder.close()

    async with asyncio.timeout(PATIENCE), turn_holder._turns.turn("a"):
        pass
