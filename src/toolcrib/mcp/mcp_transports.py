"""Transports to MCP servers: stdio to programs in the sandbox, and HTTP to public addresses, with size limits.

Programs have no network and see no workspace, only the operator's programs and their own folder.
"""

import asyncio
import os
import shlex
import stat
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

from toolcrib.core.errors import ToolFailed
from toolcrib.core.mcp_servers import McpServer, McpTransport
from toolcrib.mcp.mcp_connections import McpConnectionPool
from toolcrib.network.httpx_transport import OutboundTransport
from toolcrib.network.network_policy import NetworkPolicy
from toolcrib.network.outbound import Outbound, OutboundLimits
from toolcrib.runtime.process_setup import make_private
from toolcrib.sandbox.background_process import BackgroundSandbox, SandboxedProcess
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand

# The size limit of one message, and of a whole HTTP response or stream.
MOST_BYTES: Final = 8_000_000
# A stream may be silent for long; a call has its own limit.
_SILENCE_SECONDS: Final = 300.0
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
        process = await self._background.start(command, mounts)
        try:
            async with _StdioPipe(process, home).open() as streams:
                yield streams
        except Exception as error:
            # Its output closes a moment before it ends.
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _BURIAL_SECONDS)
            if process.is_running:
                raise
            outgoing = await asyncio.to_thread(_last_words, home)
            how = process.stopped or f"it exited with status {process.exit_code}"
            raise ToolFailed(f"{how}{': ' if outgoing else ''}{outgoing}") from error
        finally:
            await asyncio.shield(process.stop("its session ended"))


class _StdioPipe:
    """Lines to and from one process. Its output per request is limited."""

    def __init__(self, process: SandboxedProcess, home: Path) -> None:
        self._process = process
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
                piece = await self._process.wait_for_output(offset)
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
                    taken = self._process.write(data)
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
    network = NetworkPolicy(private_hosts, setting="TOOLCRIB_ALLOWED_PRIVATE_MCP_HOSTS")
    limits = OutboundLimits(silence=_SILENCE_SECONDS, body=MOST_BYTES, error_body=MOST_BYTES)
    async with (
        Outbound(network, limits=limits) as outbound,
        # The library needs a client of httpx2. It follows no redirects, so that its headers reach no other server.
        httpx2.AsyncClient(
            transport=OutboundTransport(outbound),
            timeout=None,
            headers={**server.secrets, "Accept-Encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        ) as http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams
