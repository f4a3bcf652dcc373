"""Connections to MCP servers: opened on first use, shared, and closed when idle or broken.

Also converts the servers' results: text, structured content, and media up to a limit.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import IncomingMessage
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

import toolcrib
from toolcrib.core.errors import TimedOut, ToolcribError, ToolFailed
from toolcrib.core.ids import McpServerId, WorkspaceId
from toolcrib.core.mcp_servers import McpServer, McpTool, McpTransport
from toolcrib.mcp.secret_mask import SecretMask
from toolcrib.mcp.tool_catalog import MOST_TOOLS, build_catalog, strip_invisible, without_invisible
from toolcrib.sandbox.command import HostContact
from toolcrib.sandbox.transaction import Transaction
from toolcrib.tools.context import ContactedHost

if TYPE_CHECKING:
    from toolcrib.mcp.mcp_transports import StdioPrograms

OnContact = Callable[[HostContact], None]
"""Receives every host that a program contacts, or is denied."""
Dial = Callable[[McpServer, OnContact], AbstractAsyncContextManager[TransportStreams]]

_CONNECT_SECONDS: Final = 20.0
_IDLE_SECONDS: Final = 600.0
# An older tool list is requested again before the next call.
_LIST_SECONDS: Final = 60.0
_MOST_PAGES: Final = 20
_IN_A_WORKSPACE: Final = 10
_IN_ALL: Final = 200
_LONGEST_WORDS: Final = 1_000
_INVALID: Final = "an invalid response"
MOST_TEXT: Final = 1_000_000
MOST_MEDIA: Final = 2_000_000
_LONGEST_ERROR: Final = 4_000
_MOST_CONTACTS: Final = 1_000
_ANSWER: Final[TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult]] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)

# The library logs what servers send, including tracebacks.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("client").setLevel(logging.CRITICAL)


class McpConnection:
    """One server's connection. Its own task opens and closes it."""

    def __init__(self, server: McpServer, dial: Dial) -> None:
        self.server = server
        self.offered: tuple[McpTool, ...] = ()
        self.left_out: tuple[str, ...] = ()
        self.users = 0
        self.used_at = monotonic()
        self._mask = SecretMask(server.secrets, are_headers=server.transport is McpTransport.HTTP)
        # What each call that runs has contacted, and what was contacted while none did.
        self._calls: list[dict[HostContact, ContactedHost]] = []
        self._between: dict[HostContact, None] = {}
        self._listed_at: float | None = None
        self._listing = asyncio.Lock()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._hold(dial))

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended or is ending."""
        return self._task.done() or self._stop.is_set()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool."""
        client = await asyncio.shield(self._opened)
        # Not the library's own method: it would validate results against the server's schema, with regexes that may
        # explode.
        request = mcp_types.CallToolRequest(
            params=mcp_types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        )
        answer = await client.session.send_request(request, _ANSWER)
        if isinstance(answer, mcp_types.InputRequiredResult):
            raise ToolFailed(
                f"The MCP server {self.server.name!r} sent an elicitation request, which is not supported. "
                "Ask with `ask_user`, then call the tool with the answers."
            )
        return result_of(self.server.name, answer)

    @contextmanager
    def noting(self, contacted: list[ContactedHost]) -> Iterator[None]:
        """Add the hosts that the program contacts, or is denied, while a call runs. They may be those of another call.

        Those contacted since the last call are added, too: nothing that the program does is lost.
        """
        call = {one: _contacted(one, made="before") for one in self._between}
        self._between.clear()
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls = [one for one in self._calls if one is not call]
            contacted += call.values()

    async def offers(self) -> tuple[McpTool, ...]:
        """Return the server's tools; requested again when the server reports a change, or after a while."""
        async with self._listing:
            if self._listed_at is None or monotonic() - self._listed_at > _LIST_SECONDS:
                self.offered, self.left_out = await self._list()
                self._listed_at = monotonic()
            return self.offered

    def words(self, error: BaseException) -> str:
        """Return an error as text that can be shown: without secrets."""
        return _words(error, self._mask)

    def stop(self) -> None:
        """Stop the connection."""
        self._stop.set()

    async def ended(self) -> None:
        """Stop the connection and wait for its end."""
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _list(self) -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
        client = await asyncio.shield(self._opened)
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            request = mcp_types.ListToolsRequest(params=mcp_types.PaginatedRequestParams(cursor=cursor))
            page = await client.session.send_request(request, mcp_types.ListToolsResult)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or len(tools) > MOST_TOOLS:
                break
        return await asyncio.to_thread(build_catalog, tools)

    async def _hold(self, dial: Dial) -> None:
        try:
            async with AsyncExitStack() as opened:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    client = await opened.enter_async_context(
                        Client(
                            _observed(dial(self.server, self._note), self._stop, self._mask),
                            client_info=mcp_types.Implementation(name="toolcrib", version=toolcrib.__version__),
                            message_handler=self._heard,
                            cache=None,
                        )
                    )
                self._opened.set_result(client)
                await self._stopped_or_idle()
        except Exception as error:  # noqa: BLE001 - the outermost frame of this task; the waiting caller gets the error
            if not self._opened.done():
                self._opened.set_exception(_cannot_connect(self.server, error, self.words(error)))
                # Retrieved here, in case no caller waits any more.
                self._opened.exception()
        finally:
            self._stop.set()
            if not self._opened.done():
                self._opened.cancel()

    def _note(self, contact: HostContact) -> None:
        if not self._calls and len(self._between) < _MOST_CONTACTS:
            self._between[contact] = None
        noted = _contacted(contact, made=None if len(self._calls) == 1 else "during")
        for call in self._calls:
            # What the call did by itself at another time is certain.
            if len(call) < _MOST_CONTACTS and (contact not in call or noted.made is None):
                call[contact] = noted

    async def _stopped_or_idle(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_SECONDS):
                    await self._stop.wait()
            if not self.users and monotonic() - self.used_at > _IDLE_SECONDS:
                # Before anything else runs: no new call gets it.
                self._stop.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            # Requested again before the next use.
            self._listed_at = None


