"""What nodes tell each other: that something happened, and deltas. Hints only; nothing is lost with them but time."""

from collections.abc import Sequence
from typing import Protocol

from toolcrib.domain.events import Delta
from toolcrib.engine.live.keys import Key


class Ears(Protocol):
    """What a node does with what it hears from others."""

    def woken(self, key: Key) -> None: ...

    def heard(self, delta: Delta) -> None: ...

    def so_far(self, key: Key) -> Sequence[Delta]:
        """What this node's own sources have said, for a node that starts to listen."""

    def reconnected(self) -> None:
        """Something may have been missed."""


class Wire(Protocol):
    """The way to the other nodes. Its plain methods never wait and never raise."""

    @property
    def is_up(self) -> bool:
        """Whether hints of other nodes arrive."""

    def wake(self, key: Key) -> None: ...

    def delta(self, delta: Delta) -> None: ...

    async def join(self, key: Key) -> Sequence[Delta]:
        """Listens to a session from now on; what other nodes' sources have said in it so far."""

    def leave(self, key: Key) -> None: ...


class Alone:
    """The wire of a node that has no others, or cannot hear them. What they do is then found by looking."""

    is_up = False

    def wake(self, key: Key) -> None:
        pass

    def delta(self, delta: Delta) -> None:
        pass

    async def join(self, key: Key) -> Sequence[Delta]:
        return ()

    def leave(self, key: Key) -> None:
        pass
