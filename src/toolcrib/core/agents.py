"""What an agent may do, as its owner declares it. Data only; ``policy`` decides."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from toolcrib.core.budgets import Budgets
from toolcrib.core.model_options import Effort, Wire

DEFAULT_MAX_READ_BYTES = 50_000
DEFAULT_MAX_WRITE_BYTES = 100_000
MAX_DEFINITION_CHARACTERS = 32_768


class TrustLevel(StrEnum):
    """How often a person is asked. Trust changes the number of approvals; it never adds permissions."""

    SUPERVISED = "supervised"
    GUIDED = "guided"
    REVIEW = "review"
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

    allowed: bool = Field(default=False, description="Allow the agent to use the tool.")
    paths: tuple[str, ...] | None = Field(
        default=None, description="Globs of the paths that the tool may use. By default, the whole workspace."
    )
    timeout: Annotated[float, BeforeValidator(_seconds)] | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Timeout of a call: `120`, `90s` or `2m`."
    )
    approve: ApprovalPoint = Field(
        default=ApprovalPoint.COMMAND,
        description="For `bash`: approve the `command` before it runs, or its `effect` on files afterwards. At trust "
        "`review` it always runs first.",
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="For `bash`: hosts that it may contact, such as `example.com`, `*.example.org` or `host:8080`.",
    )

    @property
    def path_lists(self) -> tuple[tuple[str, ...], ...]:
        """Lists of globs, each of which must cover a path. Empty: the whole workspace."""
        return () if self.paths is None else (self.paths,)


class NarrowedPermission(ToolPermission):
    """A tool's permission in a child run: the globs of its parents limit its paths too."""

    parent_paths: tuple[tuple[str, ...], ...] = ()

    @property
    def path_lists(self) -> tuple[tuple[str, ...], ...]:
        """Its own globs, and those of its parents."""
        return (*super().path_lists, *self.parent_paths)


PhaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Phase(BaseModel):
    """One phase of an agent's workflow. A session is in one phase, which sets the agent's permissions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: PhaseName
    tool_permissions: dict[str, ToolPermission] = Field(
        description="Permissions in this phase, by tool. If empty, the agent is read-only."
    )


class AgentRules(BaseModel):
    """What an agent may do, and its model settings. Without ``tool_permissions`` the agent is read-only.

    Without ``provider`` and ``model``, only programs with an API key can use the agent; runs cannot.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trust: TrustLevel = Field(
        default=TrustLevel.GUIDED,
        description="Which calls need approval: all (`supervised`), dangerous ones (`guided`), what cannot be undone "
        "(`review`) or none (`autonomous`).",
    )
    max_trust: TrustLevel | None = Field(
        default=None,
        description="Highest trust level of a session. By default, only owners can exceed `trust` in a session.",
    )
    toolsets: tuple[str, ...] = Field(
        default=("workspace",),
        description="Toolsets of the agent. A built-in tool that `tool_permissions` allows does not need its toolset.",
    )
    tool_permissions: dict[str, ToolPermission] | None = Field(
        default=None, description="Permissions by tool. Without it, the agent is read-only."
    )
    phases: tuple[Phase, ...] = Field(
        default=(),
        max_length=50,
        description="Phases with their own permissions, instead of `tool_permissions`. Sessions start in the first.",
    )
    max_read_bytes: int = Field(
        default=DEFAULT_MAX_READ_BYTES,
        gt=0,
        description="Maximum bytes that `fs.read` returns. Longer content is truncated.",
    )
    max_write_bytes: int = Field(
        default=DEFAULT_MAX_WRITE_BYTES, gt=0, description="Maximum bytes that `fs.write` accepts."
    )
    unprotected_paths: tuple[str, ...] = Field(
        default=(), description="Patterns of protected paths that are not protected for this agent."
    )

    provider: str | None = Field(
        default=None, max_length=100, description="Model provider, such as `anthropic` or `openai`."
    )
    model: str | None = Field(default=None, max_length=200, description="The provider's name of the model.")
    wire: Wire | None = Field(
        default=None,
        description="API of the server: `responses` or `chat_completions`. By default `openai` uses Responses, "
        "`copilot` for GPT-5 and later, and `openai-compatible` never. Other providers have one API.",
    )
    prompt: str = Field(
        default="",
        max_length=30_000,
        description="Instructions for the model. Information about the tools is added after it.",
    )
    context_window: int | None = Field(
        default=None, gt=0, description="Size of the context window in tokens, if the provider does not report it."
    )
    max_output_tokens: int | None = Field(
        default=None, gt=0, description="Maximum number of tokens that the model writes in one turn."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Sampling temperature, for providers that support it."
    )
    thinking_tokens: int = Field(
        default=0,
        ge=0,
        description="Maximum thinking tokens per turn, where the model supports it. 0 leaves it to the model.",
    )
    effort: Effort | None = Field(
        default=None,
        description="How much the model thinks: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`. Each "
        "model accepts some of them. By default, the model decides.",
    )
    max_turns: int = Field(default=200, ge=1, le=10_000, description="Maximum number of turns of a run.")
    max_tokens: int | None = Field(
        default=None, ge=1, description="Tokens that a run and its child runs may use. Checked before each turn."
    )
    max_cost: float | None = Field(
        default=None,
        gt=0,
        description="US dollars that a run and its child runs may cost. Checked before each turn; models without a "
        "known price are refused.",
    )
    budgets: Budgets | None = Field(
        default=None,
        description="What models may use in a `session` with its child runs, and in all sessions of the agent per "
        "`day` and per `month` (UTC): `max_tokens`, `max_cost` or both. Checked before each turn.",
    )
    budget_reserve: float = Field(
        default=0.2,
        ge=0.01,
        le=0.95,
        description="Share of the context window to keep free. Below it, the run summarizes its history or finishes.",
    )
    max_sandbox_violations: int = Field(
        default=0, ge=0, description="Stop a run after more sandbox violations than this."
    )
    turn_timeout: Seconds = Field(default=120.0, gt=0, le=3_600, description="Timeout of one turn of the model.")
    run_timeout: Seconds | None = Field(
        default=None,
        gt=0,
        description="Maximum active time of a run. By default 30 minutes, or 5 if the agent has no tools.",
    )
