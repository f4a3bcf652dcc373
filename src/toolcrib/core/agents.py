"""What an agent may do, as its owner declares it. Data only; ``policy`` decides."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

DEFAULT_MAX_READ_BYTES = 50_000
DEFAULT_MAX_WRITE_BYTES = 100_000


class TrustLevel(StrEnum):
    """How often a person is asked. Trust changes the number of approvals; it never adds permissions."""

    SUPERVISED = "supervised"
    GUIDED = "guided"
    AUTONOMOUS = "autonomous"

    def exceeds(self, ceiling: "TrustLevel | None") -> bool:
        """Whether this level asks for fewer approvals than ``ceiling``. Without a ceiling, never."""
        levels = list(TrustLevel)
        return ceiling is not None and levels.index(self) > levels.index(ceiling)

    def capped(self, ceiling: "TrustLevel | None") -> "TrustLevel":
        """Return this level, or the ceiling if that is lower."""
        return ceiling if ceiling is not None and self.exceeds(ceiling) else self


def _seconds(value: object) -> object:
    """Accept ``120``, ``"120"``, ``"120s"`` and ``"2m"``."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    return float(text[:-1]) * unit if unit else value


Seconds = Annotated[float, BeforeValidator(_seconds)]


class ApprovalPoint(StrEnum):
    """What a person approves of a command: the command before it runs, or its effect after it ran in the sandbox."""

    COMMAND = "command"
    EFFECT = "effect"


class ToolPermission(BaseModel):
    """One tool's entry under ``tool_permissions``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allowed: bool = Field(default=False, description="Whether the agent may use the tool at all.")
    paths: tuple[str, ...] | None = Field(default=None, description="Globs; absent means the whole workspace.")
    timeout: Annotated[float, BeforeValidator(_seconds)] | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="How long a call may take: `120`, `90s` or `2m`."
    )
    approve: ApprovalPoint = Field(
        default=ApprovalPoint.COMMAND,
        description="Of `bash`: whether to ask before it runs, or about what it would change.",
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="Of `bash`: what it may contact, as `example.com`, `*.example.org` or `host:8080`."
    )


PhaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Phase(BaseModel):
    """One phase of an agent's workflow. A session is in one phase, which sets the agent's permissions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: PhaseName
    tool_permissions: dict[str, ToolPermission] = Field(
        description="What it may use in this phase, and where; empty, it reads only."
    )


class AgentRules(BaseModel):
    """What an agent may do, and its model settings. Without ``tool_permissions`` the agent is read-only.

    Without ``provider`` and ``model``, only programs with an API key can use the agent; runs cannot.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trust: TrustLevel = Field(
        default=TrustLevel.GUIDED,
        description="How often a person is asked: `supervised` always, `guided` before what is dangerous, else never.",
    )
    max_trust: TrustLevel | None = Field(
        default=None,
        description="The most that a session may trust it. Without it, only owners go beyond `trust` in a session.",
    )
    toolsets: tuple[str, ...] = Field(
        default=("workspace",), description="Whose dialects it speaks; a tool that is allowed by name needs none."
    )
    tool_permissions: dict[str, ToolPermission] | None = Field(
        default=None, description="What it may use, and where; without it, it reads only."
    )
    phases: tuple[Phase, ...] = Field(
        default=(),
        max_length=50,
        description="In place of `tool_permissions`: each phase states its own. A session begins in the first.",
    )
    max_read_bytes: int = Field(
        default=DEFAULT_MAX_READ_BYTES, gt=0, description="The most that one `fs.read` gives; more is cut."
    )
    max_write_bytes: int = Field(
        default=DEFAULT_MAX_WRITE_BYTES, gt=0, description="The most that one `fs.write` takes; more is refused."
    )
    unprotect: tuple[str, ...] = Field(
        default=(), description="Protected-name patterns that the owner lifts for this agent."
    )

    provider: str | None = Field(default=None, max_length=100, description="Whose model: `anthropic`, `openai` …")
    model: str | None = Field(default=None, max_length=200, description="The model, as its provider calls it.")
    prompt: str = Field(default="", max_length=30_000, description="The agent's own text; what it is offered follows.")
    context_window: int | None = Field(default=None, gt=0, description="In tokens, where the provider does not tell.")
    max_output_tokens: int | None = Field(default=None, gt=0, description="The most that a model says in one turn.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="For providers that take one.")
    thinking_tokens: int = Field(default=0, ge=0, description="How much a model may think before it answers.")
    max_turns: int = Field(default=200, ge=1, le=10_000, description="A run that takes more is stopped.")
    budget_reserve: float = Field(
        default=0.2,
        ge=0.01,
        le=0.95,
        description="The share of the context window that is kept free: below it, a run makes room or concludes.",
    )
    max_sandbox_violations: int = Field(
        default=0, ge=0, description="A run that touches what is out of bounds more often is stopped."
    )
    turn_seconds: Seconds = Field(default=120.0, gt=0, le=3_600, description="How long one turn of the model may take.")
    run_seconds: Seconds | None = Field(
        default=None, gt=0, description="Time at work; 30 minutes by default, 5 where no tool is offered."
    )
