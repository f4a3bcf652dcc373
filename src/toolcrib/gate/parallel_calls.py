"""Several calls of one message. What they declare to touch decides which run side by side and which in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Effects, Outcome, ToolCall
from toolcrib.gate.call_pipeline import Gate

# How many calls of one message run at once. More would take the database from everyone else.
_AT_ONCE = 8


async def execute_all(executor: Gate, calls: Sequence[ToolCall], caller: Caller) -> list[Outcome | BaseException]:
    """The outcomes in the order of the calls: as if each had waited for all before it, in less time.

    Each call has an id of its own, and none is stopped by another's failure. What ``execute`` would raise of a call
    stands in the place of its outcome.
    """
    callers = [replace(caller, call_id=CallId(new_id())) for _ in calls]

    async def execute(number: int) -> Outcome:
        return await executor.execute(calls[number], callers[number])

    return await run_parallel([executor.effects_of(call) for call in calls], execute)


async def run_parallel(
    effects: Sequence[Effects | None], do: Callable[[int], Awaitable[Outcome]]
) -> list[Outcome | BaseException]:
    """Does something for each call, by its number: at once where that makes no difference, else in order."""
    waiting = dependencies(effects)
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


def dependencies(effects: Sequence[Effects | None]) -> list[list[int]]:
    """For each call, by its number, the earlier calls that must have ended before it may begin."""
    return [
        [earlier for earlier in range(later) if conflicts(effects[earlier], effects[later])]
        for later in range(len(effects))
    ]


def conflicts(one: Effects | None, other: Effects | None) -> bool:
    """Whether it matters which of two calls runs first. Of what is not known everything is feared."""
    if one is None or other is None or _may_touch_anything(one) or _may_touch_anything(other):
        return True
    return _overlap(one.writes, _touched(other)) or _overlap(_touched(one), other.writes)


def _may_touch_anything(effects: Effects) -> bool:
    """A program may; so may a tool that declares nothing at all, such as one that takes a file's id."""
    return effects.command is not None or not (effects.paths or effects.hosts)


def _touched(effects: Effects) -> tuple[WorkspacePath, ...]:
    return (*effects.paths, *effects.requires)


def _overlap(some: Sequence[WorkspacePath], others: Sequence[WorkspacePath]) -> bool:
    return any(one == other or one.is_below(other) or other.is_below(one) for one in some for other in others)
