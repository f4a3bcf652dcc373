"""What a tool is given to work with, besides its arguments."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from toolcrib.domain.callers import Caller
from toolcrib.domain.places import Place
from toolcrib.domain.questions import Item
from toolcrib.workspace.draft import Draft
from toolcrib.workspace.tree import Tree


@dataclass(slots=True)
class Remarks:
    """What a tool says of a call beside its result, for the gate.

    ``isolation`` is how well a program was held. ``protected`` are places of the draft whose names are closed to the
    caller: they are committed only if a person says yes to them.
    """

    isolation: str | None = None
    protected: list[Place] = field(default_factory=list)
    # Hosts that a program reached, and those that it was refused, with the reason.
    contacted: list[tuple[str, str | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call's surroundings. A tool reads through ``tree`` and writes into ``draft``; the gate commits it.

    ``emit`` shows output while the call runs, ``deadline`` is when it will be ended (monotonic seconds), and
    ``cancelled`` is set when nobody wants the result any more. What a tool puts into ``asked`` is put to a person;
    the call then waits for the answer, and what the function returned is not used.
    """

    caller: Caller
    tree: Tree
    draft: Draft
    deadline: float
    emit: Callable[[str], None]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[Item] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def seconds_left(self) -> float:
        return self.deadline - monotonic()
