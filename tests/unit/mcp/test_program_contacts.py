"""Hosts that a shared program contacts are recorded with the calls in whose time they were contacted."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from anyio import create_memory_object_stream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from toolcrib.core.ids import McpServerId, UserId, WorkspaceId, new_id
from toolcrib.core.mcp_servers import McpServer, McpTransport, McpWorkspaceAccess
from toolcrib.mcp.mcp_connections import McpConnection, OnContact
from toolcrib.sandbox.command import HostContact
from toolcrib.tools.context import ContactedHost

SERVER = McpServer(
    WorkspaceId(new_id()), McpServerId(new_id()), "tools", McpTransport.STDIO, ("tools",), None, (),
    McpWorkspaceAccess.NONE, (), (), True, (), None, None, None, None, None, 1, UserId(new_id()),
    datetime.now(UTC), datetime.now(UTC),
)  # fmt: skip


async def test_contacts_are_those_of_the_call_in_whose_time_they_were_made() -> None:
    listeners: list[OnContact] = []

    @asynccontextmanager
    async def dial(_: McpServer, on_contact: OnContact) -> AsyncIterator[TransportStreams]:
        listeners.append(on_contact)
        async with AsyncExitStack() as nothing:
            # No message ever arrives.
            incoming, read = create_memory_object_stream[SessionMessage | Exception](0)
            write, outgoing = create_memory_object_stream[SessionMessage](0)
            for stream in (incoming, read, write, outgoing):
                await nothing.enter_async_context(stream)
            incoming.close()
            yield read, write

    connection = McpConnection(SERVER, dial)
    await connection.ended()
    [contact] = listeners
    first: list[ContactedHost] = []
    second: list[ContactedHost] = []
    third: list[ContactedHost] = []
    fourth: list[ContactedHost] = []

    with connection.noting(first):
        contact(HostContact("a.org", 443))
        with connection.noting(second):
            contact(HostContact("both.org", 443))
            contact(HostContact("b.org", 443, "not granted"))
        contact(HostContact("both.org", 443))
    contact(HostContact("late.org", 443))
    with connection.noting(third):
        contact(HostContact("c.org", 443))
    with connection.noting(fourth):
        pass

    assert first == [
        ContactedHost("a.org:443"),
        ContactedHost("both.org:443"),
        ContactedHost("b.org:443", "not granted", "during"),
    ]
    assert second == [
        ContactedHost("both.org:443", made="during"),
        ContactedHost("b.org:443", "not granted", "during"),
    ]
    assert third == [ContactedHost("late.org:443", made="before"), ContactedHost("c.org:443")]
    assert fourth == []
