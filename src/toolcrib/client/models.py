"""What the API answers, as far as the client looks at it. What a newer server adds is let pass."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class ResponseData(BaseModel):
    # Each is built when it is first used: a command uses few of them.
    model_config = ConfigDict(frozen=True, from_attributes=True, defer_build=True)


class WorkspaceData(ResponseData):
    id: UUID
    name: str
    max_trust: str | None = None


class GrantRuleData(ResponseData):
    tool: str
    paths: list[str] | None = None
    commands: list[str] | None = None


class ApprovalData(ResponseData):
    """A call that waits, or waited, for a person."""

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
        """Whether no rule may allow its like: it writes a name that is closed to agents."""
        return self.rule == "protected-name"

    @property
    def diff(self) -> str:
        """What would change, line by line."""
        return "\n".join(change["diff"] for change in self.changes if change.get("diff"))


class QuestionData(ResponseData):
    """One to four things that a call asks."""

    id: UUID
    call_id: UUID
    questions: list[dict[str, Any]]
    state: str
    answers: dict[str, Any] | None
    created_at: datetime
    expires_at: datetime


class StoredCallData(ResponseData):
    id: UUID
    tool: str
    state: str
    result: Any
    error: Any


class SessionData(ResponseData):
    id: UUID
    title: str | None
    agent_id: UUID | None
    mode: str
    trust: str | None
    phase: str | None = None
    created_at: datetime
    last_seq: int


class RunData(ResponseData):
    """One answer to one message, and how far it is."""

    id: UUID
    session_id: UUID
    state: str
    ending: str | None
    error: dict[str, Any] | None
    turns: int
    created_at: datetime


class MessageData(ResponseData):
    position: int
    run_id: UUID | None
    role: str
    content: str
    metadata: dict[str, Any] | None


class AgentData(ResponseData):
    """An agent: its definition as its owner wrote it, and what that says."""

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
    """An MCP server of a workspace: what it offered last, and what an owner has accepted of it."""

    id: UUID
    name: str
    command: list[str]
    url: str | None
    enabled: bool
    safe_tools: list[str]
    approved: list[McpToolData]
    seen: list[McpToolData] | None
    seen_sha256: str | None
    changed: list[str]
    awaits_approval: bool
    problem: str | None


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
    """Stored access to a model provider or a search engine; the secret is not shown."""

    provider: str
    kind: str = "models"
    base_url: str | None
    updated_at: datetime


class ModelData(ResponseData):
    id: str
    name: str
    context_window: int | None
    supports_tools: bool


class ApiKeyData(ResponseData):
    id: UUID
    name: str
    hint: str
    agent_id: UUID | None
    created_at: datetime
    expires_at: datetime | None


class UserData(ResponseData):
    id: UUID
    email: str
    full_name: str | None


class AuditRecordData(ResponseData):
    """A line of the book."""

    position: int
    at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str
    tool: str
    decision: str
    rule: str
    approver_id: UUID | None
    input: dict[str, Any]
    outcome: str
    error_code: str | None
    files: list[dict[str, Any]]
    isolation: str | None


class AuditVerificationData(ResponseData):
    """What was found in a part of the book's seals: those up to ``last``, of ``newest``."""

    problems: list[str]
    first: int
    first_mac: str
    last: int
    newest: int
    sealed: int
    unsealed: int


class StreamMessage(ResponseData):
    """What a watcher is told: an event, with its number, or a delta."""

    type: str
    payload: dict[str, Any]
    seq: int | None = None
