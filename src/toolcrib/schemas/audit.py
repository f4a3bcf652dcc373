"""Audit records, their verification and checkpoints on the wire."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from toolcrib.core.change_sets import ChangeKind
from toolcrib.schemas.schema_base import Hex, OutModel

# The effects and the end of a background process have their own records, besides the call that started it.
Ended = Literal["done", "failed", "denied", "changed", "ended"]
Kind = Literal["call", "admin"]


class AuditFileOut(OutModel):
    """A file that a call changed. The hashes are null where there was no content, or none is kept."""

    path: str
    change: ChangeKind
    before: str | None
    after: str | None
    proposed: str | None = Field(
        default=None, description="The hash of what the agent proposed, if the person who approved the call edited it."
    )


class FileDisplaced(OutModel):
    """A file that a background process created at a protected path; it was moved away."""

    path: str
    displaced: Literal[True]


class AuditHostOut(OutModel):
    """A host that a command contacted or tried to contact."""

    host: str = Field(examples=["example.org:443"])
    denied_reason: str | None = Field(
        description="Why the host was not contacted; null if it was.", examples=["not granted"]
    )
    made: Literal["during", "before"] | None = Field(
        default=None,
        description="Of an MCP program that several calls share: `during` means while this call and others of it ran, "
        "`before` after its last call and before this one. Null: by this call.",
    )


class AuditRecordOut(OutModel):
    """One call: who, what, the deciding rule, and the outcome. Or one change of permissions."""

    position: int
    id: UUID
    kind: Kind = Field(
        description="`admin` is a change to members, agents, grants, keys, trust, MCP servers or the workspace. Its "
        "`tool` names the change, such as `member.created`. Its `arguments` have `subject`, `before` and "
        "`after`, without secrets."
    )
    created_at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str = Field(examples=["rest"])
    tool: str = Field(examples=["write"])
    decision: Literal["allow", "ask", "deny", "none"]
    rule: str
    decided_by: UUID | None
    arguments: dict[str, Any] = Field(description="The arguments. File contents appear only as size and SHA-256.")
    outcome: Ended
    error_code: str | None
    files: list[AuditFileOut | FileDisplaced] = Field(
        description="The changed files with their hashes before and after, and the hosts that a command contacted."
    )
    hosts: list[AuditHostOut]
    isolation: str | None
    duration_us: int


class AuditVerificationOut(OutModel):
    """The result for a part of the chain of seals. All workspaces of the server share one chain."""

    whole: bool = Field(description="True if no problems were found in this part.")
    problems: list[str]
    first: int = Field(description="The seal before this part; 0 is the start of the chain.")
    first_mac: Hex = Field(description="The MAC of that seal. Compare it with a checkpoint.")
    verified_to: int = Field(description="The last checked seal. Pass it as `after` to check the next part.")
    last_seal: int = Field(description="The newest seal. The whole chain is checked when `verified_to` reaches it.")
    sealed_records: int = Field(description="Number of checked records in this part, from all workspaces.")
    unsealed_records: int = Field(
        description="Number of records of this workspace after `verified_to`, up to 20,000. They are not checked yet."
    )


class AuditCheckpointOut(OutModel):
    """The end of the audit chain, signed by Ed25519 over the other fields as JSON with sorted keys and no spaces.

    A chain that does not contain this seal later was truncated, rolled back or sealed anew.
    """

    kind: Literal["toolcrib-audit-checkpoint"]
    version: Literal[1]
    number: int
    mac: str
    top: int
    at: str
    public_key: str
    signature: str
