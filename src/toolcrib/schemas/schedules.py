"""Schedules on the wire."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from toolcrib.schemas.schema_base import InModel, Name, OutModel
from toolcrib.schemas.sessions import Text

Cron = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"),
    Field(
        description="Five fields: minute, hour, day of the month, month, day of the week.",
        examples=["0 9 * * mon-fri"],
    ),
]
TimeZone = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_+/-]+$"),
    Field(description="A name of the IANA time zone database.", examples=["Europe/Berlin"]),
]


class ScheduleCreate(InModel):
    """A message to an agent, sent as you at the times of a cron expression. Each time starts a new session."""

    name: Name = Field(description="Also the title of its sessions.", examples=["Morning report"])
    cron: Cron
    time_zone: TimeZone = "UTC"
    agent_id: UUID
    message: Text = Field(examples=["Summarize what changed since yesterday."])


class ScheduleUpdate(InModel):
    """Fields that are absent stay as they are."""

    name: Name | None = None
    cron: Cron | None = None
    time_zone: TimeZone | None = None
    agent_id: UUID | None = None
    message: Text | None = None
    enabled: bool | None = Field(default=None, description="False pauses the schedule, true resumes it.")


class ScheduleOut(OutModel):
    id: UUID
    name: str = Field(examples=["Morning report"])
    cron: str = Field(examples=["0 9 * * mon-fri"])
    time_zone: str = Field(examples=["Europe/Berlin"])
    agent_id: UUID
    user_id: UUID = Field(description="Who created it. Its messages are sent as this user.")
    message: str
    enabled: bool
    next_at: datetime | None = Field(description="When it fires next; null while it is paused.")
    last_at: datetime | None
    last_session_id: UUID | None
    last_run_id: UUID | None
    last_error: str | None = Field(description="Why it could not fire the last time.")
    created_at: datetime
