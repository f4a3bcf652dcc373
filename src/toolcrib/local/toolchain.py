"""The person's own programs that agents' commands may use: an allow-list of directories in their home.

Only directories that hold programs are on it: not `~/.cargo`, whose other files may be credentials, but `~/.cargo/bin`.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_TOOLS: Final = (
    ".local/bin",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".cargo/bin",
    ".rustup",
    ".nvm/versions",
    ".pyenv",
)
# What every sandbox has.
_SYSTEM: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_ALWAYS: Final = ("/usr/local/bin", "/usr/bin", "/bin")


def tool_directories(home: Path) -> tuple[Path, ...]:
    """Return the directories of the allow-list."""
    return tuple(home / name for name in _TOOLS)


def usable_directories(directories: Iterable[Path], *, apart_from: Iterable[Path]) -> tuple[Path, ...]:
    """Return which directories exist, are no links, and neither contain nor are in one of the others.

    A link could show any other directory under the name of a harmless one.
    """
    others = [other.resolve() for other in apart_from]
    found: list[Path] = []
    for directory in directories:
        try:
            is_real = directory.is_absolute() and directory.resolve(strict=True) == directory and directory.is_dir()
        except (OSError, RuntimeError):
            continue
        overlaps = any(_overlap(directory, other) for other in (*others, *found))
        if is_real and not overlaps and len(directory.parts) > 2:
            found.append(directory)
    return tuple(found)


def command_path(path: str, directories: Sequence[Path]) -> str:
    """Return the entries of the person's PATH that a command finds, in their order, and then the system's."""
    seen = [
        entry
        for entry in path.split(os.pathsep)
        if os.path.isabs(entry)
        and os.path.normpath(entry) == entry
        and (entry in _SYSTEM or any(Path(entry).is_relative_to(directory) for directory in directories))
    ]
    return os.pathsep.join(dict.fromkeys((*seen, *_ALWAYS)))


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
