"""Stdio transport to MCP servers that are programs. They run in the sandbox.

They have no network and see no workspace, only the operator's programs and their own folder.
"""

import asyncio
import os
import shlex
import stat
import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

from toolcrib.core.errors import ToolFailed
from toolcrib.core.mcp_servers import McpServer, McpTransport
from toolcrib.mcp.mcp_connections import McpConnectionPool
from toolcrib.mcp.mcp_http import MOST_BYTES, client_for
from toolcrib.runtime.private_directory import make_private
from toolcrib.sandbox.background_process import BackgroundSandbox, ProcessStatus
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand

HOME: Final = "/data"
MOST_KEPT: Final = 200_000_000
_POLL_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.01
_LOG: Final = "stderr.log"
_LAST_BYTES: Final = 600
_BURIAL_SECONDS: Final = 0.5


class StdioPrograms:
    """Where the programs of MCP servers are, and where each server has its own folder."""

    def __init__(self, background: BackgroundSandbox, folder: Path, *, programs: Sequence[Path] = ()) -> None:
        self._background = background
        self._folder = folder
        self._programs = tuple(programs)

    @asynccontextmanager
    async def started(self, server: McpServer) -> AsyncIterator[TransportStreams]:
        """Run the server's program while the context lasts."""
        home = self._folder / str(server.workspace_id) / str(server.id)
        await asyncio.to_thread(make_private, home, self._folder.parent)
        mounts = [ViewMount("data", home, HOME, writable=True)]
        mounts += [ViewMount(f"programs{number}", path, str(path)) for number, path in enumerate(self._programs)]
        command = SandboxCommand(f"exec {shlex.join(server.command)} 2>{HOME}/{_LOG}", env=dict(server.secrets))
        owner = f"mcp-{uuid4().hex}"
        process = await self._background.start(command, mounts, owner=owner)
        try:
            async with _StdioPipe(self._background, process.id, owner, home).open() as streams:
                yield streams
        except Exception as error:
            state = await self._ended(process.id, owner)
            if state is None:
                raise
            outgoing = await asyncio.to_thread(_last_words, home)
            how = state.stopped or f"it exited with status {state.exit_code}"
            raise ToolFailed(f"{how}{': ' if outgoing else ''}{outgoing}") from error
        finally:
            # The owner is this connection alone, so no other process is stopped.
            await asyncio.shield(self._background.stop_all(owner))

    async def _ended(self, process: str, owner: str) -> ProcessStatus | None:
        """Return how the process ended, if it did: its output closes a moment earlier."""
        try:
            async with asyncio.timeout(_BURIAL_SECONDS):
                await self._background.wait_for_output(process, owner=owner, offset=sys.maxsize)
        except TimeoutError:
            return None
        return self._background.state(process, owner=owner)


class _StdioPipe:
    """Lines to and from one process. Its output per request is limited."""

    def __init__(self, background: BackgroundSandbox, process: str, owner: str, home: Path) -> None:
        self._background = background
        self._process = process
        self._owner = owner
        self._home = home
        self._left = MOST_BYTES

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TransportStreams]:
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with incoming, read, write, outgoing, anyio.create_task_group() as group:
            group.start_soon(self._read, incoming)
            group.start_soon(self._write, outgoing, incoming)
            group.start_soon(self._watch, incoming)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()

    async def _read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        offset, begun = 0, bytearray()
        async with incoming:
            while True:
                piece = await self._background.wait_for_output(self._process, owner=self._owner, offset=offset)
                self._left -= len(piece.data)
                if piece.missed or not piece.data or self._left < 0:
                    return
                offset = piece.next
                *lines, rest = piece.data.split(b"\n")
                for line in lines:
                    if message := _message(bytes(begun + line)):
                        await incoming.send(message)
                    begun.clear()
                begun += rest

    async def _write(
        self,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with outgoing:
            async for one in outgoing:
                if isinstance(one.message, JSONRPCRequest):
                    self._left = MOST_BYTES
                data = one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                while data:
                    taken = self._background.write(self._process, data, owner=self._owner)
                    data = data[taken:]
                    if not taken:
                        # There is no notification when it reads again. The caller that waits for the answer has a
                        # timeout.
                        await asyncio.sleep(_AGAIN_SECONDS)

    async def _watch(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Stop a server that fills the disk."""
        while await asyncio.to_thread(_size, self._home) <= MOST_KEPT:  # noqa: ASYNC110 - there is no notification of writes
            await asyncio.sleep(_POLL_SECONDS)
        await incoming.aclose()


def _message(line: bytes) -> SessionMessage | None:
    """Parse a line; None for a line that is not a message, which is dropped."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)) if line.strip() else None
    except ValueError:
        return None


def _last_words(home: Path) -> str:
    """Return the end of its standard error. The program controls the folder, so no symlink is followed."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        log = os.open(_LOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return ""
    finally:
        os.close(folder)
    with os.fdopen(log, "rb") as opened:
        found = os.fstat(log)
        if not stat.S_ISREG(found.st_mode):
            return ""
        opened.seek(max(0, found.st_size - _LAST_BYTES))
        return opened.read(_LAST_BYTES).decode(errors="replace").strip()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            continue
        if total > MOST_KEPT:
            break
    return total


def open_connections(
    programs: StdioPrograms, *, private_hosts: Collection[str], at_end: Callable[[], None] = lambda: None
) -> McpConnectionPool:
    """Return a pool for both transports: programs in the sandbox, and URLs through the guarded network.

    Args:
        at_end: Called after the last connection is closed for good.
    """

    def dial(server: McpServer) -> AbstractAsyncContextManager[TransportStreams]:
        if server.transport is McpTransport.STDIO:
            return programs.started(server)
        return _by_http(server, private_hosts)

    return McpConnectionPool(dial, at_end=at_end)


@asynccontextmanager
async def _by_http(server: McpServer, private_hosts: Collection[str]) -> AsyncIterator[TransportStreams]:
    assert server.url is not None
    async with (
        client_for(server, private_hosts=private_hosts) as http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams
