"""Several calls of one message. What they declare to touch decides which run side by side and which in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from toolcrib.domain.callers import Caller
from toolcrib.domain.effects import Effects
from toolcrib.domain.ids import CallId, new_id
from toolcrib.domain.outcomes import Outcome
from toolcrib.domain.places import Place
from toolcrib.engine.executor import Executor
from toolcrib.tools.call import ToolCall

# How many calls of one message run at once. More would take the database from everyone else.
_AT_ONCE = 8


async def execute_all(executor: Executor, calls: Sequence[ToolCall], caller: Caller) -> list[Outcome | BaseException]:
    """The outcomes in the order of the calls: as if each had waited for all before it, in less time.

    Each call has an id of its own, and none is stopped by another's failure. What ``execute`` would raise of a call
    stands in the place of its outcome.
    """
    callers = [replace(caller, call_id=CallId(new_id())) for _ in calls]

    async def execute(number: int) -> Outcome:
        return await executor.execute(calls[number], callers[number])

    return await side_by_side([executor.effects_of(call) for call in calls], execute)


async def side_by_side(
    effects: Sequence[Effects | None], do: Callable[[int], Awaitable[Outcome]]
) -> list[Outcome | BaseException]:
    """Does something for each call, by its number: at once where that makes no difference, else in order."""
    waiting = waits_for(effects)
    ended = [asyncio.Event() for _ in effects]
    room = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(number: int) -> Outcome:
        try:
            for earlier in waiting[number]:
                await ended[earlier].wait()
            async with room:
                return await do(number)
        finally:
            ended[number].set()

    return await asyncio.gather(*map(in_turn, range(len(effects))), return_exceptions=True)


def waits_for(effects: Sequence[Effects | None]) -> list[list[int]]:
    """For each call, by its number, the earlier calls that must have ended before it may begin."""
    return [
        [earlier for earlier in range(later) if conflict(effects[earlier], effects[later])]
        for later in range(len(effects))
    ]


def conflict(one: Effects | None, other: Effects | None) -> bool:
    """Whether it matters which of two calls runs first. Of what is not known everything is feared."""
    if one is None or other is None or _may_touch_anything(one) or _may_touch_anything(other):
        return True
    return _overlap(one.writes, _touched(other)) or _overlap(_touched(one), other.writes)


def _may_touch_anything(effects: Effects) -> bool:
    """A program may; so may a tool that declares nothing at all, such as one that takes a file's id."""
    return effects.runs is not None or not (effects.places or effects.contacts)


def _touched(effects: Effects) -> tuple[Place, ...]:
    return (*effects.places, *effects.needs)


def _overlap(some: Sequence[Place], others: Sequence[Place]) -> bool:
    return any(one == other or one.is_below(other) or other.is_below(one) for one in some for other in others)
