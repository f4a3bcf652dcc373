"""Where local mode keeps what is its own. Not the projects themselves: those stay where they are."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from toolcrib.domain.errors import Misconfigured

# What a Unix socket's address can hold, less the name that PostgreSQL gives it.
_SOCKET_DIRECTORY_BYTES = 107 - len("/.s.PGSQL.5432")


@dataclass(frozen=True, slots=True)
class Directories:
    """Everything below one directory that only its owner can enter."""

    base: Path

    @classmethod
    def of_user(cls) -> "Directories":
        """``TOOLCRIB_HOME``, or ``toolcrib`` in the user's data directory (XDG). Made if it is not there."""
        named = os.environ.get("TOOLCRIB_HOME")
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        base = Path(named or Path(data) / "toolcrib").absolute()
        private(base)
        return cls(base.resolve())

    @property
    def secrets(self) -> Path:
        return self.base / "secrets.json"

    @property
    def cluster(self) -> Path:
        return self.base / "postgres"

    @property
    def sockets(self) -> Path:
        """Where the cluster listens: beside it or, if that path is too long for a socket, in a short one."""
        beside = self.base / "run"
        if len(os.fsencode(beside)) > _SOCKET_DIRECTORY_BYTES:
            above = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108 - made for us alone, and checked
            beside = Path(above) / f"toolcrib-{os.getuid()}-{_digest(self.base)[:8]}"
        private(beside)
        return beside

    def project(self, tree: Path) -> Path:
        """What belongs to one project directory: its lock, its log, its other mounts."""
        found = self.base / "projects" / project_key(tree)
        private(found.parent)
        private(found)
        return found


def project_key(tree: Path) -> str:
    """A project directory's name among the others."""
    return _digest(tree)[:16]


def private(directory: Path) -> None:
    """Makes a directory that only its owner can enter; Misconfigured if it is, or may be, another's."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = directory.stat(follow_symlinks=False)
        if found.st_uid != os.getuid():
            raise Misconfigured(
                f"{directory} belongs to another user. Remove it, or name another directory: TOOLCRIB_HOME=…"
            )
        if found.st_mode & 0o077:
            directory.chmod(0o700)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise Misconfigured(
            f"Toolcrib cannot keep its files in {directory} ({error.strerror}). Name another directory: TOOLCRIB_HOME=…"
        ) from None


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()
