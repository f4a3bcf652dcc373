"""The inbox of a person on the wire."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from toolcrib.core.callers import WorkspaceRole
from toolcrib.schemas.schema_base import OutModel


class InboxWorkspaceOut(OutModel):
    workspace_id: UUID
    name: str
    role: WorkspaceRole
    pending: int = Field(description="Calls that wait for a decision or an answer; `/paused-calls` lists them.")


class OpenReviewOut(OutModel):
    """A session whose changes wait for a review."""

    workspace_id: UUID
    session_id: UUID
    title: str | None
    agent_name: str | None
    files: int
    changed_at: datetime


class FailedRunOut(OutModel):
    """Your own run that failed within the last week, and after which its session did not go on."""

    workspace_id: UUID
    session_id: UUID
    run_id: UUID
    title: str | None
    agent_name: str | None
    end_reason: str
    message: str | None
    ended_at: datetime


class InboxOut(OutModel):
    """What waits for you, in the workspaces where you may decide."""

    workspaces: list[InboxWorkspaceOut]
    reviews: list[OpenReviewOut]
    failed_runs: list[FailedRunOut]