@asynccontextmanager
async def _observed(
    transport: AbstractAsyncContextManager[TransportStreams], over: asyncio.Event, mask: SecretMask
) -> AsyncIterator[TransportStreams]:
    """Open a transport that sets ``over`` when the other side has closed it, so that it is not kept."""
    async with transport as (read, write):
        yield _ObservedStream(read, over, mask), write


class _ObservedStream:
    """A message stream that records its end, and masks secrets: a URL may repeat the headers of a request."""

    def __init__(self, inner: Any, over: asyncio.Event, mask: SecretMask) -> None:
        self._inner = inner
        self._over = over
        self._mask = mask

    async def __aenter__(self) -> "_ObservedStream":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        ended: bool | None = await self._inner.__aexit__(*error)
        return ended

    def __aiter__(self) -> "_ObservedStream":
        return self

    async def __anext__(self) -> Any:
        try:
            received = await self._inner.__anext__()
        except StopAsyncIteration:
            self._over.set()
            raise
        if self._mask.is_empty or not isinstance(received, SessionMessage):
            return received
        return _masked(_without_excerpt(received), self._mask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _contacted(contact: HostContact, *, made: Literal["during", "before"] | None) -> ContactedHost:
    return ContactedHost(f"{contact.host}:{contact.port}", contact.refused, made)


def _without_excerpt(received: SessionMessage) -> SessionMessage:
    """Return the message; if a response could not be parsed, without the excerpt of it that the library adds.

    An excerpt may have half of a secret, which no mask detects.
    """
    message = received.message
    if not isinstance(message, mcp_types.JSONRPCError) or message.error.code != mcp_types.PARSE_ERROR:
        return received
    error = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=_INVALID)
    return replace(received, message=message.model_copy(update={"error": error}))


def _masked(received: SessionMessage, mask: SecretMask) -> SessionMessage:
    text = received.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    masked = mask.json_line(text)
    if masked == text:
        return received
    return replace(received, message=mcp_types.jsonrpc_message_adapter.validate_json(masked, by_name=False))


class McpConnectionPool:
    """All connections of this node."""

    def __init__(self, dial: Dial, programs: "StdioPrograms", *, at_end: Callable[[], None] = lambda: None) -> None:
        self.programs = programs
        self._dial = dial
        self._at_end = at_end
        self._held: dict[tuple[WorkspaceId, McpServerId], McpConnection] = {}

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(connection.ended() for connection in self._held.values()))
        self._held.clear()
        await asyncio.to_thread(self._at_end)

    async def drop(self, workspace_id: WorkspaceId, server_id: McpServerId) -> None:
        """Close the connection to a server that was changed or deleted."""
        if connection := self._held.pop((workspace_id, server_id), None):
            await connection.ended()

    @asynccontextmanager
    async def to(self, server: McpServer, *, seconds: float) -> AsyncIterator[McpConnection]:
        """Provide a connection for one use.

        Raises:
            ToolFailed: The connection failed, or took longer than ``seconds``.
        """
        connection = self._connection(server)
        async with self._used(connection, seconds=seconds):
            yield connection

    @asynccontextmanager
    async def inside(self, view: Transaction, server: McpServer, *, seconds: float) -> AsyncIterator[McpConnection]:
        """Start a program on the views of a transaction for one use. Fails like ``to``."""

        def dial(server: McpServer, on_contact: OnContact) -> AbstractAsyncContextManager[TransportStreams]:
            return self.programs.started_in(view, server, on_contact)

        connection = McpConnection(server, dial)
        try:
            async with self._used(connection, seconds=seconds):
                yield connection
        finally:
            await asyncio.shield(connection.ended())

    @asynccontextmanager
    async def _used(self, connection: McpConnection, *, seconds: float) -> AsyncIterator[None]:
        server = connection.server
        connection.users += 1
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            # It may hang forever: the next call gets a new one.
            self._retire(connection)
            raise TimedOut(
                f"The MCP server {server.name!r} did not respond within {seconds:.0f} s. It is unknown whether "
                "the call took effect."
            ) from None
        except MCPError as error:
            if connection.is_over:
                self._retire(connection)
            raise ToolFailed(f"The MCP server {server.name!r} returned an error: {connection.words(error)}") from None
        except (ValidationError, ValueError, RuntimeError, OSError, httpx2.HTTPError) as error:
            self._retire(connection)
            what = connection.words(error)
            raise ToolFailed(f"The MCP server {server.name!r} sent {what}. The next call reconnects.") from None
        finally:
            connection.users -= 1
            connection.used_at = monotonic()
            if not connection.users and self._held.get(_key(server)) is not connection:
                connection.stop()

    def _connection(self, server: McpServer) -> McpConnection:
        self._held = {key: one for key, one in self._held.items() if not one.is_over}
        if held := self._held.get(_key(server)):
            if held.server.connects_like(server):
                return held
            # Changed, perhaps through another process: what it was granted before no longer applies.
            self._retire(held)
            if not held.users:
                held.stop()
        self._make_room(server)
        made = self._held[_key(server)] = McpConnection(server, self._dial)
        return made

    def _make_room(self, server: McpServer) -> None:
        """Close the connection that is idle for longest if there are too many. Fails if all are in use."""
        mine = [one for one in self._held.values() if one.server.workspace_id == server.workspace_id]
        for held, most in ((mine, _IN_A_WORKSPACE), (list(self._held.values()), _IN_ALL)):
            if len(held) < most:
                continue
            idle = [one for one in held if not one.users]
            if not idle:
                raise ToolFailed("Too many MCP servers are in use. Try again later.")
            oldest = min(idle, key=lambda one: one.used_at)
            oldest.stop()
            self._retire(oldest)

    def _retire(self, connection: McpConnection) -> None:
        """Give the connection to no new call; it ends with its last one."""
        if self._held.get(_key(connection.server)) is connection:
            del self._held[_key(connection.server)]


