"""Turns that are shared fairly: so many at once, by accounts in rotation, none of which takes more than half."""

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

# For whom the running task works: what it waits for is shared between accounts. None is the server itself.
account: Final[ContextVar[UserId | None]] = ContextVar("account", default=None)

_JUST_NOW_SECONDS: Final = 1.0
_REMEMBERED: Final = 16


@contextmanager
def working_for(user_id: UserId) -> Iterator[None]:
    """What the running task waits for meanwhile is shared as this account's."""
    before = account.set(user_id)
    try:
        yield
    finally:
        account.reset(before)


class FairQueue:
    """At most ``at_once`` turns at a time. An account may hold half of what the others leave, and one in any case.

    So one account alone cannot make another wait: whoever comes next finds a turn free. What must wait is served by
    accounts in rotation, not by who asked most. The queue is bounded; beyond it, Overloaded says to come back.
    ``beside_others``: where turns also slow each other down, as those do that compute, an account holds no more than
    this while others ask for turns, too.
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
        # When each account last asked, the latest last.
        self._asked: OrderedDict[Hashable, float] = OrderedDict()

    @asynccontextmanager
    async def turn(self, key: Hashable = None) -> AsyncIterator[None]:
        """One turn, for the account of the running task unless another ``key`` is given."""
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
            raise Overloaded(f"Too many {self._what} wait for their turn already. Try again in a moment.")
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # It was given in the same moment; somebody else can use it.
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
        """Gives free turns to those who wait: of each account the first, then the next account's."""
        while next_key := next(((key,) for key in self._queues if self._is_free_for(key)), None):
            (key,) = next_key
            turn = self._queues[key].popleft()
            self._waiting -= 1
            if self._queues[key]:
                self._queues.move_to_end(key)
            else:
                del self._queues[key]
            if not turn.done():
                # Else whoever waited has gone, and is about to notice.
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
        """Whether another account asked for a turn just now."""
        latest = next((at for other, at in islice(reversed(self._asked.items()), 2) if other != key), None)
        return latest is not None and self._clock() - latest < _JUST_NOW_SECONDS
