"""Budgets: how many tokens and how much money models may use, and the sentence that explains a run's stop."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from toolcrib.core.ids import AgentId

_MOST_TOKENS: Final = 10**15


class Budget(BaseModel):
    """A limit on what models may use. A field that is absent is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int | None = Field(default=None, ge=1, le=_MOST_TOKENS, description="Input and output tokens.")
    max_cost: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        allow_inf_nan=False,
        description="US dollars. Models without a known price are then refused.",
    )

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return self.max_tokens is None and self.max_cost is None


class Budgets(BaseModel):
    """Budgets by period. Days and months are those of UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session: Budget | None = Field(default=None, description="A session with its child runs.")
    day: Budget | None = Field(default=None, description="All sessions together, per day.")
    month: Budget | None = Field(default=None, description="All sessions together, per month.")


class BudgetPeriod(StrEnum):
    """What a budget adds up."""

    SESSION = "session"
    DAY = "day"
    MONTH = "month"


class BudgetScope(StrEnum):
    """Whose budget it is, and what it adds up."""

    RUN = "run"
    PARENT_RUN = "parent-run"
    SESSION = "session"
    AGENT_DAY = "agent-day"
    AGENT_MONTH = "agent-month"
    WORKSPACE_SESSION = "workspace-session"
    WORKSPACE_DAY = "workspace-day"
    WORKSPACE_MONTH = "workspace-month"


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget, and what is used of it. ``name`` is the agent whose definition sets it."""

    scope: BudgetScope
    name: str | None
    max_tokens: int | None
    max_cost: Decimal | None
    tokens: int
    cost: Decimal

    @property
    def used_up(self) -> str | None:
        """Why nothing more may be used, and what to do about it; None if something is left."""
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            fact = f"has used {self.tokens:,} tokens{self._when}; its limit is {self.max_tokens:,}{self._each}"
            return f"Stopped: {self._subject} {fact}. {self._remedy('max_tokens')}"
        if self.max_cost is not None and self.cost >= self.max_cost:
            fact = f"has cost {dollars(self.cost)}{self._when}; its limit is {dollars(self.max_cost)}{self._each}"
            return f"Stopped: {self._subject} {fact}. {self._remedy('max_cost')}"
        return None

    def unpriced(self, model: str) -> str | None:
        """Why a model without a known price may not be used; None if money is not limited."""
        if self.max_cost is None:
            return None
        return (
            f"Stopped: no price is known for {model!r}, so that {self._whose} limit of {dollars(self.max_cost)}"
            f"{self._each} cannot be kept. Use `max_tokens` instead of `max_cost`, or a model with a known price."
        )

    @property
    def _subject(self) -> str:
        match self.scope:
            case BudgetScope.RUN:
                return "the run"
            case BudgetScope.PARENT_RUN:
                return "the run that started this one, with its child runs,"
            case BudgetScope.SESSION | BudgetScope.WORKSPACE_SESSION:
                return "this session"
            case BudgetScope.AGENT_DAY | BudgetScope.AGENT_MONTH:
                return f"agent {self.name!r}"
            case BudgetScope.WORKSPACE_DAY | BudgetScope.WORKSPACE_MONTH:
                return "this workspace"

    @property
    def _whose(self) -> str:
        return "the workspace's" if self._is_of_workspace else f"agent {self.name!r}'s"

    @property
    def _is_of_workspace(self) -> bool:
        return self.scope.startswith("workspace-")

    @property
    def _period(self) -> str:
        """The name of the budget in ``Budgets``; empty for a run's."""
        return self.scope.rpartition("-")[2] if self.scope not in (BudgetScope.RUN, BudgetScope.PARENT_RUN) else ""

    @property
    def _when(self) -> str:
        return {"day": " today (UTC)", "month": " this month (UTC)"}.get(self._period, "")

    @property
    def _each(self) -> str:
        return {"day": " per day", "month": " per month", "session": " per session"}.get(self._period, "")

    def _remedy(self, field: str) -> str:
        if self._is_of_workspace:
            command = f"toolcrib workspace budget {self._period} --{field.replace('_', '-')} …"
            return f"An owner can raise it in the settings or with `{command}`. Then retry the run."
        name = f"budgets.{self._period}.{field}" if self._period else field
        return f"Raise `{name}` in the definition of agent {self.name!r}, then retry the run."


@dataclass(frozen=True, slots=True)
class WorkspaceBudget:
    """A budget of the workspace, or of one of its agents. What a session has used of its own is not known here."""

    agent_id: AgentId | None
    agent_name: str | None
    period: BudgetPeriod
    max_tokens: int | None
    max_cost: Decimal | None
    tokens: int | None
    cost: Decimal | None


def dollars(amount: Decimal) -> str:
    """Return an amount with cents, and with as many more digits as small amounts need."""
    if amount == amount.quantize(Decimal("0.01")):
        return f"${amount:,.2f}"
    return f"${amount:,.4f}" if amount >= Decimal("0.0001") else f"${amount:.2g}"
