"""Workspaces, their members and invitations on the wire."""

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from pydantic import Field, SecretStr

from toolcrib.core.agents import TrustLevel
from toolcrib.core.budgets import BudgetPeriod, Budgets
from toolcrib.core.callers import WorkspaceRole
from toolcrib.schemas.accounts import Password
from toolcrib.schemas.schema_base import Email, InModel, Name, OutModel


class WorkspaceCreate(InModel):
    name: Name = Field(examples=["website"])


class WorkspaceUpdate(InModel):
    """Fields that are absent stay as they are."""

    name: Name | None = Field(default=None, examples=["website"])
    max_trust: TrustLevel | None = Field(
        default=None, description="The highest trust level of sessions in this workspace; null for no limit."
    )
    default_agent_id: UUID | None = Field(
        default=None, description="The agent of sessions without an agent; null for the oldest agent with a model."
    )
    budgets: Budgets | None = Field(
        default=None,
        description="What models may use here: per `session`, `day` and `month`. Periods that are absent stay as they "
        "are, null removes one. Null for `budgets` removes all.",
        examples=[{"day": {"max_cost": 5}}],
    )


class WorkspaceOut(OutModel):
    id: UUID
    name: str = Field(examples=["website"])
    role: WorkspaceRole = Field(description="Your role.")
    created_at: datetime
    max_trust: TrustLevel | None = Field(
        description="The highest trust level of sessions in this workspace; null for no limit."
    )
    default_agent_id: UUID | None = None
    budgets: Budgets | None = Field(
        default=None, description="What models may use here; null for no limit.", examples=[{"day": {"max_cost": 5}}]
    )


class BudgetOut(OutModel):
    """A budget of the workspace or of an agent, and what is used of it in this day or month (UTC)."""

    agent_id: UUID | None = Field(description="The agent whose definition sets it; null for the workspace's.")
    agent_name: str | None
    period: BudgetPeriod
    max_tokens: int | None
    max_cost: Decimal | None = Field(description="In US dollars.")
    tokens: int | None = Field(description="Used so far; null for `session`, which limits each one.")
    cost: Decimal | None = Field(description="Spent so far, in US dollars; null for `session`.")


class UsageOut(OutModel):
    """The storage of a workspace. ``stored_bytes`` is after compression, ``content_bytes`` before."""

    files: int
    deleted_files: int
    versions: int
    contents: int = Field(description="Number of distinct file contents. Versions with the same content share one.")
    content_bytes: int
    stored_bytes: int
    trash_entries: int = Field(description="Number of untracked files in the trash. Undo can restore them.")
    trash_bytes: int
    sessions: int
    calls: int
    pending: int = Field(description="Number of committed changes that may not be on disk yet.")


class LimitsOut(OutModel):
    """The operator's limits for every workspace."""

    max_file_bytes: int
    max_request_bytes: int
    trash_max_bytes: int
    trash_retention_days: float
    version_retention_days: float | None = Field(description="Null if versions are kept forever.")
    approval_timeout_seconds: float = Field(description="How long an approval or a question can stay pending.")


class WorkspaceUsageOut(OutModel):
    usage: UsageOut
    limits: LimitsOut


class MemberCreate(InModel):
    email: Email
    role: WorkspaceRole = WorkspaceRole.MEMBER


class MemberUpdate(InModel):
    role: WorkspaceRole


class MemberOut(OutModel):
    user_id: UUID
    email: str = Field(examples=["ada@example.com"])
    full_name: str | None = Field(examples=["Ada Lovelace"])
    role: WorkspaceRole
    joined_at: datetime


class InvitationCreate(InModel):
    email: Email
    role: WorkspaceRole = WorkspaceRole.MEMBER


class InvitationOut(OutModel):
    id: UUID
    email: str = Field(examples=["ada@example.com"])
    role: WorkspaceRole
    invited_by: UUID
    created_at: datetime
    expires_at: datetime


class InvitationCreatedOut(InvitationOut):
    token: str = Field(examples=["tci_…"], description="Creates one account. It is not shown again.")
    link: str = Field(description="The link for creating the account. Send it only to the invited person.")


class InvitationAcceptanceIn(InModel):
    """The new account. The invitation sets its email address and role."""

    token: SecretStr = Field(max_length=200, description="The part after `#invitation=` in the link.")
    password: Password
    full_name: Name | None = Field(default=None, examples=["Ada Lovelace"])
