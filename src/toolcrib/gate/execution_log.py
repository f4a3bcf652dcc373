"""The execution log: one line per call in a file that agents can read. It does not replace the audit log.

Agents read it as ``@state/logs/execution.jsonl``; no tool writes there. It contains no file contents: a text appears as
its size and hash, except under a few names that carry no content. It has no history, is not synced to disk, and is
rotated when it is long. The audit log has everything that must not be lost.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

import structlog

from toolcrib.core.audit import redact_content
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Forbidden, ToolcribError, Unauthenticated, error_text
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.core.tool_calls import Outcome
from toolcrib.gate.call_stages import CallRequest
from toolcrib.gate.server_failures import UNKNOWN_EFFECT, server_failure
from toolcrib.policy.truncation import truncate
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore
from toolcrib.workspace.fs.mounts import MountTable

_PATH, _OLDER = "/logs/execution.jsonl", "/logs/execution.1.jsonl"
# A log of this size is rotated; the one before is removed.
_MOST_BYTES = 10_000_000
# How much of a call's input and output one line holds.
_PART_BYTES = 4_000
_NAME = 200
_LIST = 20
# A slow database must not delay the call any longer.
_PATIENCE = 2.0

# Fields whose text is logged as it is, and fields that may contain such fields. Others are logged by size and hash.
_SHORT_TEXT_FIELDS = frozenset(
    {
        "path", "code", "message", "hint", "violation", "sha256", "sha256Before", "sha256After", "hash", "name", "type",
        "kind", "file_type", "file_id", "version_id", "from_path", "to_path",
    }
)  # fmt: skip
_OPENED = frozenset(
    {"error", "details", "fields", "metadata", "stats", "matches", "entries", "entriesPreview", "files"}
)

log = structlog.get_logger(__name__)


class ExecutionLog:
    """Writes log lines. A call never fails because its line could not be written."""

    def __init__(self, files: FileStore, mounts: MountTable, *, most_bytes: int = _MOST_BYTES) -> None:
        self._files = files
        self._mounts = mounts
        self._most_bytes = most_bytes
        self._rotating = threading.Lock()

    async def around(self, request: CallRequest, execute: Callable[[CallRequest], Awaitable[Outcome]]) -> Outcome:
        """Execute a call and write its line when it ends, whatever its outcome."""
        try:
            outcome = await execute(request)
        except ToolcribError as error:
            await self._write(request, None, error)
            raise
        except Exception as error:
            failure = server_failure(error, UNKNOWN_EFFECT) or ToolcribError("Internal server error.")
            await self._write(request, None, failure)
            raise
        if not outcome.is_waiting:
            await self._write(request, outcome.result, outcome.error)
        return outcome

    async def _write(self, request: CallRequest, result: Any, error: ToolcribError | None) -> None:
        caller = request.caller
        try:
            # A failed call may come from someone who is not a member; it must not leave a line here.
            if error is not None:
                async with asyncio.timeout(_PATIENCE):
                    await self._files.lookup(Tenant.of(caller), [mount_root(Mount.PROJECT)])
            await in_thread(self._append, caller, _line(request, result, error))
        except (Forbidden, Unauthenticated):
            return
        except Exception as failure:  # noqa: BLE001 - the call itself has ended already
            log.warning("execution_log.write_failed", call_id=str(caller.call_id), error=str(failure))

    def _append(self, caller: Caller, text: bytes) -> None:
        path = WorkspacePath(Mount.STATE, _PATH, caller.state_scope)
        disk = self._mounts.disk(caller.workspace_id, None, path)
        if disk.append(path, text) < self._most_bytes:
            return
        with self._rotating:
            # Another thread may have rotated the log while we waited.
            node = disk.stat(path)
            if node is not None and node.fingerprint.size >= self._most_bytes:
                older = WorkspacePath(Mount.STATE, _OLDER, caller.state_scope)
                disk.remove(older)
                disk.rename(path, older)


def _line(request: CallRequest, result: Any, error: ToolcribError | None) -> bytes:
    caller = request.caller
    if result is not None:
        output = redact_result(result)
    else:
        output = {"error": {"code": error.code, "message": error_text(error)}} if error else None
    event = {
        "ts": request.received_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "kind": "tool.exec",
        "toolCallId": str(caller.call_id),
        "toolName": request.call.name[:_NAME],
        "agentId": str(caller.agent_id) if caller.agent_id else None,
        "input": truncate(redact_content(request.call.arguments), limit_bytes=_PART_BYTES).value,
        "output": truncate(output, limit_bytes=_PART_BYTES).value,
        "durationMs": round((time.perf_counter_ns() - request.received_ns) / 1_000_000),
    }
    return f"{json_text(event)}\n".encode()


def redact_result(value: Any, name: str = "") -> Any:
    """Remove contents from a result: keeps numbers, flags and known fields; the rest becomes size and hash."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and name in _SHORT_TEXT_FIELDS:
        return value
    if isinstance(value, Mapping) and (not name or name in _OPENED):
        return {str(key): redact_result(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple) and name in _OPENED:
        # A list of entries contains names; any other list contains objects.
        items = [_item(item, name) for item in value[:_LIST]]
        return items if len(value) <= _LIST else [*items, f"… and {len(value) - _LIST} more"]
    return _measured(value)


def _item(item: Any, name: str) -> Any:
    if isinstance(item, Mapping):
        return redact_result(item)
    return item if name in ("entries", "entriesPreview") else _measured(item)


def _measured(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json_text(value)
    body = text.encode("utf-8", "surrogatepass")
    return {"bytes": len(body), "sha256": sha256(body).hexdigest()}
