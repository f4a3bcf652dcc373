"""Agents and the packages that install them, on the wire."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from toolcrib.core.agents import MAX_DEFINITION_CHARACTERS, AgentRules, TrustLevel
from toolcrib.schemas.schema_base import Hex, InModel, Name, OutModel

Definition = Annotated[
    str,
    # PostgreSQL cannot store NUL.
    StringConstraints(max_length=MAX_DEFINITION_CHARACTERS, pattern=r"^[^\x00]*$"),
    Field(
        description="The agent's definition in YAML.",
        examples=["trust: guided\ntool_permissions:\n  write: {allowed: true, paths: [docs/**]}\n"],
    ),
]


class AgentCreate(InModel):
    name: Name = Field(examples=["writer"])
    definition: Definition


class AgentUpdate(InModel):
    name: Name | None = None
    definition: Definition | None = None


class AgentOut(OutModel):
    id: UUID
    name: str = Field(examples=["writer"])
    definition: str
    rules: AgentRules = Field(description="The parsed definition, including defaults.")
    max_trust: TrustLevel | None = Field(
        description="The highest trust level of a session: the lower of the agent's and the workspace's `max_trust`."
    )
    package: str | None = Field(description="The package that installed the agent; null if an owner created it.")
    created_by: UUID
    created_at: datetime
    updated_at: datetime


class PackageOut(OutModel):
    """A package, visible under `@pkg`. Its agents belong to the workspace and have the limits of package agents."""

    name: str = Field(examples=["demo"])
    version: str = Field(examples=["1.0.0"])
    sha256: Hex = Field(description="SHA-256 of the archive.")
    files: int
    bytes: int = Field(validation_alias="size", description="Total size of the unpacked files.")
    agents: list[str] = Field(description="The names of the agents in the workspace.", examples=[["demo.planner"]])
    has_workflow: bool = Field(description="True if sessions can run the package's workflow.")
    warnings: list[str] = Field(
        default=[],
        description="After an installation: names in the agents' definitions that this server does not know.",
    )
    installed_by: UUID
    installed_at: datetime
