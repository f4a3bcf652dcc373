"""MCP servers that a workspace's owners have added, and their tools. Data only."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from toolcrib.core.ids import McpServerId, UserId, WorkspaceId


class McpTransport(StrEnum):
    """``stdio``: a program that runs in the sandbox. ``http``: a URL."""

    STDIO = "stdio"
    HTTP = "http"


class McpWorkspaceAccess(StrEnum):
    """What a program sees of the workspace.

    ``none``: nothing; the program runs on between calls. With the others, each call starts it anew on the workspace as
    it is then. ``read-only``: it can only read. ``transaction``: what a call changes is a change set.
    """

    NONE = "none"
    READ_ONLY = "read-only"
    TRANSACTION = "transaction"


_WORKSPACE_ACCESS: Final[Mapping[McpWorkspaceAccess, tuple[str, ...]]] = {
    McpWorkspaceAccess.NONE: (),
    McpWorkspaceAccess.READ_ONLY: ("workspace:read",),
    McpWorkspaceAccess.TRANSACTION: ("workspace:read", "workspace:write"),
}
# Begins the entry of ``McpServer.access`` that says which server it is. It is compared, but not shown.
_IDENTITY: Final = "server:"


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as its server describes it.

    Attributes:
        sha256: Covers everything that a model would see, and ``read_only``.
        read_only: The server says that the tool changes nothing (``readOnlyHint``).
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    sha256: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server.

    Attributes:
        hosts: What a program may contact; it has no other network.
        secret_names: The names of its secrets.
        safe: Tools that the owner marked as safe. All others count as dangerous.
        approved: The tools that an owner reviewed and approved.
        seen: The tools that the server offered last.
        secrets: Request headers, or environment variables of the program. Excluded from every representation.
    """

    workspace_id: WorkspaceId
    id: McpServerId
    name: str
    transport: McpTransport
    command: tuple[str, ...]
    url: str | None
    hosts: tuple[str, ...]
    workspace_access: McpWorkspaceAccess
    secret_names: tuple[str, ...]
    safe_tools: tuple[str, ...]
    enabled: bool
    approved_tools: tuple[McpTool, ...]
    approved_by: UserId | None
    approved_at: datetime | None
    offered_tools: tuple[McpTool, ...] | None
    offered_at: datetime | None
    last_error: str | None
    revision: int
    created_by: UserId
    created_at: datetime
    updated_at: datetime
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def toolset(self) -> str:
        return f"mcp:{self.name}"

    @property
    def access(self) -> tuple[str, ...]:
        """What its owner gave it besides hosts, as it is named in approvals and grants.

        The first entry is a hash of its command or URL: what was approved for a server does not cover another one that
        is added later under the same name.
        """
        identity = sha256(json.dumps([self.command, self.url]).encode()).hexdigest()[:32]
        secrets = (f"secret:{name}" for name in self.secret_names)
        return (f"{_IDENTITY}{identity}", *secrets, *_WORKSPACE_ACCESS[self.workspace_access])

    def connects_like(self, other: "McpServer") -> bool:
        """Whether a connection to this server can serve the other, which may be newer."""
        setup = (self.command, self.url, self.hosts, self.workspace_access, dict(self.secrets))
        return setup == (other.command, other.url, other.hosts, other.workspace_access, dict(other.secrets))

    @property
    def offered_sha256(self) -> str | None:
        """One hash for the whole list of offered tools, which an owner approves."""
        if self.offered_tools is None:
            return None
        return sha256("\n".join(sorted(tool.sha256 for tool in self.offered_tools)).encode()).hexdigest()

    @property
    def changed_tools(self) -> frozenset[str]:
        """The approved tools that the server no longer offers as they were approved."""
        if self.offered_tools is None:
            return frozenset()
        now = {tool.name: tool.sha256 for tool in self.offered_tools}
        return frozenset(tool.name for tool in self.approved_tools if now.get(tool.name) != tool.sha256)

    @property
    def needs_approval(self) -> bool:
        """Whether an owner should review the tools again."""
        if self.offered_tools is None:
            return False
        return {tool.sha256 for tool in self.offered_tools} != {tool.sha256 for tool in self.approved_tools}


def shown_access(access: Iterable[str]) -> list[str]:
    """Return the entries of ``McpServer.access`` that people read: without the hash that says which server it is."""
    return [one for one in access if not one.startswith(_IDENTITY)]
