"""Executes calls on the node that has the workspace's files: here, or forwarded to the workspace's home."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from toolcrib.core.callers import Caller
from toolcrib.core.errors import HomeMoved, HomeUnavailable, Interrupted, TooLarge
from toolcrib.core.ids import McpServerId, SessionId, WorkspaceId
from toolcrib.core.mcp_servers import McpServer
from toolcrib.core.packages import Package, Workflow
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.events.event_bus import EventPublisher
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.lost_calls import LostCalls
from toolcrib.mcp.mcp_toolsets import McpToolsets
from toolcrib.nodes.call_wire import (
    caller_to_json,
    error_from_json,
    explanation_from_json,
    from_bytes,
    outcome_from_json,
    package_from_json,
    tenant_to_json,
    to_bytes,
)
from toolcrib.nodes.home_directory import HomeDirectory
from toolcrib.nodes.internal_channel import AnswerLost, Emit, FrameKind, NodeClient, NotSent, alive_seconds, off_loop
from toolcrib.policy.authorization import Explanation
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.node_addresses import HomeAddress
from toolcrib.workspace.packages.installer import PackageInstaller

_ATTEMPTS: Final = 2

log = structlog.get_logger(__name__)

T = TypeVar("T")


class HomeRouter:
    """Runs an operation at a workspace's home. If the home has moved, looks it up again and tries once more."""

    def __init__(self, directory: HomeDirectory, client: NodeClient, *, most_bytes: int) -> None:
        self._directory = directory
        self._client = client
        self._most_bytes = most_bytes

    async def watch(self, heartbeat: ProcessHeartbeat) -> None:
        """Give up on nodes without a heartbeat, until cancelled: others become the homes of their workspaces."""
        while True:
            # Without the database this process cannot tell, and would think that of all nodes.
            if heartbeat.is_steady:
                try:
                    self._client.give_up(await self._directory.silent_nodes())
                except OperationalError as error:
                    log.warning("forward.database_error", error=str(error))
                except Exception:
                    # No other task here does this, so no error may end this loop.
                    log.exception("forward.watch_failed")
            await asyncio.sleep(alive_seconds(heartbeat.lease) / 2)

    async def run(
        self,
        workspace_id: WorkspaceId,
        here: Callable[[], Awaitable[T]],
        there: Callable[[HomeAddress], Awaitable[T]],
    ) -> T:
        """Call ``here`` if this node has the files, else ``there`` with their home.

        Raises:
            HomeUnavailable: The home cannot be reached, or has none of the workspace's files.
        """
        problem, silent = "", None
        for _ in range(_ATTEMPTS):
            home = await self._directory.elsewhere(workspace_id)
            if home is not None and home == silent:
                break
            try:
                return await (here() if home is None else there(home))
            except (HomeMoved, NotSent) as error:
                problem, silent = error.message, home if isinstance(error, NotSent) else None
                self._directory.forget(workspace_id)
                log.info("forward.home_changed", workspace_id=str(workspace_id), error=error.message)
        raise HomeUnavailable(f"The node with the files of this workspace is not available. Try again. ({problem})")

    async def send(self, home: HomeAddress, operation: str, body: bytes, *, emit: Emit | None = None) -> Any:
        """Send an operation to a home and return its result. Raises the error that was raised there.

        Raises:
            NotSent: It has not begun.
            AnswerLost: It may have begun.
        """
        if home.address is None:
            raise NotSent(f"Node {home.node!r} has no internal listener: set TOOLCRIB_INTERNAL_PORT there.")
        if len(body) > self._most_bytes:
            raise TooLarge(f"The call has {len(body):,} bytes; a node forwards at most {self._most_bytes:,}.")
        try:
            kind, payload = await self._client.send(home.node, home.address, operation, body, emit=emit)
        except AnswerLost:
            # Another node may have taken its workspaces over, or will: the next calls look them up again.
            self._directory.forget_node(home.node)
            raise
        answer = await off_loop(len(payload), partial(from_bytes, payload))
        if kind is not FrameKind.ERROR:
            return answer
        error = error_from_json(answer)
        if isinstance(error, HomeUnavailable):
            self._directory.forget_node(home.node)
        raise error


