"""A private PostgreSQL cluster: created once, on a socket that only its user can open, and running while in use.

Several processes share it. The first one starts the server, the last one stops it. If the last one is killed, the
server runs until the next process stops it.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

import structlog

from toolcrib.core.errors import Misconfigured
from toolcrib.local import postgres_binaries
from toolcrib.local.postgres_binaries import PostgresBinaries
from toolcrib.local.postgres_upgrade import PostgresUpgrade, missing_programs
from toolcrib.local.state_directory import FileLock, LocalDirectories, LocalSecrets, held, privately, write_private

OWNER = "toolcrib_owner"
DATABASE = "toolcrib"
_PORT = "5432"
# Only the first two know upper and lower case beyond ASCII. The last one exists everywhere.
_LOCALES = ("C.UTF-8", "en_US.UTF-8", "C")
_INITDB_SECONDS = 300
# After a crash, PostgreSQL replays its WAL first.
_START_SECONDS = 120
_STOP_SECONDS = 30
_POLL_SECONDS = 0.01
_LOOK_AFTER_EVERY = 0.5

_CONFIGURATION = """\
# Toolcrib overwrites this file at each start.
listen_addresses = ''
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
port = {port}
max_connections = 100
shared_buffers = 64MB
dynamic_shared_memory_type = posix
jit = off
log_min_messages = warning
"""

log = structlog.get_logger(__name__)


class PostgresCluster:
    """The files of one cluster, and its server process."""

    database = DATABASE

    def __init__(self, directories: LocalDirectories, secrets: LocalSecrets, data: Path | None = None) -> None:
        """Takes the cluster of local mode, or else the one in ``data``."""
        self._directories = directories
        self._secrets = secrets
        self._data = data or directories.cluster
        self._users = FileLock(directories.base / "users.lock")
        self._started: subprocess.Popen[bytes] | None = None

    def use(self, notify: Callable[[str], None] = lambda _: None) -> None:
        """Starts the server if it does not run. It runs until all processes have called ``leave``.

        Moves it to a newer major version of PostgreSQL first, if there is one and no other process uses it.
        """
        _reject_root()
        with self._alone():
            upgrade = PostgresUpgrade(self._directories)
            upgrade.finish_switch()
            if not (self._data / "PG_VERSION").exists():
                self._create_whole(postgres_binaries.find())
            elif self._users.try_take():
                try:
                    self._move_to_newest(upgrade, notify)
                finally:
                    self._users.release()
            if not self._is_ready():
                self.start(self._own_programs())
            self._users.take(shared=True)

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        """Restarts the server whenever it dies while the context lasts. Its clients reconnect by themselves."""
        over = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(over,), name="toolcrib-database", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()

    def leave(self) -> None:
        """Stops the server if no other process uses it."""
        with self._alone():
            self._users.release()
            if self._users.try_take():
                self.stop()
            self._users.release()

    def owner_url(self, database: str = DATABASE) -> str:
        """Returns the URL of the cluster's owner."""
        return self.url(OWNER, self._secrets.owner_password, database)

    def url(self, role: str, password: str, database: str = DATABASE) -> str:
        where = urlencode({"host": str(self._directories.sockets), "port": _PORT}, quote_via=quote)
        return f"postgresql://{role}:{quote(password, safe='')}@/{database}?{where}"

    def _alone(self) -> AbstractContextManager[None]:
        return held(self._directories.base / "cluster.lock")

    def _move_to_newest(self, upgrade: PostgresUpgrade, notify: Callable[[str], None]) -> None:
        major = int((self._data / "PG_VERSION").read_text())
        newest = postgres_binaries.newest()
        own = postgres_binaries.of_major(major)
        if own is None:
            raise missing_programs(major, newest if newest and newest.major > major else None, upgrade.dumps)
        if newest is None or newest.major <= major:
            return
        # A process that was killed may have left it running.
        self.stop()
        new = PostgresCluster(self._directories, self._secrets, self._data.with_name("postgres.new"))
        upgrade.run(self, new, old_programs=own, programs=newest, notify=notify)

    def _create_whole(self, programs: PostgresBinaries) -> None:
        """Creates the cluster at another path first, so that a crash cannot leave an incomplete one."""
        beside = PostgresCluster(self._directories, self._secrets, self._data.with_name("postgres.new"))
        beside.create(programs)
        beside._data.replace(self._data)

    def create(self, programs: PostgresBinaries) -> None:
        """Creates an empty cluster, in place of what is in its directory."""
        password = self._directories.base / "owner-password"
        write_private(password, self._secrets.owner_password)
        try:
            _initialise(programs, self._data, password)
        finally:
            password.unlink(missing_ok=True)

    def start(self, programs: PostgresBinaries) -> None:
        """Starts the server, and returns when it accepts connections."""
        self._forget_dead_server()
        sockets = str(self._directories.sockets).replace("'", "''")
        write_private(self._data / "postgresql.conf", _CONFIGURATION.format(sockets=sockets, port=_PORT))
        log = self._data / "server.log"
        with open(log, "wb", opener=privately) as output:
            # In its own session: Ctrl-C in our terminal, or closing it, must not stop the server.
            self._started = subprocess.Popen(  # noqa: S603 - a program that we found ourselves
                [programs.directory / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if self._started.poll() is not None or time.monotonic() > deadline:
                text = _end_of(log.read_text(errors="replace"))
                raise Misconfigured(f"PostgreSQL did not start in {self._data}. Its log:\n{text}")
            time.sleep(_POLL_SECONDS)

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(_LOOK_AFTER_EVERY):
            if self._server_process() is not None:
                continue
            # The children of a killed server may hold its shared memory for a moment. Then the next attempt succeeds.
            with suppress(Misconfigured), self._alone():
                if not self._is_ready():
                    log.warning("database.restarted", directory=str(self._data))
                    self.start(self._own_programs())

    def _own_programs(self) -> PostgresBinaries:
        major = int((self._data / "PG_VERSION").read_text())
        own = postgres_binaries.of_major(major)
        if own is None:
            raise missing_programs(major, None, PostgresUpgrade(self._directories).dumps)
        return own

    @property
    def is_running(self) -> bool:
        """Whether the server's process is alive."""
        return self._server_process() is not None

    def stop(self) -> None:
        """Stops the server if it runs."""
        process = self._server_process()
        if process is None:
            return
        with suppress(ProcessLookupError):
            # A fast shutdown: the server closes all connections, writes a checkpoint and exits.
            os.kill(process, signal.SIGINT)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._server_process() is not None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if self._started is not None:
            # It removes its PID file before it exits.
            with suppress(subprocess.TimeoutExpired):
                self._started.wait(max(0, deadline - time.monotonic()))

    def _is_ready(self) -> bool:
        """Whether the server accepts connections, by its status in ``postmaster.pid``, as ``pg_ctl`` reads it."""
        note = self._note()
        if self._server_process() is None or len(note) <= 7 or note[7].strip() != "ready":
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            return probe.connect_ex(str(self._directories.sockets / f".s.PGSQL.{_PORT}")) == 0

    def _forget_dead_server(self) -> None:
        """Removes the PID file of a dead server if another process has its PID now.

        In all other cases PostgreSQL detects a dead server itself. Waits for the children of the server to exit,
        because they could still write.
        """
        note = self._note()
        if not note or self._server_process() is not None or not _is_a_process(note[0]):
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while _works_in(self._data) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if not _works_in(self._data):
            (self._directories.sockets / f".s.PGSQL.{_PORT}.lock").unlink(missing_ok=True)
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _server_process(self) -> int | None:
        if self._started is not None:
            # Reaps the child: a zombie still counts as a process.
            self._started.poll()
        try:
            process = int(self._note()[0])
            os.kill(process, 0)
        except (OSError, ValueError, IndexError):
            return None
        with suppress(OSError):
            return process if _is_postgres(Path(f"/proc/{process}/stat").read_text()) else None
        # Without /proc, the PID alone must do.
        return process

    def _note(self) -> list[str]:
        with suppress(OSError):
            return (self._data / "postmaster.pid").read_text().split("\n")
        return []


def _is_a_process(number: str) -> bool:
    try:
        os.kill(int(number), 0)
    except (OSError, ValueError):
        return False
    return True


def _works_in(directory: Path) -> bool:
    """Whether a process of this user has this working directory, as all processes of a server do."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == directory:
                return True
    return False


def _is_postgres(stat: str) -> bool:
    """Whether the process is PostgreSQL and alive, not a zombie."""
    _, _, rest = stat.partition("(")
    name, _, facts = rest.rpartition(")")
    return "postgres" in name and not facts.strip().startswith("Z")


def _reject_root() -> None:
    """Rejects root: PostgreSQL does not run as root, and we do not switch to another user silently."""
    if os.geteuid() == 0:
        raise Misconfigured(
            "You are root, and PostgreSQL does not run as root. Do one of these:\n"
            "  run toolcrib as an ordinary user (agents should not work as root)\n"
            "  export TOOLCRIB_DATABASE_URL=postgresql://… (use an existing database)"
        )


def _initialise(programs: PostgresBinaries, directory: Path, password: Path) -> None:
    text = ""
    for locale in _LOCALES:
        shutil.rmtree(directory, ignore_errors=True)
        command: list[str | Path] = [programs.directory / "initdb", "-D", directory, "-U", OWNER]
        command += ["-A", "scram-sha-256", "--pwfile", password, "--encoding=UTF8", f"--locale={locale}"]
        made = subprocess.run(  # noqa: S603 - a program that we found ourselves
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_INITDB_SECONDS, check=False
        )
        if made.returncode == 0:
            return
        text = made.stderr.decode(errors="replace")
    raise Misconfigured(f"initdb failed in {directory}. Its output:\n{_end_of(text)}")


def _end_of(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[-8:])
