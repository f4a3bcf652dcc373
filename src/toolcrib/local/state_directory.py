"""The directories, locks and secrets of local mode. The projects themselves stay where they are."""

import fcntl
import hashlib
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from pydantic import TypeAdapter

from toolcrib.core.errors import Misconfigured

# The maximum length of a Unix socket address, without the file name that PostgreSQL adds.
_SOCKET_DIRECTORY_BYTES = 107 - len("/.s.PGSQL.5432")


@dataclass(frozen=True, slots=True)
class LocalDirectories:
    """The paths of local mode, below one directory that only its owner can enter."""

    base: Path

    @classmethod
    def of_user(cls) -> "LocalDirectories":
        """Uses ``TOOLCRIB_HOME``, or ``toolcrib`` in the user's data directory (XDG). Creates it if needed."""
        base = cls.place()
        private(base)
        return cls(base.resolve())

    @staticmethod
    def place() -> Path:
        """Where ``of_user`` is, or would be."""
        named = os.environ.get("TOOLCRIB_HOME")
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        return Path(named or Path(data) / "toolcrib").absolute()

    @property
    def secrets(self) -> Path:
        return self.base / "secrets.json"

    @property
    def cluster(self) -> Path:
        return self.base / "postgres"

    @property
    def sockets(self) -> Path:
        """The directory of the cluster's socket. A shorter path is used if this one is too long for a socket."""
        beside = self.base / "run"
        if len(os.fsencode(beside)) > _SOCKET_DIRECTORY_BYTES:
            above = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108 - private, and checked
            beside = Path(above) / f"toolcrib-{os.getuid()}-{_digest(self.base)[:8]}"
        private(beside)
        return beside

    def project(self, tree: Path) -> Path:
        """Returns the directory for the lock, log and other mounts of a project. Creates it if needed."""
        found = self._project(tree)
        private(found.parent)
        private(found)
        return found

    def is_known(self, tree: Path) -> bool:
        """Returns whether a project was opened before."""
        return self._project(tree).is_dir()

    def _project(self, tree: Path) -> Path:
        return self.base / "projects" / project_key(tree)


def project_key(tree: Path) -> str:
    """Returns the unique name of a project directory."""
    return _digest(tree)[:16]


def private(directory: Path) -> None:
    """Creates a directory that only its owner can enter. Raises Misconfigured if another user owns it."""
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
    """Writes a file that only its owner can read, atomically and durably."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with open(beside, "x", opener=privately) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def privately(path: str, flags: int) -> int:
    """The opener for ``open``: only the owner can read the file, whatever the umask."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


class FileLock:
    """A lock between processes, exclusive or shared. The kernel releases it when a process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, shared: bool = False) -> None:
        """Waits for the lock."""
        fcntl.flock(self._opened(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Takes the lock if it is free. Returns whether it did."""
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
    """Holds an exclusive lock while the context lasts."""
    lock = FileLock(path)
    lock.take()
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True, slots=True, repr=False)
class LocalSecrets:
    """The secrets of local mode: random, created once, in a file that only its owner can read.

    ``machine`` distinguishes installations that share a database. ``email`` is the account of the user there.
    """

    audit_key: str
    credentials_key: str
    owner_password: str
    app_password: str
    system_password: str
    machine: str
    email: str

    @classmethod
    def kept(cls, directories: LocalDirectories) -> "LocalSecrets":
        """Loads the secrets. The first start creates them."""
        path, json = directories.secrets, TypeAdapter(cls)
        with held(directories.base / "secrets.lock"):
            if not path.exists():
                write_private(path, json.dump_json(_made()).decode())
            found = path.stat()
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise Misconfigured(f"Other users can read {path}, which contains secrets. Run: chmod 600 {path}")
            try:
                return json.validate_json(path.read_bytes())
            except ValueError:
                raise Misconfigured(
                    f"{path} is damaged. Restore it from a backup, or move {path.parent} away to start over."
                ) from None


def _made() -> LocalSecrets:
    # A container may run as a user that has no name.
    user = f"user{os.getuid()}"
    with suppress(OSError, KeyError):
        user = getuser()
    return LocalSecrets(
        audit_key=secrets.token_urlsafe(48),
        credentials_key=secrets.token_urlsafe(48),
        owner_password=secrets.token_urlsafe(48),
        app_password=secrets.token_urlsafe(48),
        system_password=secrets.token_urlsafe(48),
        machine=secrets.token_hex(4),
        email=f"{user}@{socket.gethostname().lower()}",
    )
