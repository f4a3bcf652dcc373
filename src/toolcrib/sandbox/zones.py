"""Which directories a command sees, and where. Values only."""

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Zone:
    """One directory of a command's view.

    ``target`` is where it stands in the view. ``masked`` are paths relative to ``root``, files or folders, that stand
    there empty: their content is not in the view at all. ``fixed`` are others that can be read and not written; only a
    live view heeds them, since elsewhere the effect is judged.
    """

    name: str
    root: Path
    target: str
    writable: bool = False
    masked: Collection[str] = field(default_factory=frozenset)
    fixed: Collection[str] = field(default_factory=frozenset)


# Our own, without the virtual environment: what runs inside on our behalf runs on it.
INTERPRETER = os.path.realpath(sys.executable)


def interpreter_zones() -> list[Zone]:
    """Our own interpreter, where it is not among the system's programs, which every view has."""
    home = Path(sys.base_prefix).resolve()
    return [] if home.is_relative_to("/usr") else [Zone("python", home, str(home))]


def is_masked(path: str, masked: Collection[str]) -> bool:
    """Whether ``path`` is a masked one or lies beneath one."""
    if not masked:
        return False
    parts = path.split("/")
    return any("/".join(parts[:count]) in masked for count in range(1, len(parts) + 1))
