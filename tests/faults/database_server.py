"""A private PostgreSQL that a test stops, kills and cuts off, and a proxy in front of it."""

import asyncio
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from tests.databases import DatabaseUrls
from tests.faults.server import free_port
from tests.wait_until import PATIENCE
from toolcrib.local import postgres_binaries
from toolcrib.runs import durable
from toolcrib.storage import migrate

_CONFIGURATION = """
listen_addresses = '{address}'
port = {port}
unix_socket_directories = ''
max_connections = 100
# The machine stays up, so what the kernel has is not lost when a server is killed.
fsync = off
log_min_messages = warning
"""
_LOOK_EVERY_SECONDS = 0.05


class DatabaseServer:
    """A cluster of its own. Clients that use ``urls`` come through the proxy; ``direct`` does not.

    Args:
        program: The words before a command that start it as a user who may run PostgreSQL.
    """

    def __init__(self, directory: Path, *, address: str = "127.0.0.1", program: Sequence[str] = ()) -> None:
        self._address = address
        self._program = program
        self._programs = postgres_binaries.find().directory
        self._data = directory / "postgres"
        self._log = directory / "postgres.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.proxy = CuttableProxy(self._port)

    def __enter__(self) -> Self:
        how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        creates = [*self._program, str(self._programs / "initdb"), "-D", str(self._data), *how]
        subprocess.run(creates, check=True, capture_output=True)
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(_CONFIGURATION.format(address=self._address, port=self._port))
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write("host all all samenet trust\n")
        self.start()
        durable.upgrade(self.direct("postgres"))
        self.proxy.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.stop()
        self._end(signal.SIGQUIT)

    @property
    def urls(self) -> DatabaseUrls:
        at = f"127.0.0.1:{self.proxy.port}/postgres"
        return DatabaseUrls(
            owner=self.direct("postgres"),
            app=f"postgresql://{migrate.APP_ROLE}@{at}",
            system=f"postgresql://{migrate.SYSTEM_ROLE}@{at}",
        )

    def direct(self, user: str) -> str:
        return f"postgresql://{user}@{self._address}:{self._port}/postgres"

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What can happen to a database. Afterwards it can be reached again."""
        return {
            "kill -9": lambda: self._restart(signal.SIGKILL),
            "immediate stop": lambda: self._restart(signal.SIGQUIT),
            "fast restart": lambda: self._restart(signal.SIGINT),
            "terminated connections": self._terminate_all,
            "cut connections": self.proxy.cut,
        }

    def start(self) -> None:
        """Start the server and return when it accepts connections. After a kill it recovers first."""
        tick = threading.Event()
        for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
            if self._process is None or self._process.poll() is not None:
                # The children of a killed server may hold its shared memory for a moment; then it is started again.
                with self._log.open("ab") as log:
                    command = [*self._program, str(self._programs / "postgres"), "-D", str(self._data)]
                    self._process = subprocess.Popen(command, stdout=log, stderr=log)
            with suppress(psycopg.OperationalError), psycopg.connect(self.direct("postgres"), connect_timeout=5):
                return
            tick.wait(_LOOK_EVERY_SECONDS)
        raise AssertionError(f"PostgreSQL does not start:\n{self._log.read_text()[-2_000:]}")

    def stop(self) -> None:
        """End the server at once, as a machine that fails. Connections are refused until it is started."""
        self._end(signal.SIGQUIT)

    def _restart(self, how: signal.Signals) -> None:
        self._end(how)
        self.start()

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(PATIENCE)
        self._process = None

    def _terminate_all(self) -> None:
        with psycopg.connect(self.direct("postgres"), autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid <> pg_backend_pid() and backend_type = 'client backend'"
            )


class CuttableProxy:
    """Forwards TCP connections. On request it resets all, or lets nothing through, as a failing network does."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._onward: set[asyncio.StreamWriter] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self._resets = False

    def start(self) -> None:
        self._thread.start()
        self._run(self._listen())

    def stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def cut(self) -> None:
        """Reset every connection. New ones are accepted."""
        self._run(self._cut())

    def refuse(self) -> None:
        """Reset every connection and refuse new ones, as a machine without a database does."""
        self._run(self._refuse())

    def accept(self) -> None:
        """Accept connections again."""
        self._run(self._listen())

    def reset_all(self) -> None:
        """Reset every connection, and each new one as soon as something is sent on it."""
        self._resets = True
        self.cut()

    def stop_resets(self) -> None:
        self._resets = False

    def block(self) -> None:
        """Let nothing through, in either direction, and tell neither side. Connections stay open."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def unblock(self) -> None:
        """Deliver what was sent meanwhile, as a network that works again does."""
        self._loop.call_soon_threadsafe(self._passes.set)

    def replace(self) -> None:
        """Let new connections through. Those that are open stay silent for ever, as those of a machine that is gone.

        The database has ended their sessions by then: its keepalive tells it that they lead nowhere.
        """
        self._run(self._replace())

    def _run(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _refuse(self) -> None:
        self._server.close()
        await self._cut()

    async def _replace(self) -> None:
        for onward in list(self._onward):
            onward.transport.abort()
        self._passes = asyncio.Event()
        self._passes.set()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _close(self) -> None:
        self._server.close()
        self._passes.set()
        await self._cut()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            # Some wait for what never comes.
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passes = self._passes
        ends = {writer}
        self._open.add(writer)
        try:
            await passes.wait()
            if self._resets:
                await reader.read(1)
                writer.transport.abort()
                return
            there, onward = await asyncio.open_connection("127.0.0.1", self._target)
            ends.add(onward)
            self._open.add(onward)
            self._onward.add(onward)
            await asyncio.gather(self._forward(reader, onward, passes), self._forward(there, writer, passes))
        except (OSError, asyncio.CancelledError):
            for end in ends:
                end.transport.abort()
        finally:
            self._open -= ends
            self._onward -= ends

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                await passes.wait()
                writer.write(piece)
                await writer.drain()
        await passes.wait()
        writer.transport.abort() if writer.is_closing() else writer.close()
