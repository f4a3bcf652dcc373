"""Which answers are validated on the event loop, and that a worker validates the others with the same result."""

from typing import Any

import pytest

from toolcrib.core.errors import TooCostly
from toolcrib.policy.json_schema import is_quick, is_quick_schema, schema_error, size_error, validation_error
from toolcrib.workspace.text.worker_calls import answer_flaw, flaw_of_schema

FORM = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}}}
# Blocked the loop for seconds: every number is checked against every schema.
MANY_PARTS: dict[str, Any] = {"items": {"allOf": [{"type": "integer"}] * 900}}
MANY_ITEMS = [0] * 33_000
MANY_PATTERNS: dict[str, Any] = {"anyOf": [{"pattern": rf"\w{{9}}x{number}"} for number in range(600)]}
LONG_TEXT = "a" * 90_000


def test_a_form_is_validated_at_once_and_an_expensive_schema_is_not() -> None:
    assert is_quick(FORM, {"name": "x" * 1_000, "age": 3})
    assert is_quick_schema(FORM)
    for schema, answer in ((MANY_PARTS, MANY_ITEMS), (MANY_PATTERNS, LONG_TEXT)):
        # Both are accepted: neither is too large.
        assert schema_error(schema) is None
        assert size_error({"x": answer}) is None
        assert not is_quick(schema, answer)
        assert not is_quick_schema(schema)


@pytest.mark.parametrize("answer", [{"name": "x"}, {"name": "x" * 11}, {"age": "old"}, [], {"name": "x" * 200_000}])
async def test_a_worker_gives_the_same_result(answer: Any) -> None:
    assert await answer_flaw(FORM, answer) == validation_error(FORM, answer)


async def test_an_expensive_validation_runs_in_a_worker_or_is_cancelled() -> None:
    try:
        assert await answer_flaw(MANY_PARTS, [*MANY_ITEMS[1:], "x"]) is not None
        assert await answer_flaw(MANY_PATTERNS, LONG_TEXT) is not None
    except TooCostly:
        pass


async def test_a_schema_with_many_patterns_is_compiled_by_a_worker() -> None:
    broken = {"anyOf": [*MANY_PATTERNS["anyOf"], {"pattern": "("}]}

    assert await flaw_of_schema(MANY_PATTERNS) is None
    assert "Not a JSON Schema" in str(await flaw_of_schema(broken))
    assert "nested" in str(await flaw_of_schema({"not": broken} | _deep(50)))


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"x": schema}}
    return schema
