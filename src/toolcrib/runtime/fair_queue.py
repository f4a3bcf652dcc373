"""Limits concurrency fairly: accounts take turns in rotation, and none takes more than half."""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Final

from toolcrib.core.errors import Overloaded
from toolcrib.core.ids import UserId

# The account that the running task works for. None is the server itself.
account: Final[ContextVar[UserId | None]] = ContextVar("account", default=None)

_JUST_NOW_SECONDS: Final = 1.0
_REMEMBERED: Final = 16


@contextmanager
def working_for(user_id: UserId) -> Iterator[None]:
    """Count the waits of the running task towards this account."""
    before = account.set(user_id)
    try:
        yield
    finally:
        account.reset(before)


class FairQueue:
    """Grants at most ``at_once`` turns at a time. An account may hold half of what the others leave, and always one.

    So one account alone cannot make another wait. Waiting accounts are served in rotation, regardless of how much they
    requested. The queue is limited; beyond that it raises ``Overloaded``.

    Args:
        at_once: The most turns at a time.
        what: What waits, for error messages.
        beside_others: The most turns of an account while others request some, too. For turns that slow each other down,
            such as computations.
        waiting: The most waiting requests.
        waiting_of_one: The most waiting requests of one account.
    """

    def __init__(
        self,
        at_once: int,
        *,
        what: str,
        beside_others: int | None = None,
        waiting: int = 256,
        waiting_of_one: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._at_once = at_once
        self._beside_others = beside_others
        self._clock = clock
        self._what = what
        self._most_waiting = waiting
        self._most_waiting_of_one = waiting_of_one
        self._held: Counter[Hashable] = Counter()
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._waiting = 0
        # The time of each account's last request, latest last.
        self._asked: OrderedDict[Hashable, float] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many requests wait for a turn."""
        return self._waiting

    @asynccontextmanager
    async def turn(self, key: Hashable = None) -> AsyncIterator[None]:
        """Wait for a turn, for the account of the running task unless another ``key`` is given."""
        key = account.get() if key is None else key
        await self._take(key)
        try:
            yield
        finally:
            self._give_back(key)

    async def _take(self, key: Hashable) -> None:
        self._note(key)
        queue = self._queues.get(key)
        if not queue and self._is_free_for(key):
            self._held[key] += 1
            return
        if self._waiting >= self._most_waiting or (queue and len(queue) >= self._most_waiting_of_one):
            raise Overloaded(f"Too many {self._what} are queued. Try again in a moment.")
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The turn was granted at the same moment; pass it on.
                self._give_back(key)
            else:
                self._leave(key, turn)
            raise

    def _give_back(self, key: Hashable) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._give_on()

    def _give_on(self) -> None:
        """Grant free turns to waiting requests: the first of each account, then the next account's."""
        while next_key := next(((key,) for key in self._queues if self._is_free_for(key)), None):
            (key,) = next_key
            turn = self._queues[key].popleft()
            self._waiting -= 1
            if self._queues[key]:
                self._queues.move_to_end(key)
            else:
                del self._queues[key]
            if not turn.done():
                # Otherwise the waiting task was cancelled, and is about to notice.
                self._held[key] += 1
                turn.set_result(None)

    def _leave(self, key: Hashable, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(key)
        if queue is None or turn not in queue:
            return
        queue.remove(turn)
        self._waiting -= 1
        if not queue:
            del self._queues[key]

    def _is_free_for(self, key: Hashable) -> bool:
        held, in_all = self._held[key], self._held.total()
        most = max(1, (self._at_once - (in_all - held)) // 2)
        if self._beside_others is not None and most > self._beside_others and self._others_ask(key):
            most = self._beside_others
        return in_all < self._at_once and held < most

    def _note(self, key: Hashable) -> None:
        self._asked[key] = self._clock()
        self._asked.move_to_end(key)
        if len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)

    def _others_ask(self, key: Hashable) -> bool:
        """Whether another account requested a turn just now."""
        latest = next((at for other, at in islice(reversed(self._asked.items()), 2) if other != key), None)
        return latest is not None and self._clock() - latest < _JUST_NOW_SECONDS