def _key(server: McpServer) -> tuple[WorkspaceId, McpServerId]:
    return server.workspace_id, server.id


def _words(error: BaseException, mask: SecretMask) -> str:
    """Return the error as text, the first one of a group, without characters that could mislead a terminal."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        # Its text has an excerpt of the response.
        return _INVALID
    text = error.message if isinstance(error, MCPError | ToolcribError) else str(error)
    # Masked before it is cut: half of a secret is not detected.
    shown = mask.text(strip_invisible(" ".join(mask.text(text).split())))
    return shown[:_LONGEST_WORDS] or type(error).__name__


def _cannot_connect(server: McpServer, error: Exception, words: str) -> ToolFailed:
    if isinstance(error, TimeoutError):
        return TimedOut(f"The MCP server {server.name!r} did not respond within {_CONNECT_SECONDS:.0f} s.")
    return ToolFailed(
        f"The MCP server {server.name!r} is unavailable: {words}. Ask an owner of the workspace to check it."
    )


def result_of(server: str, answer: mcp_types.CallToolResult) -> dict[str, Any]:
    """Convert the result.

    Raises:
        ToolFailed: The tool reported an error; the message is the server's.
    """
    text = strip_invisible("\n".join(filter(None, map(_text, answer.content))))
    if answer.is_error:
        raise ToolFailed(f"The MCP server {server!r} returned an error: {text[:_LONGEST_ERROR] or '(no text)'}")
    result: dict[str, Any] = {"text": text[:MOST_TEXT]}
    if len(text) > MOST_TEXT:
        result["omitted"] = f"{len(text) - MOST_TEXT:,} more characters were truncated."
    if answer.structured_content is not None:
        result["structured"] = without_invisible(answer.structured_content)
    if media := _media(answer.content):
        result["media"] = without_invisible(media)
    return result


def _text(block: mcp_types.ContentBlock) -> str:
    match block:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.ResourceLink(uri=uri, name=name):
            # Shown, never fetched: it may lead anywhere, even into our own network.
            return f"[{name}: {uri}]"
        case _:
            return ""


def _media(content: list[mcp_types.ContentBlock]) -> list[dict[str, Any]]:
    media: list[dict[str, Any]] = []
    room = MOST_MEDIA
    for block in content:
        medium = _medium(block)
        if medium is None:
            continue
        size = len(medium.get("data") or medium.get("text") or "")
        if size > room:
            medium = {
                "type": medium["type"],
                "left_out": f"{size:,} characters; the limit per result is {MOST_MEDIA:,}.",
            }
        else:
            room -= size
        media.append(medium)
    return media


def _medium(block: mcp_types.ContentBlock) -> dict[str, Any] | None:
    match block:
        case mcp_types.ImageContent(data=data, mime_type=kind):
            return {"type": "image", "mime_type": kind, "data": data}
        case mcp_types.AudioContent(data=data, mime_type=kind):
            return {"type": "audio", "mime_type": kind, "data": data}
        case mcp_types.EmbeddedResource(resource=resource):
            held = (
                {"data": resource.blob}
                if isinstance(resource, mcp_types.BlobResourceContents)
                else {"text": resource.text}
            )
            return {"type": "resource", "uri": str(resource.uri), "mime_type": resource.mime_type, **held}
        case _:
            return None
