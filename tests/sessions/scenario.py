"""The form of a session: what the model says and calls, what the person does in between, and what undo must leave."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]

# Stands for the id of the last background process in a call's arguments.
PROCESS = "$process"


@dataclass(frozen=True)
class Turn:
    """One response of the model. ``fails`` says that its call is expected to fail."""

    text: str
    calls: tuple[Call, ...]
    fails: bool = False


@dataclass(frozen=True)
class Hand:
    """What the person does in a shell between two turns."""

    script: str


@dataclass(frozen=True)
class Session:
    """A session. Undo reverts all its calls, or only those of turn ``undone`` (from 0)."""

    name: str
    steps: tuple[Turn | Hand, ...]
    # What the person did before: a script, and files.
    preparation: str = ""
    furnish: Callable[[Path], None] | None = None
    undone: int | None = None
    # Names of the state that undo must leave as it finds them, because the person changed them too.
    stays: tuple[str, ...] = ()
    # Part of the gate; the others take longer.
    quick: bool = False

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(step for step in self.steps if isinstance(step, Turn))

    @property
    def calls(self) -> int:
        return sum(len(turn.calls) for turn in self.turns)


def say(text: str, *calls: Call, fails: bool = False) -> Turn:
    return Turn(text, calls, fails)


def bash(command: str, *, fails: bool = False, timeout: int | None = None) -> Turn:
    """A turn with one command."""
    limit = {} if timeout is None else {"timeout": timeout}
    return Turn("", (("bash", {"command": command, **limit}),), fails)


def call(tool: str, **arguments: Any) -> Turn:
    """A turn with one call."""
    return Turn("", ((tool, arguments),))


def edit(path: str, old: str, new: str) -> Turn:
    return call("edit", path=path, old_string=old, new_string=new)
