"""What a pattern is made of, as far as both engines speak of it."""

from dataclasses import dataclass
from enum import Enum

from toolcrib.workspace.search.characters import Chars


class NotShared(Exception):
    """Only PostgreSQL can say what this means, or that it means nothing."""


class Anchor(Enum):
    START = "^"
    END = "$"


class Boundary(Enum):
    """A place between a word and what is none; ``\\b`` is taken for PostgreSQL's ``\\y``."""

    EITHER = "y"
    NEITHER = "Y"
    WORD_START = "m"
    WORD_END = "M"


class Unknown(Enum):
    """What PostgreSQL alone judges: a look around, which takes no character, or a reference back."""

    LOOK = "look"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``high`` is ``None`` without a limit. Greedy or not is the same to whoever asks only whether a line matches."""

    item: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    branches: tuple["Node", ...]


Node = Chars | Anchor | Boundary | Unknown | Repeat | Sequence | Choice
