"""Which step may follow which, and the schema of a workflow document."""

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
        # A document without a current node is at the start node: an edge leads back there.
        (at("b"), {}),
        (None, at("a")),
        (at("a"), {"currentNodeId": "b", "count": 1}),
    ],
)
def test_a_step_along_an_edge_is_allowed(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
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
        # An unknown node, set by hand, has no outgoing edges.
        (at("nowhere"), at("a"), ()),
    ],
)
def test_every_other_step_is_rejected_with_the_allowed_ones(
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
def test_an_invalid_document_is_rejected_before_any_step(after: dict[str, Any]) -> None:
    with pytest.raises(SchemaMismatch):
        require_step(FLOW, at("a"), after)


def test_a_workflow_round_trips_through_storage() -> None:
    assert Workflow.from_json(FLOW.as_json()) == FLOW
