"""Responses of the API, as far as the client uses them. Fields that a newer server adds are ignored."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class ResponseData(BaseModel):
    """Base of all responses."""

    # Each schema is built at its first use: a command uses few of them.
    model_config = ConfigDict(frozen=True, from_attributes=True, defer_build=True)


class WorkspaceData(ResponseData):
    """A workspace."""

    id: UUID
    name: str
    max_trust: str | None = None


class GrantRuleData(ResponseData):
    """What a grant covers."""

    tool: str
    paths: list[str] | None = None
    commands: list[str] | None = None


class ApprovalData(ResponseData):
    """A call that waits or waited for a decision."""

    id: UUID
    call_id: UUID
    session_id: UUID | None
    agent_name: str | None
    tool: str
    shown: Any
    arguments_sha256: str
    changes: list[dict[str, Any]]
    effects: dict[str, Any]
    rule: str
    reason: str
    isolation: str | None
    offered: GrantRuleData
    state: str
    scope: str | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None
    replaces: UUID | None
    created_at: datetime
    expires_at: datetime

    @property
    def is_for_once(self) -> bool:
        """Whether it can only be approved once, because it writes a protected path."""
        return self.rule == "protected-name"

    @property
    def diff(self) -> str:
        """The diffs of all changes."""
        return "\n".join(change["diff"] for change in self.changes if change.get("diff"))


class QuestionData(ResponseData):
    """One to four questions of a call."""

    id: UUID
    call_id: UUID
    questions: list[dict[str, Any]]
    state: str
    answers: dict[str, Any] | None
    created_at: datetime
    expires_at: datetime


class StoredCallData(ResponseData):
    """A stored call."""

    id: UUID
    tool: str
    state: str
    result: Any
    error: Any


class SessionData(ResponseData):
    """A session."""

    id: UUID
    title: str | None
    agent_id: UUID | None
    mode: str
    trust: str | None
    phase: str | None = None
    created_at: datetime
    last_seq: int


class RunData(ResponseData):
    """The run that answers a message, and its state."""

    id: UUID
    session_id: UUID
    state: str
    end_reason: str | None
    error: dict[str, Any] | None
    turns: int
    created_at: datetime


class MessageData(ResponseData):
    """A message of a session."""

    position: int
    run_id: UUID | None
    role: str
    content: str
    metadata: dict[str, Any] | None


class AgentData(ResponseData):
    """An agent: its definition as written, and the rules parsed from it."""

    id: UUID
    name: str
    definition: str
    rules: dict[str, Any]
    max_trust: str | None = None


class McpToolData(ResponseData):
    """A tool as an MCP server describes it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    sha256: str


class McpServerData(ResponseData):
    """An MCP server of a workspace: the tools that it offered last, and those that an owner approved."""

    id: UUID
    name: str
    command: list[str]
    url: str | None
    enabled: bool
    safe_tools: list[str]
    approved_tools: list[McpToolData]
    offered_tools: list[McpToolData] | None
    offered_sha256: str | None
    changed_tools: list[str]
    needs_approval: bool
    last_error: str | None


class PackageData(ResponseData):
    """An agent package that is installed in a workspace."""

    name: str
    version: str
    sha256: str
    files: int
    bytes: int
    agents: list[str]
    has_workflow: bool


class ProviderCredentialsData(ResponseData):
    """Stored credentials for a model provider or a search engine, without the secret."""

    provider: str
    kind: str = "models"
    base_url: str | None
    updated_at: datetime


class ModelData(ResponseData):
    """A model of a provider."""

    id: str
    name: str
    context_window: int | None
    supports_tools: bool


class ApiKeyData(ResponseData):
    """An API key without its secret."""

    id: UUID
    name: str
    hint: str
    agent_id: UUID | None
    created_at: datetime
    expires_at: datetime | None


class UserData(ResponseData):
    """A user account."""

    id: UUID
    email: str
    full_name: str | None


class AuditRecordData(ResponseData):
    """An audit record."""

    position: int
    created_at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str
    tool: str
    decision: str
    rule: str
    decided_by: UUID | None
    arguments: dict[str, Any]
    outcome: str
    error_code: str | None
    files: list[dict[str, Any]]
    hosts: list[dict[str, Any]]
    isolation: str | None


class AuditVerificationData(ResponseData):
    """The result of verifying a part of the seals: those up to ``verified_to``, of ``last_seal``."""

    problems: list[str]
    first: int
    first_mac: str
    verified_to: int
    last_seal: int
    sealed_records: int
    unsealed_records: int


class StreamMessage(ResponseData):
    """A message of a session stream: an event with its number, or a delta."""

    type: str
    payload: dict[str, Any]
    seq: int | None = None
