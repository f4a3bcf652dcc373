"""Every response is documented precisely enough for generated clients."""

import json
import re
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

# Where any value is valid, because others decide it: a model, a person's form, a provider, another program.
OPEN = {
    "AnyToolCallOut.result",
    "ApprovalOut.input",
    "AuditRecordOut.arguments",
    "CallSummaryOut.arguments",
    "EffectsOut.output",
    "EventOut.payload",
    "FileVersionResult.content",
    "McpToolOut.input_schema",
    "MessageMetadataOut.note",
    "PlanEntry.metadata",
    "PlanReadResult.metadata",
    "PlanWriteResult.metadata",
    "QuestionOut.schema",
    "QuestionPauseOut.answers",
    "ReadManyEntry.content",
    "ReadResult.content",
    "StoredCallOut.arguments",
    "StoredCallOut.result",
    "ToolDefinition.inputSchema",
}


def test_every_response_is_documented_down_to_values_that_others_decide(app: FastAPI) -> None:
    document = app.openapi()
    answers = {
        content["schema"].get("$ref", "")
        for path in document["paths"].values()
        for operation in path.values()
        for status, response in operation["responses"].items()
        if status.startswith("2")
        for kind, content in response.get("content", {}).items()
        if kind == "application/json"
    }
    vague = {
        where
        for name, schema in _reached(document, answers | {"#/components/schemas/ToolResults"}).items()
        for where in _vague(schema, name)
    }

    assert vague <= OPEN, f"Say what these are: {sorted(vague - OPEN)}"


def _reached(document: dict[str, Any], references: set[str]) -> dict[str, Any]:
    """Return the named schemas that these refer to."""
    found: dict[str, Any] = {}
    left = list(references)
    while left:
        name = left.pop().removeprefix("#/components/schemas/")
        if name and name not in found:
            found[name] = document["components"]["schemas"][name]
            left += re.findall(r"#/components/schemas/[^\"]+", json.dumps(found[name]))
    return found


def _vague(schema: Any, where: str) -> Iterator[str]:
    """Return where a schema accepts any value or any object."""
    if not isinstance(schema, dict):
        return
    says = set(schema) - {"title", "description", "examples", "default"}
    if not says or (schema.get("type") == "object" and schema.get("additionalProperties", True) is True
                    and "properties" not in schema):  # fmt: skip
        yield where
    for name, inner in schema.get("properties", {}).items():
        yield from _vague(inner, f"{where}.{name}")
    for inner in (*schema.get("anyOf", ()), schema.get("items"), schema.get("additionalProperties")):
        yield from _vague(inner, where)
