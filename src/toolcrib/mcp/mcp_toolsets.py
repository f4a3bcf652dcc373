"""The tools of a workspace's MCP servers. A tool that changed since an owner approved it is disabled."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, RootModel
from pydantic_core import PydanticCustomError

from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import BadArguments, HomeMoved, ToolcribError, ToolFailed
from toolcrib.core.ids import McpServerId, WorkspaceId
from toolcrib.core.mcp_servers import McpServer, McpTool, McpTransport, McpWorkspaceAccess
from toolcrib.core.paths import Mount
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.network.network_policy import ANY_HOST
from toolcrib.policy.authorization import PathGuard
from toolcrib.policy.json_schema import is_quick, validation_error
from toolcrib.policy.permissions import host_flaw
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.storage.database import Tenant
from toolcrib.storage.mcp_servers import McpServerStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.bash import reports_no_network
from toolcrib.tools.shell.shell import MOST_PATHS, Shell, WorkspaceTransaction, summarize_effect
from toolcrib.tools.tool import Tool
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.text.worker_calls import answer_flaw
from toolcrib.workspace.tree import WorkspaceTree
from toolcrib.workspace.workspace_services import WorkspaceServices

if TYPE_CHECKING:
    from toolcrib.mcp.mcp_connections import McpConnection, McpConnectionPool


MOST_CHARACTERS: Final = 1_000_000


def arguments_by(schema: Mapping[str, Any]) -> type[RootModel[dict[str, Any]]]:
    """Return a model for arguments that match a foreign ``schema``, which it also reports as its own.

    Validation is linear in time and follows no external references. If it would take long, it is left to the caller,
    who can wait for it.
    """

    def fitting(given: dict[str, Any]) -> dict[str, Any]:
        if flaw := _size_flaw(given) or (validation_error(schema, given) if is_quick(schema, given) else None):
            raise PydanticCustomError("schema", "{flaw}", {"flaw": flaw})
        return given

    class McpArguments(RootModel[Annotated[dict[str, Any], AfterValidator(fitting)]]):
        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return dict(schema)

    return McpArguments


def _size_flaw(given: dict[str, Any]) -> str | None:
    try:
        size = len(json.dumps(given, allow_nan=False))
    except (ValueError, RecursionError):
        return "The arguments cannot be encoded as JSON."
    return (
        f"The arguments have {size:,} characters; the limit is {MOST_CHARACTERS:,}." if size > MOST_CHARACTERS else None
    )


_KEPT: Final = 256
_POLL_SECONDS: Final = 25.0
# Reserved at the end of a call's time to report the timeout.
_LAST_SECONDS: Final = 0.5
_MOST_DENIED: Final = 5


class McpToolsets:
    """Creates tools from MCP servers and tracks what the servers offer."""

    def __init__(
        self,
        rows: McpServerStore,
        connections: "Callable[[], McpConnectionPool]",
        shell: Shell,
        services: WorkspaceServices,
    ) -> None:
        self.rows = rows
        self._shell = shell
        self._services = services
        self._make = connections
        self._making = asyncio.Lock()
        self._opened: McpConnectionPool | None = None
        self._made: OrderedDict[tuple[McpServerId, int], tuple[Tool, ...]] = OrderedDict()

    async def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            await self._opened.close()

    async def tools_of(self, workspace_id: WorkspaceId) -> Mapping[str, Tool]:
        """Return the workspace's tools by name, including disabled ones, which say why."""
        servers = await self.rows.of_workspace(workspace_id)
        return {tool.name: tool for server in servers for tool in self._tools(server)}

    async def refresh(self, tenant: Tenant, server_id: McpServerId) -> McpServer:
        """Connect to a server and store its tools. Owners only."""
        server = await self.rows.get(tenant, server_id, needs=WorkspaceRole.OWNER)
        await self.disconnect(server)
        try:
            async with self._connected(await self.rows.with_secrets(server), tenant) as connection:
                offered = await connection.offers()
                problem = "Skipped: " + "; ".join(connection.left_out) if connection.left_out else None
            await self.rows.save_offered(server, offered, problem)
        except HomeMoved:
            # Not a problem of the server: the node that has the files can list its tools.
            raise
        except ToolcribError as error:
            await self.rows.save_offered(server, None, error.message)
        return await self.rows.get(tenant, server_id)

    @asynccontextmanager
    async def _connected(self, server: McpServer, tenant: Tenant) -> "AsyncIterator[McpConnection]":
        """Connect to a server to list its tools. A program sees the workspace as it would in a call, read-only."""
        if server.workspace_access is McpWorkspaceAccess.NONE:
            async with (await self._connections()).to(server, seconds=_POLL_SECONDS) as connection:
                yield connection
            return
        assert tenant.user_id is not None
        caller = Caller(tenant.workspace_id, tenant.user_id, token_version=tenant.token_version)
        tree = WorkspaceTree(self._services, caller, PathGuard(caller, server.toolset), needs=WorkspaceRole.OWNER)
        context = ToolContext(caller, tree, Draft(tree), monotonic() + _POLL_SECONDS, lambda _: None)
        connections = await self._connections()
        async with (
            self._transaction(server, context, server.toolset, writable=False) as opened,
            connections.inside(opened.view, server, seconds=_POLL_SECONDS) as connection,
        ):
            yield connection

    async def approve(self, tenant: Tenant, server_id: McpServerId, sha256: str) -> McpServer:
        """Approve the tools whose list has this hash. Owners only."""
        server = await self.rows.get(tenant, server_id, needs=WorkspaceRole.OWNER)
        if server.offered_tools is None:
            raise BadArguments({"sha256": "The tools of this server are not known yet. Refresh it first."})
        if server.offered_sha256 != sha256:
            raise BadArguments({"sha256": f"The current tool list has the hash {server.offered_sha256}."})
        return await self.rows.approve(tenant, server)

    async def disconnect(self, server: McpServer) -> None:
        """Disconnect from a server that was changed or deleted."""
        if self._opened is not None:
            await self._opened.drop(server.workspace_id, server.id)

    async def _connections(self) -> "McpConnectionPool":
        async with self._making:
            if self._opened is None:
                # In a thread: it imports the MCP library.
                self._opened = await asyncio.to_thread(self._make)
            return self._opened

    def _tools(self, server: McpServer) -> tuple[Tool, ...]:
        key = (server.id, server.revision)
        if key not in self._made:
            self._made[key] = tuple(self._tool(server, offered) for offered in server.approved_tools)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]

    def _tool(self, server: McpServer, offered: McpTool) -> Tool:
        changed = offered.name in server.changed_tools
        return Tool(
            name=f"{server.toolset}/{offered.name}",
            toolset=server.toolset,
            description=offered.description or f"Tool `{offered.name}` of the MCP server {server.name!r}.",
            category=ToolCategory.MCP,
            danger=Danger.SAFE if offered.name in server.safe_tools else Danger.DANGEROUS,
            arguments=arguments_by(offered.input_schema),
            effects=_effects(server),
            function=partial(_refuse if changed else self._call, server, offered),
            idempotent=False,
            checks_membership=False,
            available=not changed,
            # What it changes is a change set, and it is not started again for another.
            replannable=server.workspace_access is not McpWorkspaceAccess.TRANSACTION,
            declared_read_only=offered.read_only,
        )

    async def _call(self, server: McpServer, tool: McpTool, arguments: Any, context: ToolContext) -> dict[str, Any]:
        if flaw := await answer_flaw(tool.input_schema, arguments.root):
            raise BadArguments({"arguments": flaw})
        ready = await self.rows.with_secrets(server)
        connections = await self._connections()
        try:
            if server.workspace_access is not McpWorkspaceAccess.NONE:
                return await self._call_in_workspace(ready, tool, arguments.root, context)
            async with connections.to(ready, seconds=_seconds(context)) as connection:
                return await self._call_over(connection, tool, arguments.root, context)
        except ToolFailed as error:
            raise _with_remedy(server, error, context) from None

    async def _call_in_workspace(
        self, server: McpServer, tool: McpTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        """Call a tool of a program that is started for this call, and import what it changed into the draft."""
        # A tool that its owner approved as read-only stays so.
        writable = server.workspace_access is McpWorkspaceAccess.TRANSACTION and not tool.read_only
        connections = await self._connections()
        async with self._transaction(server, context, f"{server.toolset}/{tool.name}", writable=writable) as opened:
            async with connections.inside(opened.view, server, seconds=_seconds(context)) as connection:
                result = await self._call_over(connection, tool, arguments, context)
            left_out, _ = await opened.import_effect()
        change_sets = [context.draft.change_set(context.caller)] if context.draft.changes else []
        if changed := await off_loop(context.draft.changes, summarize_effect, change_sets):
            result["changed"] = changed
        if left_out:
            result["skipped"] = list(left_out[:MOST_PATHS])
        return result

    async def _call_over(
        self, connection: "McpConnection", tool: McpTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        with connection.noting(context.remarks.contacted):
            offered = await connection.offers()
            if not any(one.sha256 == tool.sha256 for one in offered):
                await self.rows.save_offered(connection.server, offered, None)
                raise _changed(connection.server, tool)
            result = await connection.call(tool.name, arguments)
        if closed := _closed_network(connection.server, context):
            # Programs often report that as an ordinary result.
            result["text"] = f"{result['text']}\n[{closed}]"
        return result

    @asynccontextmanager
    async def _transaction(
        self, server: McpServer, context: ToolContext, tool_name: str, *, writable: bool
    ) -> AsyncIterator[WorkspaceTransaction]:
        """Open views of the workspace for a program."""
        programs = (await self._connections()).programs
        _, project = (await context.tree.roots((Mount.PROJECT,)))[Mount.PROJECT]
        async with self._shell.transaction(
            context,
            tool_name,
            extra=await programs.mounts(server, project),
            always_masked=True,
            writable=writable,
            network=programs.network,
        ) as opened:
            yield opened


def _seconds(context: ToolContext) -> float:
    return max(0.1, context.seconds_left - _LAST_SECONDS)


def _effects(server: McpServer) -> Callable[[Any], Effects]:
    if server.transport is McpTransport.STDIO:
        effects = Effects(command=server.toolset, hosts=server.hosts, access=server.access)
    else:
        effects = Effects(hosts=(urlsplit(server.url or "").netloc,), access=server.access)
    return lambda arguments: replace(effects, arguments=arguments.root)


async def _refuse(server: McpServer, tool: McpTool, _: Any, __: ToolContext) -> dict[str, Any]:
    raise _changed(server, tool)


def _with_remedy(server: McpServer, error: ToolFailed, context: ToolContext) -> ToolFailed:
    """Return the error; if the network was closed for the program, with what an owner can do."""
    closed = _closed_network(server, context, error.message)
    if closed is None or isinstance(error, BadArguments):
        return error
    return type(error)(f"{error.message.rstrip('.')}. {closed}")


def _closed_network(server: McpServer, context: ToolContext, message: str = "") -> str | None:
    """Return what the network denied to the program in this call, and the remedy; None if it denied nothing."""
    denied = dict.fromkeys(
        f"{one.host} ({one.denied_reason})" for one in context.remarks.contacted if one.denied_reason
    )
    if denied:
        closed = f"The network is closed for {', '.join(islice(denied, _MOST_DENIED))}."
    elif server.transport is McpTransport.STDIO and not server.hosts and reports_no_network(message):
        closed = "The program has no network."
    else:
        return None
    return f"{closed} An owner can grant hosts: toolcrib mcp update {server.name} --host HOST"


def _changed(server: McpServer, tool: McpTool) -> ToolFailed:
    return ToolFailed(
        f"`{server.toolset}/{tool.name}` is disabled: its definition changed since it was approved. "
        f"An owner of the workspace can approve the new list (mcp-servers/{server.id})."
    )


def checked_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that a program may contact, each once, in lower case.

    Raises:
        BadArguments: One is not a host.
    """
    flaws = {f"hosts.{number}": flaw for number, host in enumerate(hosts) if (flaw := host_flaw(host.lower()))}
    if flaws:
        raise BadArguments(flaws)
    return tuple(dict.fromkeys(host.lower() for host in hosts))


def checked_url(url: str, *, private_hosts: Collection[str]) -> str:
    """Return the URL of a server.

    Raises:
        BadArguments: It is not a valid URL, or it would send a key unencrypted.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadArguments({"url": "Not a URL."}) from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.fragment:
        raise BadArguments({"url": "Expected a URL such as https://example.com/mcp, without a password."})
    allowed = ANY_HOST in private_hosts or f"{host}:{port or (443 if parts.scheme == 'https' else 80)}" in private_hosts
    if parts.scheme == "http" and not allowed:
        raise BadArguments(
            {"url": "Use https, unless the operator lists the host in TOOLCRIB_ALLOWED_PRIVATE_MCP_HOSTS."}
        )
    return url
