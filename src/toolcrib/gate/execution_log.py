"""The execution log: one line per call in a file that agents can read. It does not replace the audit log.

Agents read it as ``@state/logs/execution.jsonl``; no tool writes there. It contains no file contents: a text appears as
its size and hash, except under a few names that carry no content. It has no history, is not synced to disk, and is
rotated when it is long. The audit log has everything that must not be lost.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import structlog

from toolcrib.core.audit import redact_content
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Forbidden, ToolcribError, Unauthenticated, error_text
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.core.tool_calls import Outcome
from toolcrib.policy.truncation import truncate
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore
from toolcrib.tools.tool import Tool
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


@dataclass(slots=True)
class ExecutionLogLine:
    """The log line of a call that is running."""

    tool: str
    arguments: Mapping[str, Any]
    caller: Caller
    outcome: Outcome | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.perf_counter)

    def text(self, error: ToolcribError | None) -> bytes:
        """Serialize the line."""
        event = {
            "ts": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": "tool.exec",
            "toolCallId": str(self.caller.call_id),
            "toolName": self.tool[:_NAME],
            "agentId": str(self.caller.agent_id) if self.caller.agent_id else None,
            "input": truncate(redact_content(self.arguments), limit_bytes=_PART_BYTES).value,
            "output": truncate(self._output(error), limit_bytes=_PART_BYTES).value,
            "durationMs": round((time.perf_counter() - self.started) * 1000),
        }
        return f"{json_text(event)}\n".encode()

    def _output(self, error: ToolcribError | None) -> Any:
        if self.outcome is not None and self.outcome.result is not None:
            return redact_result(self.outcome.result)
        if error is None:
            return None
        return {"error": {"code": error.code, "message": error_text(error)}}


class ExecutionLog:
    """Writes log lines. A call never fails because its line could not be written."""

    def __init__(self, files: FileStore, mounts: MountTable, *, most_bytes: int = _MOST_BYTES) -> None:
        self._files = files
        self._mounts = mounts
        self._most_bytes = most_bytes
        self._turning = threading.Lock()

    def is_enabled(self, caller: Caller, tool: Tool | None) -> bool:
        """Return whether the call is logged: agents' calls, and people's calls in the toolset that exposes this log."""
        return caller.is_agent or (tool is not None and tool.toolset == "mounts")

    @asynccontextmanager
    async def line(self, tool: str, arguments: Mapping[str, Any], caller: Caller) -> AsyncIterator[ExecutionLogLine]:
        """Yield a line that is written when the call ends, whatever its outcome."""
        line = ExecutionLogLine(tool, arguments, caller)
        try:
            yield line
        except ToolcribError as error:
            await self._write(line, error)
            raise
        except Exception:
            await self._write(line, ToolcribError("Internal server error."))
            raise
        if line.outcome is None or not line.outcome.is_waiting:
            await self._write(line, line.outcome.error if line.outcome else None)

    async def _write(self, line: ExecutionLogLine, error: ToolcribError | None) -> None:
        try:
            # A failed call may come from someone who is not a member; it must not leave a line here.
            if error is not None:
                async with asyncio.timeout(_PATIENCE):
                    await self._files.lookup(Tenant.of(line.caller), [mount_root(Mount.PROJECT)])
            await in_thread(self._append, line.caller, line.text(error))
        except (Forbidden, Unauthenticated):
            return
        except Exception as failure:  # noqa: BLE001 - the call itself has ended already
            log.warning("execution_log.write_failed", call_id=str(line.caller.call_id), error=str(failure))

    def _append(self, caller: Caller, text: bytes) -> None:
        path = WorkspacePath(Mount.STATE, _PATH, caller.state_scope)
        disk = self._mounts.disk(caller.workspace_id, None, path)
        if disk.append(path, text) < self._most_bytes:
            return
        with self._turning:
            # Another thread may have rotated the log while we waited.
            node = disk.stat(path)
            if node is not None and node.fingerprint.size >= self._most_bytes:
                older = WorkspacePath(Mount.STATE, _OLDER, caller.state_scope)
                disk.remove(older)
                disk.rename(path, older)


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
