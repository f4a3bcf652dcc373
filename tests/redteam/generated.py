"""Requests that schemathesis generates from a schema: valid ones, and ones that are broken in every way it knows."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

# The same requests in every run.
SEED = 20261116
LONGEST_TEXT = 2_000


def attack_operations(
    document: dict[str, Any],
    attack: Callable[[str, Case[Any]], None],
    *,
    each: int,
    without: frozenset[str] = frozenset(),
) -> None:
    """Make ``each`` requests to every operation, half of them broken on purpose."""
    for name, operation in _operations(document):
        if name in without:
            continue
        for mode in GenerationMode:
            made = _generate(operation.as_strategy(generation_mode=mode), each // 2, partial(attack, name))
            # An operation without parameters has nothing to break.
            assert made or mode is GenerationMode.NEGATIVE, f"Nothing can be made from the description of {name}."


def describe_tools(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Describe each tool as a route whose body is its arguments."""
    paths, schemas = {}, {}
    for tool in tools:
        # An OpenAPI document has all its schemas in one section.
        text = json.dumps(tool["inputSchema"]).replace('"#/$defs/', f'"#/components/schemas/{tool["name"]}.')
        schema = json.loads(text)
        schemas.update({f"{tool['name']}.{name}": part for name, part in schema.pop("$defs", {}).items()})
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths[f"/{tool['name']}"] = {
            "post": {"operationId": tool["name"], "requestBody": body, "responses": {"200": {"description": ""}}}
        }
    info = {"title": "tools", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for found in schemathesis.openapi.from_dict(_shortened(document)).get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        yield operation.definition.raw["operationId"], operation


def _shortened(schema: Any) -> Any:
    """The same with shorter texts: generating a million characters takes longer than a hundred requests."""
    if isinstance(schema, list):
        return [_shortened(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    shorter = {name: _shortened(value) for name, value in schema.items()}
    if isinstance(shorter.get("maxLength"), int):
        shorter["maxLength"] = min(shorter["maxLength"], LONGEST_TEXT)
    return shorter


def _generate(strategy: Any, count: int, attack: Callable[[Case[Any]], None]) -> int:
    """Make the given number of requests, or fewer if there are not enough."""
    made = 0

    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def run(case: Case[Any]) -> None:
        nonlocal made
        made += 1
        attack(case)

    with suppress(Unsatisfiable):
        run()
    return made
