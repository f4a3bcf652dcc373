"""The tools that a workspace's MCP servers add to ours. A tool that changed since an owner approved it is off."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from toolcrib.domain.callers import Role
from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments, ToolcribError, ToolFailed
from toolcrib.domain.ids import McpServerId, WorkspaceId
from toolcrib.domain.mcp import McpServer, OfferedTool, Transport
from toolcrib.mcp.arguments import arguments_by
from toolcrib.mcp.catalogue import hash_of
from toolcrib.storage.database import Tenant
from toolcrib.storage.mcp_servers import McpServers
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool

if TYPE_CHECKING:
    from toolcrib.mcp.connections import Connections

_KEPT: Final = 256
_LOOK_SECONDS: Final = 25.0
# Left of a call's time for telling that it is up.
_LAST_SECONDS: Final = 0.5


class Toolbox:
    """Makes tools of servers, and looks after what they offer."""

    def __init__(self, rows: McpServers, connections: "Callable[[], Connections]") -> None:
        self.rows = rows
        self._make = connections
        self._making = asyncio.Lock()
        self._opened: Connections | None = None
        self._made: OrderedDict[tuple[McpServerId, int], tuple[Tool, ...]] = OrderedDict()

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def tools_of(self, workspace_id: WorkspaceId) -> Mapping[str, Tool]:
        """The workspace's tools by name, those that are off included: they say why."""
        servers = await self.rows.of_workspace(workspace_id)
        return {tool.name: tool for server in servers for tool in self._tools(server)}

    async def look(self, tenant: Tenant, server_id: McpServerId) -> McpServer:
        """Connects to a server and notes what it offers; for owners."""
        server = await self.rows.get(tenant, server_id, needs=Role.OWNER)
        await self.drop(server)
        try:
            ready = await self.rows.with_secrets(server)
            async with (await self._connections()).to(ready, seconds=_LOOK_SECONDS) as connection:
                offered = await connection.offers()
                problem = "; ".join(("Left out: " + "; ".join(connection.left_out),) if connection.left_out else ())
            await self.rows.saw(server, offered, problem or None)
        except ToolcribError as error:
            await self.rows.saw(server, None, error.message)
        return await self.rows.get(tenant, server_id)

    async def approve(self, tenant: Tenant, server_id: McpServerId, sha256: str) -> McpServer:
        """Allows the tools whose list has this hash; for owners."""
        server = await self.rows.get(tenant, server_id, needs=Role.OWNER)
        if server.seen is None:
            raise BadArguments({"sha256": "Nothing is known of this server's tools yet. Look at them first."})
        if hash_of(server.seen) != sha256:
            raise BadArguments({"sha256": f"The list that was seen last has the hash {hash_of(server.seen)}."})
        return await self.rows.approve(tenant, server)

    async def drop(self, server: McpServer) -> None:
        """Lets go of a server that was changed or removed."""
        if self._opened is not None:
            await self._opened.drop(server.workspace_id, server.id)

    async def _connections(self) -> "Connections":
        async with self._making:
            if self._opened is None:
                # In a thread: the protocol's library is imported here.
                self._opened = await asyncio.to_thread(self._make)
            return self._opened

    def _tools(self, server: McpServer) -> tuple[Tool, ...]:
        key = (server.id, server.revision)
        if key not in self._made:
            self._made[key] = tuple(self._tool(server, offered) for offered in server.approved)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]

    def _tool(self, server: McpServer, offered: OfferedTool) -> Tool:
        changed = offered.name in server.changed
        return Tool(
            name=f"{server.toolset}/{offered.name}",
            toolset=server.toolset,
            description=offered.description or f"`{offered.name}` of the MCP server {server.name!r}.",
            category=Category.MCP,
            danger=Danger.SAFE if offered.name in server.safe else Danger.DANGEROUS,
            arguments=arguments_by(offered.input_schema),
            effects=_effects(server),
            function=_is_off(server, offered) if changed else partial(self._call, server, offered),
            repeatable=False,
            looks=False,
            offered=not changed,
        )

    async def _call(self, server: McpServer, tool: OfferedTool, arguments: Any, context: ToolContext) -> dict[str, Any]:
        ready = await self.rows.with_secrets(server)
        connections = await self._connections()
        async with connections.to(ready, seconds=max(0.1, context.seconds_left - _LAST_SECONDS)) as connection:
            offered = await connection.offers()
            if not any(one.sha256 == tool.sha256 for one in offered):
                await self.rows.saw(server, offered, None)
                raise _changed(server, tool)
            return await connection.call(tool.name, arguments.root)


def _effects(server: McpServer) -> Callable[[Any], Effects]:
    if server.transport is Transport.STDIO:
        effects = Effects(runs=server.toolset)
    else:
        effects = Effects(contacts=(urlsplit(server.url or "").netloc,))
    return lambda _: effects


def _is_off(server: McpServer, tool: OfferedTool) -> Callable[[Any, ToolContext], Any]:
    async def refuse(_: Any, __: ToolContext) -> Any:
        raise _changed(server, tool)

    return refuse


def _changed(server: McpServer, tool: OfferedTool) -> ToolFailed:
    return ToolFailed(
        f"`{server.toolset}/{tool.name}` is off: its server no longer describes it as when it was approved. "
        f"An owner of the workspace may look at the new list and approve it (mcp-servers/{server.id})."
    )
