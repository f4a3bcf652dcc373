"""Which step may follow which, and what a workflow's document must look like."""

from typing import Any

import pytest

from toolcrib.core.errors import InvalidTransition, SchemaMismatch
from toolcrib.core.packages import Workflow
from toolcrib.policy.workflows import require_step

FLOW = Workflow(
    "a",
    frozenset("abc"),
    frozenset({("a", "b"), ("b", "c"), ("b", "a")}),
    {"properties": {"count": {"type": "integer"}}},
)


def at(node: str, *steps: str) -> dict[str, Any]:
    return {"currentNodeId": node, "stepsCompleted": list(steps)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (at("a"), at("a")),
        (at("a"), at("b", "a")),
        (at("b", "a"), at("a", "a", "b")),
        ({}, at("b")),
        ({"currentNodeId": " "}, {}),
        # A document that does not say where it stands, stands at the beginning: an edge leads back there.
        (at("b"), {}),
        (None, at("a")),
        (at("a"), {"currentNodeId": "b", "count": 1}),
    ],
)
def test_a_step_along_an_edge_is_taken(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    require_step(FLOW, before, after)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        (at("a"), at("c"), ("b",)),
        (at("a"), at("nowhere"), ("b",)),
        (at("c"), at("a"), ()),
        (at("b"), at("b", "nowhere"), ("a", "c")),
        (at("b", "a"), at("b"), ("a", "c")),
        (at("b", "a"), {"currentNodeId": "b"}, ("a", "c")),
        (None, at("b"), ("a",)),
        # Where somebody put it by hand there is no step, so nothing leads on from there.
        (at("nowhere"), at("a"), ()),
    ],
)
def test_every_other_step_is_refused_and_says_which_may_follow(
    before: dict[str, Any] | None, after: dict[str, Any], allowed: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidTransition) as refused:
        require_step(FLOW, before, after)

    assert refused.value.allowed == allowed


@pytest.mark.parametrize(
    "after",
    [{"currentNodeId": 7}, {"currentNodeId": ["a"]}, {"stepsCompleted": "a"},
     {"stepsCompleted": [1]}],
)  # fmt: skip
def test_what_no_workflow_could_hold_is_refused_before_any_step(after: dict[str, Any]) -> None:
    with pytest.raises(SchemaMismatch):
        require_step(FLOW, at("a"), after)


def test_a_workflow_is_kept_and_read_back_alike() -> None:
    assert Workflow.from_json(FLOW.as_json()) == FLOW
