"""Puts the connections together: programs in the sandbox, addresses through the guarded network.

Imported when the first server is used: the protocol's library takes a second to load.
"""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from toolcrib.domain.mcp import McpServer, Transport
from toolcrib.mcp.connections import Connections
from toolcrib.mcp.http import MOST_BYTES, client_for
from toolcrib.mcp.pipe import Programs


def open_connections(
    programs: Programs, *, private_hosts: Collection[str], at_end: Callable[[], None] = lambda: None
) -> Connections:
    """Connections that know both ways to a server. ``at_end`` is called when the last of them is closed for good."""

    def dial(server: McpServer) -> AbstractAsyncContextManager[TransportStreams]:
        if server.transport is Transport.STDIO:
            return programs.started(server)
        return _by_http(server, private_hosts)

    return Connections(dial, at_end=at_end)


@asynccontextmanager
async def _by_http(server: McpServer, private_hosts: Collection[str]) -> AsyncIterator[TransportStreams]:
    assert server.url is not None
    async with (
        client_for(server, private_hosts=private_hosts) as http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams
