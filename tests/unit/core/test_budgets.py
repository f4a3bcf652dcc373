"""What a budget that is used up says: the fact, the limit, and what to do."""

from decimal import Decimal

import pytest

from toolcrib.core.budgets import BudgetScope, BudgetState, dollars


def state(scope: BudgetScope, *, tokens: int = 0, cost: str = "0", **limits: int | Decimal) -> BudgetState:
    given = {"max_tokens": None, "max_cost": None, **limits}
    return BudgetState(scope, "coder", tokens=tokens, cost=Decimal(cost), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", BudgetScope)
def test_a_budget_is_used_up_when_its_limit_is_reached(scope: BudgetScope) -> None:
    left = state(scope, tokens=9, cost="0.99", max_tokens=10, max_cost=Decimal(1))
    assert left.used_up is None

    for reached in (
        state(scope, tokens=10, max_tokens=10),
        state(scope, cost="1", max_cost=Decimal(1)),
    ):
        sentence = reached.used_up
        assert sentence is not None
        assert sentence.startswith("Stopped: ")
        assert "retry the run" in sentence


@pytest.mark.parametrize(
    ("scope", "sentence"),
    [
        (BudgetScope.RUN, "the run has cost $2.50; its limit is $2.00. Raise `max_cost` in the definition of agent"),
        (
            BudgetScope.AGENT_DAY,
            "agent 'coder' has cost $2.50 today (UTC); its limit is $2.00 per day. Raise `budgets.day",
        ),
        (
            BudgetScope.WORKSPACE_MONTH,
            "this workspace has cost $2.50 this month (UTC); its limit is $2.00 per month. An",
        ),
        (BudgetScope.WORKSPACE_SESSION, "this session has cost $2.50; its limit is $2.00 per session. An owner"),
    ],
)
def test_the_sentence_names_the_budget_and_the_remedy(scope: BudgetScope, sentence: str) -> None:
    assert sentence in (state(scope, cost="2.5", max_cost=Decimal(2)).used_up or "")


def test_only_a_budget_in_money_refuses_a_model_without_a_price() -> None:
    assert state(BudgetScope.SESSION, max_tokens=10).unpriced("llama") is None
    assert "no price is known for 'llama', so that agent 'coder''s limit of $1.00 per session" in (
        state(BudgetScope.SESSION, max_cost=Decimal(1)).unpriced("llama") or ""
    )


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("0", "$0.00"), ("5", "$5.00"), ("1234.5", "$1,234.50"), ("0.0123", "$0.0123"), ("0.0000021", "$0.0000021")],
)
def test_dollars_have_as_many_digits_as_small_amounts_need(amount: str, shown: str) -> None:
    assert dollars(Decimal(amount)) == shown
