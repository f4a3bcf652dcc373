"""Executes what other nodes forward to this one, which has the files. The gate checks membership and policy here."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import structlog

from toolcrib.core.errors import HomeUnavailable, NotFound, ToolcribError
from toolcrib.core.ids import McpServerId, SessionId
from toolcrib.core.tool_calls import ToolCall
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.server_failures import UNKNOWN_EFFECT, server_failure
from toolcrib.mcp.mcp_toolsets import McpToolsets
from toolcrib.nodes.call_wire import (
    caller_from_json,
    error_to_json,
    explanation_to_json,
    from_bytes,
    outcome_to_json,
    package_to_json,
    tenant_from_json,
    to_bytes,
)
from toolcrib.nodes.internal_channel import Answer, Emit, FrameKind, off_loop
from toolcrib.runtime.drain import Drain
from toolcrib.storage.database import OperationalError, is_transient
from toolcrib.workspace.packages.installer import PackageInstaller

log = structlog.get_logger(__name__)

Operation = Callable[[bytes, Emit], Awaitable[Any]]


class ForwardedCalls:
    """Answers the operations of the internal listener, and no others."""

    def __init__(
        self,
        gate: Gate,
        packages: PackageInstaller,
        mcp_servers: McpToolsets,
        drain: Drain,
        *,
        node: str,
        is_alive: Callable[[], bool],
    ) -> None:
        self._gate = gate
        self._drain = drain
        self._mcp_servers = mcp_servers
        self._packages = packages
        self._node = node
        self._is_alive = is_alive
        self._operations: Mapping[str, Operation] = {
            "ping": self._ping,
            "execute": self._execute,
            "explain": self._explain,
            "packages/require_installer": self._require_installer,
            "packages/install": self._install,
            "packages/remove": self._remove,
            "packages/begin": self._begin,
            "mcp/refresh": self._refresh,
        }

    async def handle(self, operation: str, body: bytes, emit: Emit) -> Answer:
        """Run an operation. Every error is an answer, so that the other node raises it again."""
        try:
            run = self._operations.get(operation)
            if run is None:
                raise NotFound(f"There is no operation {operation!r}.")
            if self._drain.has_begun:
                # It would be cancelled in the middle.
                raise HomeUnavailable("The node with the files of this workspace is stopping. Try again.")
            if not self._is_alive():
                # It would wait for the database, and the workspace may be elsewhere.
                raise HomeUnavailable("The node with the files of this workspace has lost its database. Try again.")
            return FrameKind.RESULT, to_bytes(await run(body, emit))
        except ToolcribError as error:
            return FrameKind.ERROR, to_bytes(error_to_json(error))
        except OperationalError as error:
            if not is_transient(error):
                return FrameKind.ERROR, to_bytes(error_to_json(_internal_error(error, operation)))
            log.warning("database.unavailable", error=str(error))
            unavailable = HomeUnavailable("The database is temporarily unavailable. Try again.")
            return FrameKind.ERROR, to_bytes(error_to_json(unavailable))
        except Exception as error:
            if failure := server_failure(error, UNKNOWN_EFFECT):
                log.error("forwarded_calls.server_failed", operation=operation, exc_info=error)
                return FrameKind.ERROR, to_bytes(error_to_json(failure))
            return FrameKind.ERROR, to_bytes(error_to_json(_internal_error(error, operation)))

    async def _ping(self, _: bytes, __: Emit) -> dict[str, str]:
        return {"node": self._node}

    async def _execute(self, body: bytes, emit: Emit) -> dict[str, Any]:
        given = await off_loop(len(body), partial(from_bytes, body))
        call, caller = ToolCall(given["tool"], given["arguments"]), caller_from_json(given["caller"])
        return outcome_to_json(await self._gate.execute(call, caller, emit=emit if given["streams"] else None))

    async def _explain(self, body: bytes, _: Emit) -> dict[str, Any]:
        given = from_bytes(body)
        call = ToolCall(given["tool"], given["arguments"])
        return explanation_to_json(
            await self._gate.explain(call, caller_from_json(given["caller"]), is_new=given.get("is_new", False))
        )

    async def _require_installer(self, body: bytes, _: Emit) -> None:
        given, _attached = _split(body)
        await self._packages.require_installer(tenant_from_json(given["tenant"]))

    async def _install(self, body: bytes, _: Emit) -> dict[str, Any]:
        given, archive = _split(body)
        return package_to_json(await self._packages.install(tenant_from_json(given["tenant"]), archive))

    async def _remove(self, body: bytes, _: Emit) -> None:
        given, _attached = _split(body)
        await self._packages.remove(tenant_from_json(given["tenant"]), given["name"])

    async def _begin(self, body: bytes, _: Emit) -> None:
        given, document = _split(body)
        await self._packages.begin(tenant_from_json(given["tenant"]), SessionId(UUID(given["session_id"])), document)

    async def _refresh(self, body: bytes, _: Emit) -> None:
        given = from_bytes(body)
        await self._mcp_servers.refresh(tenant_from_json(given["tenant"]), McpServerId(UUID(given["server_id"])))


def _split(body: bytes) -> tuple[Any, bytes]:
    """Return the arguments of an operation, and the bytes attached to it."""
    head, _, attached = body.partition(b"\n")
    return from_bytes(head), attached


def _internal_error(error: Exception, operation: str) -> ToolcribError:
    error_id = uuid4().hex
    log.error("internal_error", error_id=error_id, where=f"forwarded {operation}", exc_info=error)
    return ToolcribError(f"Internal server error. The server log has the details under id {error_id}.")
