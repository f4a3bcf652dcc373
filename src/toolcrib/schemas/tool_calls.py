"""Tool calls on the wire: requests, results, and stored calls."""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field

from toolcrib.core.agents import PhaseName
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import AgentId, SessionId
from toolcrib.core.paused_calls import GrantScope, PauseState
from toolcrib.schemas.agents import Definition
from toolcrib.schemas.schema_base import ErrorInfo, InModel, OutModel

ResultT = TypeVar("ResultT")

CallState = Literal["running", "paused", "done", "denied", "unknown"]


class ToolCallIn(InModel):
    """A tool and its arguments."""

    tool: str = Field(max_length=200, examples=["read"])
    args: dict[str, Any] = Field(examples=[{"path": "/documents/report.md"}])
    session_id: UUID | None = Field(
        default=None,
        description="The session of the call. If it has an agent, the agent calls for you, by its rules.",
    )
    as_person: bool = Field(
        default=False,
        description="Call as yourself also in the session of an agent. Only for people; an agent's key gets 403.",
    )


class TruncationOut(BaseModel):
    """The result was shortened for a model; fetch the full one by the call's id."""

    total_bytes: int = Field(description="Size of the full result.")
    call_id: UUID
    offset: int = Field(description="The text is complete up to this character. Continue from here with `read_result`.")


class ToolCallOut(BaseModel, Generic[ResultT]):
    """A successful call.

    ``truncated`` is present if the result was shortened for a model; it may then not match its schema.
    """

    success: Literal[True] = True
    result: ResultT
    error: None = None
    truncated: TruncationOut | None = None


class AnyToolCallOut(ToolCallOut[Any]):
    """A successful call. The type of ``result`` depends on the tool: `ToolResults` lists them by tool name."""


class PausedCallRef(BaseModel):
    """A call that waits for a person."""

    status: Literal["approval_pending"]
    pause_id: UUID
    call_id: UUID
    reason: str
    expires_at: datetime


class PausedCallAccepted(BaseModel):
    """An accepted call that will be executed if a person approves it."""

    success: Literal[True] = True
    result: PausedCallRef
    error: None = None


class ExplainIn(InModel):
    """A hypothetical call: by you, by one of the workspace's agents, or by the agent of a session."""

    tool: str = Field(max_length=200, examples=["write"])
    args: dict[str, Any] = Field(examples=[{"path": "/notes/x.md", "content": "x"}])
    agent_id: AgentId | None = None
    definition: Definition | None = Field(
        default=None, description="Use these rules, which are not stored, instead of the agent's. Not with a session."
    )
    session_id: SessionId | None = Field(
        default=None, description="Use the agent, phase, mode, trust and grants of this session."
    )
    phase: PhaseName | None = Field(
        default=None, description="One of the agent's phases. By default, the session's phase or the agent's first one."
    )


class DeniedFileOut(OutModel):
    """A file of a batch that would be denied, although others would be allowed."""

    path: str
    rule: str
    reason: str


class ExplanationOut(OutModel):
    """What the gate would do with a call, and every rule that it would check."""

    tool: str
    agent: str | None
    action: Literal["allow", "ask", "deny"]
    rule: str = Field(description="The rule that decides, as the audit log names it.")
    reason: str
    asks_about: Literal["call", "effect"] | None = Field(
        description="If a person is asked: about the `call` before it runs, or about its `effect`, if it has one."
    )
    required_role: WorkspaceRole
    rules_checked: list[str]
    denied_files: list[DeniedFileOut]


class StoredCallOut(OutModel):
    """A stored call with its full result."""

    id: UUID
    tool: str
    arguments: dict[str, Any] = Field(description="The arguments. File contents appear only as size and SHA-256.")
    state: CallState
    result: Any = Field(description="See `ToolResults` for the schema of each tool's result.")
    error: ErrorInfo | None
    change_set_id: UUID | None
    started_at: datetime
    ended_at: datetime | None


class CallDecisionOut(OutModel):
    """What a person was asked about a call, and the decision."""

    pause_id: UUID
    state: PauseState
    grant_scope: GrantScope | None
    rule: str = Field(description="The rule that required approval.")
    reason: str
    decided_by: UUID | None
    decided_by_name: str | None
    decided_at: datetime | None
    rejection_reason: str | None


class CallSummaryOut(OutModel):
    """A call of a session, without its result; fetch that by the call's id."""

    id: UUID
    run_id: UUID | None = Field(description="Null if the call is not part of a run.")
    user_id: UUID
    agent_id: UUID | None
    tool: str = Field(examples=["write"])
    arguments: dict[str, Any] = Field(description="The arguments. File contents appear only as size and SHA-256.")
    state: CallState
    error: ErrorInfo | None
    files: int = Field(description="Number of changed files, up to 1,000.")
    started_at: datetime
    ended_at: datetime | None
    decision: CallDecisionOut | None
    undone_by: UUID | None = Field(
        description="The undo of this call, if it is still in effect. Undo it to redo the call."
    )
