"""Executes the calls of one message. Their declared effects decide which run in parallel and which in order."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from toolcrib.core.tool_calls import Effects, Outcome
from toolcrib.runtime.disk_threads import in_thread

# How many calls of one message run at once. More would take database connections from other users.
_AT_ONCE = 8
# Entering a deep path takes a few microseconds.
_FEW_PATHS = 200


async def run_parallel(
    effects: Sequence[Effects | None], do: Callable[[int], Awaitable[Outcome]]
) -> list[Outcome | BaseException]:
    """Run ``do`` for each call by its index, and return the outcomes in order, as if each had waited for all before it.

    Calls run in parallel where the order makes no difference. A failed call does not stop the others. An exception that
    ``do`` raises takes the position of its outcome.
    """
    # Off the loop: calls of one message can name ten thousand paths.
    waiting = await in_thread(dependencies, effects) if _names_many(effects) else dependencies(effects)
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


def _names_many(effects: Sequence[Effects | None]) -> bool:
    return sum(len(one.paths) for one in effects if one is not None) > _FEW_PATHS


def dependencies(effects: Sequence[Effects | None]) -> list[list[int]]:
    """Return, for each call, the indexes of the earlier calls that must end before it may start.

    The order of two calls matters if one writes what the other touches, or something above or below it; and that of a
    call with unknown effects to every other.
    """
    trees: dict[str, _Node] = defaultdict(_Node)
    earlier: list[list[int]] = []
    # Sets of calls, as bits: call number n is 1 << n.
    before, barriers = 0, 0
    for number, one in enumerate(effects):
        itself = 1 << number
        if one is None or _may_touch_anything(one):
            barriers |= itself
            waits = before
        else:
            waits = barriers
            written = set(one.writes)
            for path in written.union(one.paths, one.requires):
                waits |= _entered(trees[path.mount_key], path.parts, itself, writes=path in written)
        earlier.append(_numbers(waits & ~itself))
        before |= itself
    return earlier


def conflicts(one: Effects | None, other: Effects | None) -> bool:
    """Return whether the order of two calls matters."""
    return bool(dependencies([one, other])[1])


@dataclass(slots=True)
class _Node:
    """A path of the tree that the calls before touch: who touches and writes it, and who something below it."""

    children: "dict[str, _Node]" = field(default_factory=dict)
    touched: int = 0
    written: int = 0
    touched_below: int = 0
    written_below: int = 0


def _entered(node: _Node, parts: Sequence[str], call: int, *, writes: bool) -> int:
    """Enter a path that a call touches, and return the calls that must end before it. Takes a step for each part."""
    waits = 0
    for part in parts:
        waits |= node.touched if writes else node.written
        node.touched_below |= call
        if writes:
            node.written_below |= call
        below = node.children.get(part)
        if below is None:
            below = node.children[part] = _Node()
        node = below
    waits |= (node.touched | node.touched_below) if writes else (node.written | node.written_below)
    node.touched |= call
    if writes:
        node.written |= call
    return waits


def _numbers(calls: int) -> list[int]:
    found = []
    while calls:
        lowest = calls & -calls
        found.append(lowest.bit_length() - 1)
        calls ^= lowest
    return found


def _may_touch_anything(effects: Effects) -> bool:
    """Return whether the call may touch anything: a command, or a tool that declares no effects."""
    return effects.command is not None or not (effects.paths or effects.hosts)
