"""The MCP server: lists tools and executes calls, in the older and the newer protocol versions."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

import toolcrib
from toolcrib.api.api_services import ApiServices
from toolcrib.api.http_errors import explained, log_internal_error
from toolcrib.api.mcp.elicitation import Elicitation
from toolcrib.api.mcp.mcp_app import MCP_REQUEST, McpRequest
from toolcrib.api.mcp.mcp_fast_path import FastPathCall, fast_path_call, may_be_plain
from toolcrib.api.mcp.mcp_tool_results import offered, result_of
from toolcrib.api.request_guard import replayed
from toolcrib.core.errors import NotFound, ToolcribError
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.providers.wire_history import ToolNameEncoder
from toolcrib.tools.tool import Tool

_IDLE_SECONDS: Final = 1_800
_MOST_SESSIONS: Final = 2_000
_SESSIONS_OF_ONE: Final = 100
# How long a client may take to read the last progress messages of an ended call.
_LAST_WORDS_SECONDS: Final = 2.0
_INSTRUCTIONS: Final = (
    "A versioned workspace. Paths begin with `/`. Every change is versioned and can be undone. "
    "A call may need a person's approval; then the result says so and contains the approval id."
)

Context = ServerRequestContext[dict[str, Any], Any]


class McpProtocolServer:
    """Connects the MCP library with the gate."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._asking = Elicitation(services)
        server: Server[dict[str, Any]] = Server(
            "toolcrib",
            version=toolcrib.__version__,
            title="Toolcrib",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
            # No argument is sent as a header, so no call needs to look up its schema.
            get_tool_input_schema=lambda _: None,
        )
        # The library's own tracing would slow down every call, and the gate records more.
        server.middleware.clear()
        self._manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=_IDLE_SECONDS,
            max_sessions=_MOST_SESSIONS,
            max_request_body_size=services.settings.max_request_bytes,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the session manager."""
        async with self._manager.run():
            yield

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        mcp_request: McpRequest = scope[MCP_REQUEST]
        self._check_session_count(scope, mcp_request)
        # The library lets only this user use the session.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=mcp_request.name, scopes=[]))
        # The web server keeps the spaces around a header value.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        if may_be_plain(scope):
            body = await Request(scope, receive).body()
            call = fast_path_call(scope, body, mcp_request.principal, self._services.registry)
            if call is not None and self._is_at_home(call, scope["user"]):
                looked = await self._looked(call, mcp_request)
                response = call.answer(looked, server=self._manager.app.server_info_stamp)
                await response(scope, receive, send)
                return
            receive = replayed(body, receive)
        await self._manager.handle_request(scope, receive, send)

    def _is_at_home(self, call: FastPathCall, user: AuthenticatedUser) -> bool:
        """Return whether the session exists and belongs to the caller. Extends its idle timeout."""
        if call.session is None:
            return True
        transport = self._manager._server_instances.get(call.session)
        owner = self._manager._session_owners.get(call.session)
        if transport is None or transport.is_terminated or owner != authorization_context(user):
            return False
        if transport.idle_scope is not None:
            deadline = anyio.current_time() + _IDLE_SECONDS
            transport.idle_scope.deadline = max(transport.idle_scope.deadline, deadline)
        return True

    async def _looked(self, call: FastPathCall, mcp_request: McpRequest) -> CallToolResult | ErrorData:
        try:
            outcome = await self._services.executor.execute(ToolCall(call.name, call.arguments), mcp_request.caller())
        except ToolcribError as error:
            return _mcp_error(error).error
        except Exception as error:  # noqa: BLE001 - the outermost handler
            return _unforeseen(error, call.name).error
        return self._asking.cannot_ask(mcp_request, outcome) if outcome.is_waiting else result_of(outcome)

    def _check_session_count(self, scope: Scope, mcp_request: McpRequest) -> None:
        """Limit the sessions per person, so that one person cannot use up all.

        Newer protocol versions have no sessions.
        """
        headers = dict(scope["headers"])
        version = headers.get(b"mcp-protocol-version", HANDSHAKE_PROTOCOL_VERSIONS[0].encode()).decode("latin-1")
        if b"mcp-session-id" in headers or version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return
        # The library counts the sessions, but has no public API for it.
        owners = self._manager._session_owners.values()
        if (
            sum(owner["client_id"].startswith(str(mcp_request.principal.user_id)) for owner in owners)
            >= _SESSIONS_OF_ONE
        ):
            raise HTTPException(
                429,
                f"You have {_SESSIONS_OF_ONE} open MCP sessions, the limit. Close one first.",
                {"Retry-After": "60"},
            )

    async def _list(self, context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        mcp_request = _mcp_request(context)
        try:
            await self._services.workspaces.get(mcp_request.tenant)
            tools = await self._tools(mcp_request)
        except ToolcribError as error:
            raise _mcp_error(error) from None
        names = ToolNameEncoder(tool.name for tool in tools)
        # Private and not cacheable: an owner may change what an agent may do at any time.
        return ListToolsResult(
            tools=[offered(tool, names.encode(tool.name)) for tool in tools], ttl_ms=0, cache_scope="private"
        )

    async def _call(self, context: Context, given: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        mcp_request = _mcp_request(context)
        try:
            if given.request_state is not None:
                return await self._asking.go_on(context, mcp_request, given)
            name = given.name
            if self._services.registry.get(name) is None:
                name = ToolNameEncoder(tool.name for tool in await self._tools(mcp_request)).decode(name)
            outcome = await self._execute(context, ToolCall(name, given.arguments or {}), mcp_request)
            if isinstance(outcome.error, NotFound) and outcome.error.message == f"Tool '{name}' not found":
                raise MCPError(INVALID_PARAMS, f"Unknown tool: {given.name}")
            if outcome.is_waiting:
                return await self._asking.ask(context, mcp_request, outcome)
            return result_of(outcome)
        except ToolcribError as error:
            raise _mcp_error(error) from None
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost handler
            raise _unforeseen(error, given.name) from None

    async def _execute(self, context: Context, call: ToolCall, mcp_request: McpRequest) -> Outcome:
        """Execute the call through the gate. Output is reported as progress if the client requests it."""
        execute = self._services.executor.execute
        if not (context.meta or {}).get("progress_token"):
            return await execute(call, mcp_request.caller())
        progress: asyncio.Queue[str] = asyncio.Queue()
        reporting = asyncio.create_task(_report_progress(context, progress))
        try:
            outcome = await execute(call, mcp_request.caller(), emit=progress.put_nowait)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_SECONDS):
                    await progress.join()
        finally:
            reporting.cancel()
        return outcome

    async def _tools(self, mcp_request: McpRequest) -> list[Tool]:
        principal = mcp_request.principal
        rules = principal.agent.rules if principal.agent else None
        registry = await self._services.registry.for_person(mcp_request.workspace_id, principal.user_id, rules)
        if rules is not None:
            return registry.list_for_mcp(rules)
        return [tool for tool in registry.list_for_scope(None) if tool.exposed_over_mcp and tool.is_available]


async def _report_progress(context: Context, progress: asyncio.Queue[str]) -> None:
    for count in itertools.count(1):
        await context.session.report_progress(count, message=await progress.get())
        progress.task_done()


def _mcp_request(context: Context) -> McpRequest:
    assert context.request is not None
    mcp_request: McpRequest = context.request.scope[MCP_REQUEST]
    return mcp_request


def _unforeseen(error: Exception, tool: str) -> MCPError:
    """Log an unexpected error, which the library would not do."""
    if (failure := explained(error, where=f"mcp {tool}")) is not None:
        return _mcp_error(failure)
    return MCPError(INTERNAL_ERROR, log_internal_error(error, where=f"mcp {tool}"))


def _mcp_error(error: ToolcribError) -> MCPError:
    data: dict[str, Any] = {"code": error.code}
    if error.fields:
        data["fields"] = error.fields
    if error.retry_after is not None:
        data["retry_after"] = error.retry_after
    return MCPError(INVALID_REQUEST, error.message, data)
