"""Where local mode keeps what is its own. Not the projects themselves: those stay where they are."""

import fcntl
import hashlib
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from getpass import getuser
from pathlib import Path

from toolcrib.core.errors import Misconfigured

# What a Unix socket's address can hold, less the name that PostgreSQL gives it.
_SOCKET_DIRECTORY_BYTES = 107 - len("/.s.PGSQL.5432")


@dataclass(frozen=True, slots=True)
class LocalDirectories:
    """Everything below one directory that only its owner can enter."""

    base: Path

    @classmethod
    def of_user(cls) -> "LocalDirectories":
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
                f"{directory} belongs to another user. Remove it, or set TOOLCRIB_HOME to another directory."
            )
        if found.st_mode & 0o077:
            directory.chmod(0o700)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise Misconfigured(
            f"Cannot write to {directory}: {error.strerror}. Set TOOLCRIB_HOME to another directory."
        ) from None


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read: whole or not at all, and durable."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with open(beside, "x", opener=privately) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def privately(path: str, flags: int) -> int:
    """For ``open``: what is made can be read by its owner only, whatever their umask."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


# Locks between processes of one user. The kernel lets go of them when a process dies, however it dies.


class FileLock:
    """A lock on a file. Held by one, or shared by several."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, shared: bool = False) -> None:
        """Waits until it is free."""
        fcntl.flock(self._opened(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Whether it was free, and is ours now."""
        try:
            fcntl.flock(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock for as long as the context lasts."""
    lock = FileLock(path)
    lock.take()
    try:
        yield
    finally:
        lock.release()


# The secrets of local mode: made at random once, kept in a file that only its owner can read.


@dataclass(frozen=True, slots=True, repr=False)
class LocalSecrets:
    """``machine`` tells this installation from others on one database; ``email`` is who its user is there."""

    audit_key: str
    credentials_key: str
    owner_password: str
    app_password: str
    system_password: str
    machine: str
    email: str

    @classmethod
    def kept(cls, directories: LocalDirectories) -> "LocalSecrets":
        """As they were made at the first start, which may be this one."""
        path = directories.secrets
        with held(directories.base / "secrets.lock"):
            if not path.exists():
                write_private(path, json.dumps(asdict(_made())))
            return _read(path)


_RANDOM = ("audit_key", "credentials_key", "owner_password", "app_password", "system_password")


def _made() -> LocalSecrets:
    made = {name: secrets.token_urlsafe(48) for name in _RANDOM}
    return LocalSecrets(
        **made,
        machine=secrets.token_hex(4),
        email=f"{_user_name()}@{socket.gethostname().lower()}",
    )


def _user_name() -> str:
    with suppress(OSError, KeyError):
        return getuser()
    # A container may run as a user that has no name.
    return f"user{os.getuid()}"


def _read(path: Path) -> LocalSecrets:
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Misconfigured(f"Other users can read {path}, which contains secrets. Run: chmod 600 {path}")
    try:
        data = json.loads(path.read_text())
        return LocalSecrets(**{field.name: str(data[field.name]) for field in fields(LocalSecrets)})
    except (ValueError, KeyError, TypeError):
        raise Misconfigured(
            f"{path} is damaged. Restore it from a backup, or move {path.parent} away to start over."
        ) from None
