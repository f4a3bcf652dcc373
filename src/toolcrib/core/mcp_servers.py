"""MCP servers that a workspace's owners have added, and the tools that those offer. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from toolcrib.core.ids import McpServerId, UserId, WorkspaceId


class McpTransport(StrEnum):
    """``stdio``: a program that runs in the sandbox. ``http``: an address."""

    STDIO = "stdio"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as its server describes it. ``sha256`` is of all that a model would be told."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    sha256: str


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server. ``approved`` is what an owner has looked at and allowed, ``seen`` what it offered last.

    ``safe`` names the tools that the owner calls so; every other one counts as dangerous. ``secrets`` are headers of
    requests, or variables of the program's environment; they appear in no representation.
    """

    workspace_id: WorkspaceId
    id: McpServerId
    name: str
    transport: McpTransport
    command: tuple[str, ...]
    url: str | None
    safe: tuple[str, ...]
    enabled: bool
    approved: tuple[McpTool, ...]
    approved_by: UserId | None
    approved_at: datetime | None
    seen: tuple[McpTool, ...] | None
    seen_at: datetime | None
    problem: str | None
    revision: int
    created_by: UserId
    created_at: datetime
    updated_at: datetime
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def toolset(self) -> str:
        return f"mcp:{self.name}"

    @property
    def changed(self) -> frozenset[str]:
        """The approved tools that are not offered any more as they were when they were approved."""
        if self.seen is None:
            return frozenset()
        now = {tool.name: tool.sha256 for tool in self.seen}
        return frozenset(tool.name for tool in self.approved if now.get(tool.name) != tool.sha256)

    @property
    def awaits_approval(self) -> bool:
        """Whether an owner should look at the list again."""
        if self.seen is None:
            return False
        return {tool.sha256 for tool in self.seen} != {tool.sha256 for tool in self.approved}
