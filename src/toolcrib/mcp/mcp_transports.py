"""Transports to MCP servers: stdio to programs in the sandbox, and HTTP to public addresses, with size limits.

A program sees the operator's programs and its own folder, gets its owner's secrets as environment variables, and
reaches the hosts that its owner granted. What it writes to standard output and error is masked: no secret is in it. Nor
is one in what a URL sends, which gets its owner's secrets as headers.
"""

import asyncio
import os
import shlex
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
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
from toolcrib.mcp.mcp_connections import McpConnectionPool, OnContact
from toolcrib.mcp.secret_mask import SecretMask
from toolcrib.network.httpx_transport import OutboundTransport
from toolcrib.network.network_policy import NetworkPolicy
from toolcrib.network.outbound import Outbound, OutboundLimits
from toolcrib.runtime.process_setup import make_private
from toolcrib.sandbox.background_process import SandboxedProcess, running
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.transaction import StagingDirectory, Transaction
from toolcrib.tools.shell.shell import Shell

# The size limit of one message, and of a whole HTTP response or stream.
MOST_BYTES: Final = 8_000_000
# A stream may be silent for long; a call has its own limit.
_SILENCE_SECONDS: Final = 300.0
HOME: Final = "/data"
MOST_KEPT: Final = 200_000_000
_POLL_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.01
_LOG: Final = "stderr.log"
# More is read than shown, so that a secret is never cut before it is masked.
_LAST_BYTES: Final = 8_000
_LAST_CHARACTERS: Final = 600
_PRIVATE_HOSTS: Final = "TOOLCRIB_ALLOWED_PRIVATE_MCP_HOSTS"
_BURIAL_SECONDS: Final = 0.5


class StdioPrograms:
    """Where the programs of MCP servers are, where each server has its own folder, and what they may contact."""

    def __init__(
        self,
        sandbox: Sandbox,
        staging: StagingDirectory,
        folder: Path,
        *,
        programs: Sequence[Path] = (),
        private_hosts: Collection[str] = (),
        shell: Shell | None = None,
    ) -> None:
        """Create it.

        Args:
            programs: Directories with programs.
            private_hosts: Granted hosts that may have private addresses.
            shell: Its toolchain and environment are for the programs, too.
        """
        self._sandbox = sandbox
        self._staging = staging
        self._shell = shell
        self._folder = folder
        self._programs = tuple(programs)
        policy = NetworkPolicy(private_hosts, setting=_PRIVATE_HOSTS)
        self.network = replace(sandbox.network, permits=policy.permits)

    @asynccontextmanager
    async def started(self, server: McpServer, on_contact: OnContact) -> AsyncIterator[TransportStreams]:
        """Run the server's program while the context lasts."""
        mounts = await self.mounts(server)
        tools = await self._shell.tool_mounts() if self._shell else []
        async with (
            self._sandbox.transaction(
                [*mounts, *tools], self._staging.folder, dispose=self._staging.dispose, network=self.network
            ) as view,
            self.started_in(view, server, on_contact) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def started_in(
        self, view: Transaction, server: McpServer, on_contact: OnContact
    ) -> AsyncIterator[TransportStreams]:
        """Run the server's program on the views of a transaction, which include ``mounts``."""
        mask = SecretMask(server.secrets)
        text = f"exec {shlex.join(server.command)} 2>/tmp/{_LOG}"
        env = self._shell.environment if self._shell else {}
        # Not in the workspace: an agent must not choose what an interpreter finds in its working directory.
        command = SandboxCommand(text, cwd=HOME, env=env, secrets=server.secrets, hosts=server.hosts)
        async with running(view, command, on_contact=on_contact) as process:
            try:
                async with _StdioPipe(process, self._home(server), mask).open() as streams:
                    yield streams
            except Exception as error:
                # Its output closes a moment before it ends.
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _BURIAL_SECONDS)
                if process.is_running:
                    raise
                outgoing = mask.text(await asyncio.to_thread(_last_words, view.tmp))[-_LAST_CHARACTERS:]
                how = process.stopped or f"it exited with status {process.exit_code}"
                raise ToolFailed(f"{how}{': ' if outgoing else ''}{outgoing}") from error

    async def mounts(self, server: McpServer, project: Path | None = None) -> list[ViewMount]:
        """Return what the program sees besides a workspace: its own folder, and the operator's programs."""
        home = self._home(server)
        await asyncio.to_thread(self._prepare, home, project)
        programs = [ViewMount(f"programs{number}", path, str(path)) for number, path in enumerate(self._programs)]
        return [ViewMount("data", home, HOME, writable=True, kept_bytes=MOST_KEPT), *programs]

    def _prepare(self, home: Path, project: Path | None) -> None:
        make_private(home, self._folder.parent)
        if project is not None and os.geteuid() == 0:
            # The program runs as the owner of the tree.
            shutil.chown(home, project.stat().st_uid, project.stat().st_gid)

    def _home(self, server: McpServer) -> Path:
        return self._folder / str(server.workspace_id) / str(server.id)


class _StdioPipe:
    """Lines to and from one process. Its output per request is limited."""

    def __init__(self, process: SandboxedProcess, home: Path, mask: SecretMask) -> None:
        self._process = process
        self._home = home
        self._mask = mask
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
                    if message := _message(self._mask.json_line(bytes(begun + line))):
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


def _last_words(tmp: Path) -> str:
    """Return the end of its standard error. The program controls the folder, so no symlink is followed."""
    folder = os.open(tmp, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
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

    def dial(server: McpServer, on_contact: OnContact) -> AbstractAsyncContextManager[TransportStreams]:
        if server.transport is McpTransport.STDIO:
            return programs.started(server, on_contact)
        return _by_http(server, private_hosts)

    return McpConnectionPool(dial, programs, at_end=at_end)


@asynccontextmanager
async def _by_http(server: McpServer, private_hosts: Collection[str]) -> AsyncIterator[TransportStreams]:
    assert server.url is not None
    network = NetworkPolicy(private_hosts, setting=_PRIVATE_HOSTS)
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
