"""What a program did to places, told without knowing the program or the history. Values only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place


@dataclass(frozen=True, slots=True)
class Residue:
    """What a program left at one place. ``kind`` is none if nothing stands there any more.

    ``was_there``: something stood there when the program began; ``was_folder``: a folder did, and is gone. ``open``
    gives a file's bytes, for as long as whoever tells of it keeps them; without it the bytes are those that stood there
    before.
    """

    place: Place
    kind: NodeKind | None
    was_there: bool
    mode: int = 0
    size: int = 0
    target: str | None = None
    open: Callable[[], BinaryIO] | None = None
    was_folder: bool = False

    @property
    def is_gone(self) -> bool:
        return self.kind is None