class ForwardingGate:
    """The gate of all nodes: has the gate's ``execute`` and ``explain``."""

    def __init__(self, gate: Gate, router: HomeRouter, lost_calls: LostCalls, events: EventPublisher) -> None:
        self._gate = gate
        self._router = router
        self._lost = lost_calls
        self._events = events

    async def execute(self, call: ToolCall, caller: Caller, *, emit: Emit | None = None) -> Outcome:
        """Execute a call as ``Gate.execute`` does, on the node that has the files.

        Raises:
            HomeUnavailable: That node cannot be reached. Nothing was changed.
        """

        async def there(home: HomeAddress) -> Outcome:
            return await self._forward(home, call, caller, emit)

        return await self._router.run(caller.workspace_id, lambda: self._gate.execute(call, caller, emit=emit), there)

    async def explain(self, call: ToolCall, caller: Caller, *, is_new: bool = False) -> Explanation:
        """Return which rule would decide this call, as ``Gate.explain`` does."""

        async def there(home: HomeAddress) -> Explanation:
            body = _body(call, caller, is_new=is_new)
            try:
                return explanation_from_json(await self._router.send(home, "explain", body))
            except AnswerLost as lost:
                raise NotSent(lost.message) from lost

        return await self._router.run(
            caller.workspace_id, lambda: self._gate.explain(call, caller, is_new=is_new), there
        )

    async def _forward(self, home: HomeAddress, call: ToolCall, caller: Caller, emit: Emit | None) -> Outcome:
        try:
            body = _body(call, caller, streams=emit is not None)
            outcome = outcome_from_json(await self._router.send(home, "execute", body, emit=emit))
        except AnswerLost as lost:
            log.warning("forward.answer_lost", node=home.node, call_id=str(caller.call_id), error=lost.message)
            if (known := await self._lost.stored(caller)) is not None:
                return known
            if await self._lost.may_repeat(call, caller):
                raise NotSent(lost.message) from lost
            return await self._lost.settle(call, caller)
        if caller.session_id is not None:
            # Its events were committed there: subscribers here need not wait until they are polled.
            self._events.notify(caller.workspace_id, caller.session_id)
        return outcome


class ForwardingPackages:
    """The package installer of all nodes. What needs no files is done here."""

    def __init__(self, installer: PackageInstaller, router: HomeRouter) -> None:
        self._installer = installer
        self._router = router
        self.rows = installer.rows

    async def require_installer(self, tenant: Tenant) -> None:
        """Check the role before an archive is accepted."""
        await self._run(tenant, "require_installer", lambda: self._installer.require_installer(tenant))

    async def install(self, tenant: Tenant, archive: bytes) -> Package:
        """Install a package archive, or replace the installed version. Owners only."""

        async def here() -> Package:
            return await self._installer.install(tenant, archive)

        async def there(home: HomeAddress) -> Package:
            return package_from_json(await self._send(home, tenant, "install", attached=archive))

        return await self._router.run(tenant.workspace_id, here, there)

    async def remove(self, tenant: Tenant, name: str) -> None:
        """Remove a package with its agents. Owners only."""
        await self._run(tenant, "remove", lambda: self._installer.remove(tenant, name), {"name": name})

    async def workflow(self, tenant: Tenant, name: str) -> tuple[bytes, Workflow]:
        """Return the document and the workflow that a run of a package starts with."""
        return await self._installer.workflow(tenant, name)

    async def begin(self, tenant: Tenant, session_id: SessionId, document: bytes) -> None:
        """Write the workflow document into the session's @state."""
        given, here = {"session_id": str(session_id)}, lambda: self._installer.begin(tenant, session_id, document)
        await self._run(tenant, "begin", here, given, attached=document)

    async def _run(
        self,
        tenant: Tenant,
        operation: str,
        here: Callable[[], Awaitable[None]],
        given: dict[str, Any] | None = None,
        *,
        attached: bytes = b"",
    ) -> None:
        async def there(home: HomeAddress) -> None:
            await self._send(home, tenant, operation, given, attached=attached)

        await self._router.run(tenant.workspace_id, here, there)

    async def _send(
        self,
        home: HomeAddress,
        tenant: Tenant,
        operation: str,
        given: dict[str, Any] | None = None,
        *,
        attached: bytes = b"",
    ) -> Any:
        head = to_bytes({"tenant": tenant_to_json(tenant), **(given or {})})
        try:
            return await self._router.send(home, f"packages/{operation}", b"\n".join((head, attached)))
        except AnswerLost as lost:
            raise Interrupted(
                "The node with the files of this workspace stopped answering. It is unknown whether the package was "
                "changed: list the packages, then decide whether to repeat it."
            ) from lost


class ForwardingMcpServers:
    """Lists the tools of a workspace's MCP servers at its home: a program sees the workspace's files."""

    def __init__(self, toolsets: McpToolsets, router: HomeRouter) -> None:
        self._toolsets = toolsets
        self._router = router

    async def refresh(self, tenant: Tenant, server_id: McpServerId) -> McpServer:
        """Connect to a server and store its tools. Owners only."""

        async def there(home: HomeAddress) -> McpServer:
            body = to_bytes({"tenant": tenant_to_json(tenant), "server_id": str(server_id)})
            try:
                await self._router.send(home, "mcp/refresh", body)
            except AnswerLost as lost:
                raise NotSent(lost.message) from lost
            return await self._toolsets.rows.get(tenant, server_id)

        return await self._router.run(tenant.workspace_id, lambda: self._toolsets.refresh(tenant, server_id), there)


def _body(call: ToolCall, caller: Caller, **how: bool) -> bytes:
    return to_bytes({"caller": caller_to_json(caller), "tool": call.name, "arguments": call.arguments, **how})
