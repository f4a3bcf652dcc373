"""Executes the calls of one message. Their declared effects decide which run in parallel and which in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Effects, Outcome

# How many calls of one message run at once. More would take database connections from other users.
_AT_ONCE = 8


async def run_parallel(
    effects: Sequence[Effects | None], do: Callable[[int], Awaitable[Outcome]]
) -> list[Outcome | BaseException]:
    """Run ``do`` for each call by its index, and return the outcomes in order, as if each had waited for all before it.

    Calls run in parallel where the order makes no difference. A failed call does not stop the others. An exception that
    ``do`` raises takes the position of its outcome.
    """
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
    """Return, for each call, the indexes of the earlier calls that must end before it may start."""
    return [
        [earlier for earlier in range(later) if conflicts(effects[earlier], effects[later])]
        for later in range(len(effects))
    ]


def conflicts(one: Effects | None, other: Effects | None) -> bool:
    """Return whether the order of two calls matters. A call with unknown effects conflicts with every other."""
    if one is None or other is None or _may_touch_anything(one) or _may_touch_anything(other):
        return True
    return _overlap(one.writes, _touched(other)) or _overlap(_touched(one), other.writes)


def _may_touch_anything(effects: Effects) -> bool:
    """Return whether the call may touch anything: a command, or a tool that declares no effects."""
    return effects.command is not None or not (effects.paths or effects.hosts)


def _touched(effects: Effects) -> tuple[WorkspacePath, ...]:
    return (*effects.paths, *effects.requires)


def _overlap(some: Sequence[WorkspacePath], others: Sequence[WorkspacePath]) -> bool:
    return any(one == other or one.is_below(other) or other.is_below(one) for one in some for other in others)
