"""Creates and connects what forwards calls between nodes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from toolcrib.nodes.call_forwarder import ForwardingGate, ForwardingMcpServers, ForwardingPackages, HomeRouter
from toolcrib.nodes.forwarded_calls import ForwardedCalls
from toolcrib.nodes.home_directory import HomeDirectory
from toolcrib.nodes.internal_channel import InternalListener, NodeClient
from toolcrib.nodes.node_tokens import NodeTokens
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.storage.node_addresses import NodeAddressStore
from toolcrib.wiring.tool_runtime import ToolRuntime, lost_calls

# What a forwarded call has besides the body of its request: an agent with its definition and grants.
_CALLER_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Forwarding:
    """What routes use instead of this node's gate and package installer."""

    gate: ForwardingGate
    packages: ForwardingPackages
    mcp_servers: ForwardingMcpServers
    choose_home: Callable[[], Awaitable[str]]


@asynccontextmanager
async def forwarding_between_nodes(
    engine: ToolRuntime, heartbeat: ProcessHeartbeat, address: str
) -> AsyncIterator[Forwarding]:
    """Listen for other nodes, which reach this one at ``address``, and forward calls to them."""
    settings = engine.settings
    assert settings.internal_port is not None
    previous, lease = settings.jwt_previous_secret, settings.heartbeat_lease_seconds
    most_bytes = settings.max_request_bytes + _CALLER_BYTES
    tokens = NodeTokens(
        settings.jwt_secret.get_secret_value(),
        node=settings.node_name,
        address=address,
        previous=previous.get_secret_value() if previous else None,
        clock=heartbeat.database_time,
    )

    def is_alive() -> bool:
        return heartbeat.is_alive

    calls = ForwardedCalls(
        engine.executor, engine.packages, engine.toolbox, engine.drain, node=settings.node_name, is_alive=is_alive
    )
    listener = InternalListener(
        tokens,
        calls.handle,
        host=settings.internal_host,
        port=settings.internal_port,
        most_bytes=most_bytes,
        lease=lease,
        is_alive=is_alive,
    )
    async with NodeClient(tokens, lease=lease) as client, listener:
        engine.drain.add(listener.finish)
        directory = HomeDirectory(NodeAddressStore(engine.database), node=settings.node_name, lease=lease)
        router = HomeRouter(directory, client, most_bytes=most_bytes)
        watching = asyncio.create_task(router.watch(heartbeat))
        try:
            yield Forwarding(
                ForwardingGate(engine.executor, router, lost_calls(engine), engine.live),
                ForwardingPackages(engine.packages, router),
                ForwardingMcpServers(engine.toolbox, router),
                directory.for_new_workspace,
            )
        finally:
            watching.cancel()
