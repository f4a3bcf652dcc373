"""MCP servers on the wire."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from toolcrib.core.mcp_servers import McpTransport, McpWorkspaceAccess
from toolcrib.schemas.schema_base import InModel, OutModel

ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"), Field(examples=["everything"])]
Word = Annotated[str, StringConstraints(min_length=1, max_length=4_000, pattern=r"^[^\x00]+$")]
ToolName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
# Valid names of request headers and environment variables.
SecretName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
SecretValue = Annotated[str, StringConstraints(max_length=4_000, pattern=r"^[\x20-\x7e]*$")]
HostName = Annotated[str, StringConstraints(max_length=300)]
HOSTS = "Hosts that the program may contact, such as `api.example.com`, `*.example.org` or `example.org:8080`."
# Headers that say where a request goes and where it ends.
_NOT_TO_SET = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})


class McpServerCreate(InModel):
    """A program (`command`) that runs in the sandbox, or a `url`."""

    name: ServerName
    command: list[Word] | None = Field(default=None, min_length=1, max_length=50, examples=[["node", "server.js"]])
    url: Annotated[str, StringConstraints(max_length=2_000)] | None = None
    secrets: dict[SecretName, SecretValue] = Field(
        default={},
        max_length=20,
        description="Request headers for a `url`, environment variables for a `command`. They are not shown again.",
    )
    hosts: list[HostName] = Field(
        default=[],
        max_length=50,
        description=f"{HOSTS} Without any, it has no network.",
        examples=[["api.example.com"]],
    )
    workspace_access: McpWorkspaceAccess = Field(
        default=McpWorkspaceAccess.NONE,
        description="What the program sees of the workspace. With `transaction`, what a call changes is a change set.",
    )
    safe_tools: list[ToolName] = Field(
        default=[], max_length=200, description="Tools that are safe. They need no approval at trust level `guided`."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("Give either a command or a url.")
        if self.url is not None and (flaw := url_flaw(self.secrets, self.hosts, self.workspace_access)):
            raise ValueError(flaw)
        return self


def url_flaw(secrets: Iterable[str] | None, hosts: list[str] | None, access: McpWorkspaceAccess | None) -> str | None:
    """Return why a server with a URL cannot have these secrets, hosts or this workspace, or ``None``."""
    if ours := sorted(name for name in secrets or () if name.lower() in _NOT_TO_SET):
        return f"These headers cannot be set: {', '.join(ours)}."
    if hosts or access not in (None, McpWorkspaceAccess.NONE):
        return "Only a program has hosts and a workspace."
    return None


class McpServerUpdate(InModel):
    enabled: bool | None = None
    safe_tools: list[ToolName] | None = Field(default=None, max_length=200)
    secrets: dict[SecretName, SecretValue | None] | None = Field(
        default=None, max_length=20, description="Secrets to set, or to remove with `null`. The others stay."
    )
    hosts: list[HostName] | None = Field(default=None, max_length=50, description=HOSTS)
    workspace_access: McpWorkspaceAccess | None = None


class McpApprovalIn(InModel):
    """The hash of the tool list to approve."""

    sha256: str = Field(max_length=64, description="`seen_sha256` of the tool list that you reviewed.")


class McpToolOut(OutModel):
    name: str
    description: str
    input_schema: dict[str, Any]
    sha256: str
    read_only: bool = Field(
        description="The server says that the tool changes nothing. It needs no approval at trust level `review`."
    )


class McpServerOut(OutModel):
    """An MCP server. Its tools are usable once their list is approved; a changed list needs a new approval."""

    id: UUID
    name: str
    toolset: str = Field(examples=["mcp:everything"])
    transport: McpTransport
    command: list[str]
    url: str | None
    hosts: list[str] = Field(description="Hosts that the program may contact.")
    workspace_access: McpWorkspaceAccess
    secret_names: list[str] = Field(description="The names of its secrets. Their values are never shown.")
    enabled: bool
    safe_tools: list[str]
    approved_tools: list[McpToolOut]
    approved_by: UUID | None
    approved_at: datetime | None
    offered_tools: list[McpToolOut] | None = Field(description="The tools that the server offered at the last refresh.")
    offered_sha256: str | None
    offered_at: datetime | None
    changed_tools: Annotated[list[str], BeforeValidator(sorted)] = Field(
        description="Approved tools that are disabled because they changed."
    )
    needs_approval: bool
    last_error: str | None
    created_by: UUID
    created_at: datetime
    updated_at: datetime
